"""Redirects of a page that `web_fetch` reads: each address passes the rules that the first one passed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest

from tests.app.helper_runs import mind, steps
from tests.app.opened import ask, open_app, practice_model
from tests.app.test_asked import Asked
from tests.tools.test_web import CLOSED, OPEN, Reply, Site, redirect, reply
from whet.approval.url_rules import UrlRules
from whet.config.permission_settings import ApprovalSettings
from whet.config.schema import ToolSettings
from whet.contract.errors import ToolDenied
from whet.lanes import ToolPool
from whet.serve.attachments import Attachments
from whet.serve.wire import ApiError
from whet.tools.fetch import follow_redirects
from whet.tools.page_source import WebLimits
from whet_lab.practice.server import PracticeServer

PAGES: dict[str, Reply] = {
    "/start": redirect("/next"),
    "/next": reply(b"same host"),
    "/private": reply(b"a secret"),
}


def fetch_all(folder: Path, approval: ApprovalSettings, addresses: Sequence[str]) -> list[str]:
    """Return what the model reads of each address, in a session whose person says yes once."""
    person = Asked(lambda request: "once")

    async def main(server: PracticeServer) -> list[str]:
        model = practice_model(server.base_url, "practice-echo")
        tools = ToolSettings(web_allow_private=True)
        async with open_app(folder / "home", folder, model, person, approval=approval, tools=tools) as app:
            session = await app.new_session()
            await ask(session, steps([("web_fetch", {"url": address}) for address in addresses]))
            return [message.text for message in session.log.messages if message.role == "tool"]

    with PracticeServer(responder=mind) as server:
        return asyncio.run(main(server))


@pytest.mark.parametrize(
    "rules",
    [
        {"mode": "auto", "deny": (f"web_fetch({OPEN})",)},
        {"mode": "auto", "ask": (f"web_fetch({OPEN})",)},
        {"mode": "ask"},
        {"mode": "deny"},
    ],
    ids=["denied", "asked by a rule", "asked by the mode", "mode deny"],
)
def test_a_redirect_goes_where_a_first_fetch_would_go_unasked(
    tmp_path: Path, rules: dict[str, object]
) -> None:
    async def serve() -> tuple[list[str], list[str]]:
        async with Site(PAGES, OPEN) as other, Site(dict(PAGES), CLOSED) as allowed:
            there = f"http://{OPEN}:{other.port}/private"
            allowed.pages["/away"] = redirect(there)
            allowed.pages["/hop"] = redirect("/away")
            at = f"http://{CLOSED}:{allowed.port}"
            approval = ApprovalSettings(**rules, allow=(f"web_fetch({CLOSED})",))  # type: ignore[arg-type]
            addresses = [f"{at}/start", f"{at}/away", f"{at}/hop"]
            texts = await asyncio.to_thread(fetch_all, tmp_path, approval, addresses)
            assert all(there in text for text in texts[1:]), texts
            return texts, other.requests

    (same, *others), requests = asyncio.run(serve())
    assert "same host" in same
    assert all("which was not fetched" in text and "a secret" not in text for text in others), others
    assert requests == [], "the second host was reached"


def test_a_yes_for_an_address_covers_redirects_within_its_host_but_for_rules(tmp_path: Path) -> None:
    async def serve() -> list[str]:
        async with Site(dict(PAGES), CLOSED) as site:
            site.pages["/to-private"] = redirect("/%70rivate")
            site.pages["/%70rivate"] = site.pages["/private"]
            at = f"http://{CLOSED}:{site.port}"
            approval = ApprovalSettings(mode="ask", deny=("web_fetch(*/private*)",))
            addresses = [f"{at}/start", f"{at}/to-private", f"{at}/%70rivate"]
            return await asyncio.to_thread(fetch_all, tmp_path, approval, addresses)

    same, *private = asyncio.run(serve())
    assert "same host" in same
    assert all("deny: web_fetch(*/private*)" in text and "a secret" not in text for text in private), private


def test_a_yes_for_an_address_covers_no_other_server_of_its_host(tmp_path: Path) -> None:
    async def serve() -> tuple[str, list[str]]:
        async with Site(dict(PAGES), CLOSED) as other, Site({}, CLOSED) as site:
            site.pages["/away"] = redirect(f"http://{CLOSED}:{other.port}/private")
            addresses = [f"http://{CLOSED}:{site.port}/away"]
            texts = await asyncio.to_thread(fetch_all, tmp_path, ApprovalSettings(mode="ask"), addresses)
            return texts[0], other.requests

    text, requests = asyncio.run(serve())
    assert "which was not fetched" in text and "a secret" not in text
    assert requests == [], "the other server was reached"


@pytest.mark.parametrize(
    ("url", "target", "is_same"),
    [
        ("http://localhost:3000/a", "http://LOCALHOST:3000/b", True),
        ("http://localhost:3000/a", "http://localhost:9200/a", False),
        ("http://localhost/a", "http://localhost:9200/a", False),
        ("http://localhost/a", "http://localhost:80/b", True),
        ("http://example.org/a", "https://example.org/a", True),
        ("http://example.org:80/a", "https://example.org:443/a", True),
        ("http://example.org:8000/a", "https://example.org/a", False),
        ("https://example.org/a", "http://example.org/a", False),
    ],
)
async def test_a_server_is_a_host_with_its_port(url: str, target: str, is_same: bool) -> None:
    judged: list[bool] = []

    async def refuse(address: str, is_same_server: bool) -> str:
        judged.append(is_same_server)
        return "no"

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(302, headers={"Location": target})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        with pytest.raises(ToolDenied):
            await follow_redirects(client, httpx2.URL(url), refuse)
    assert judged == [is_same]


@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_rules_for_addresses_hold_for_files_that_a_request_names(kind: str) -> None:
    rules = UrlRules(ApprovalSettings(mode="auto", **{kind: (f"web_fetch({OPEN})",)}))
    pool = ToolPool()
    attachments = Attachments(pool, WebLimits(allow_private=True), rules.refusal)
    async with Site({}, OPEN) as other, Site({}, CLOSED) as allowed:
        allowed.pages["/away"] = redirect(f"http://{OPEN}:{other.port}/a")
        for url in (f"http://{CLOSED}:{allowed.port}/away", f"http://{OPEN}:{other.port}/a"):
            with pytest.raises(ApiError, match=rf"{kind}: web_fetch"):
                await attachments.include([{"type": "image_url", "image_url": url}], "input")
        assert other.requests == [] and len(allowed.requests) == 1
    pool.close()
