"""Headers with which a client of `whet serve` claims another address, host or scheme: none of them is
believed, by the API or by the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.attacks.test_forwarded_headers import CLAIMS, HOSTS, LINKS, ORIGINS, send_raw
from tests.serve.conftest import Api
from tests.serve.test_board import sign_in
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow
# `localhost.` is this machine under every resolver, so no name of another site leads to it.
OTHER_HOSTS = [host for host in HOSTS if host != "LOCALHOST."]
ATTEMPTS = [*CLAIMS, *OTHER_HOSTS, *LINKS, *map(str, ORIGINS)]


@pytest.fixture(scope="module")
def page_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with PracticeServer() as model:
        api = Api(Path(tmp_path_factory.mktemp("api")), model, web=True)
        yield api
        api.close()


def test_a_claimed_host_is_served_nowhere(page_api: Api) -> None:
    port = int(page_api.url.rpartition(":")[2])
    effects: list[str] = []
    for path in ("/api/sessions", "/v1/models", "/", "/inbox"):
        for host in OTHER_HOSTS:
            lines = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {page_api.token}\r\n"
            status = send_raw(port, f"{lines}Connection: close\r\n\r\n".encode()).split(b"\r\n")[0]
            if b" 200 " in status or b" 303 " in status:
                effects.append(f"{path} of {host}")
    assert effects == []


def test_no_answer_repeats_a_claimed_host(page_api: Api) -> None:
    with page_api.http() as http, httpx2.Client(base_url=page_api.url) as page:
        sign_in(page, page_api, page_api.token)
        for name, value in LINKS:
            claim = {name: value}
            for answer in (
                http.get("/api/sessions", headers=claim),
                http.post("/api/sessions", json={}, headers=claim),
                http.get("/openapi.json", headers=claim),
                http.get("/v1/models", headers=claim),
                page.get("/", headers=claim),
                page.get("/inbox", headers=claim),
                page.get("/costs", headers=claim),
            ):
                sent = f"{answer.text} {json.dumps(dict(answer.headers))}"
                assert answer.status_code < 300 and "evil.example" not in sent, (name, str(answer.url))
        landed = httpx2.post(
            f"{page_api.url}/login",
            data={"token": page_api.token},
            headers=dict(LINKS),
            follow_redirects=False,
        )
        assert "evil.example" not in str(landed.headers)


def test_another_sites_page_sends_nothing(page_api: Api) -> None:
    for odd in ORIGINS:
        with page_api.http() as http:
            answer = http.post("/api/sessions", json={}, headers=odd)
            assert answer.status_code == 403, (odd, answer.text)
        landed = httpx2.post(f"{page_api.url}/login", data={"token": page_api.token}, headers=odd)
        assert landed.status_code in (403, 421) and "set-cookie" not in landed.headers, odd


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claimed_address_does_not_escape_the_limit(tmp_path: Path, name: str) -> None:
    with PracticeServer() as model:
        api = Api(tmp_path, model, web=True)
        statuses, pages = set[int](), set[int]()
        try:
            for n in range(40):
                claim = {name: CLAIMS[name].format(n=n)}
                wrong = {"authorization": f"Bearer x{n}", **claim}
                statuses.add(httpx2.get(f"{api.url}/api/sessions", headers=wrong).status_code)
                form = {"token": f"x{n}"}
                origin = {"origin": api.url, **claim}
                pages.add(httpx2.post(f"{api.url}/login", data=form, headers=origin).status_code)
                if 429 in statuses & pages:
                    break
        finally:
            api.close()
    assert 429 in statuses and 429 in pages
