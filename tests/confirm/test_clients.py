"""The Python client, the hook, the MCP server and the command line, against a real service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from tests import forked
from tests.confirm.running import Running
from tests.confirm.vendors.host import Host
from tests.mcp.rig import text_of
from tests.support import ended, wait_until
from whet.rpc import BadCall, RpcCall
from whet_confirm.client import BlockingClient, ConfirmClient, requires_confirmation
from whet_confirm.hook import HookAsk, run_hook
from whet_confirm.mcp import answer_call
from whet_confirm.open import ServicePaths, make_first_tokens, open_service
from whet_confirm.service import CallerLimits
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions, Unreachable


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("shared"), rate=10_000) as running:
        yield running


@pytest.fixture(scope="module")
def token(server):
    return server.token("submit", "agent")


@pytest.fixture
def url(server):
    return server.url


class Person:
    """Decides on everything that comes up while it is there."""

    def __init__(self, server, verdict, **body):
        self._client = server.client("approve", "alice")
        self._verdict, self._body = verdict, body
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.wait(0.02):
            with contextlib.suppress(httpx2.TimeoutException):  # of a loaded machine
                self._decide_all()

    def _decide_all(self):
        for request in self._client.get("/confirm?status=pending").json()["requests"]:
            self._client.post(f"/confirm/{request['id']}/{self._verdict}", json=self._body)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        ended(self._thread, "the deciding person")


def test_confirm_waits_consumes_and_reports(server, token, url):
    async def go():
        async with ConfirmClient(url, token) as client:
            ticket = await client.confirm("deploy", "Deploy", {"v": 1})
            await client.report(ticket.id, "executed", "done")
            return ticket, await client.status(ticket.id)

    with Person(server, "approve"):
        ticket, record = asyncio.run(go())
    assert ticket.resolved_by == "alice" and ticket.grant.count(".") == 2
    assert record["execution"] == "executed" and record["consumed_by"] == "agent"


@pytest.mark.slow
def test_a_cancelled_call_leaves_no_request_behind_even_while_it_is_submitted(tmp_path):
    async def confirm_and_cancel(client, passes):
        call = asyncio.create_task(client.confirm("deploy", "Deploy", {"n": passes}))
        for _ in range(passes):
            await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    async def go(url, token):
        async with ConfirmClient(url, token) as client:
            for passes in range(0, 400, 8):
                await confirm_and_cancel(client, passes)

    with Running(tmp_path, rate=1000) as server:
        asyncio.run(go(server.url, server.token("submit", "agent")))
        statuses = {row[0] for row in server.rows("SELECT status FROM requests")}
    assert statuses == {"cancelled"}


def test_a_denial_says_why(server, token, url):
    refused = pytest.raises(ConfirmationRefused, match="denied by alice: not today")
    with Person(server, "deny", reason="not today"), BlockingClient(url, token) as client, refused as caught:
        client.confirm("deploy", "Deploy")
    assert caught.value.status == "denied"


def test_the_same_key_finds_the_same_request(server, token, url):
    with BlockingClient(url, token) as client:
        ask = ConfirmOptions(idempotency_key="turn 9 call 1")
        assert client.submit("deploy", "d", ask=ask).id == client.submit("deploy", "d", ask=ask).id


@pytest.mark.parametrize(
    ("at", "status", "hint"),
    [("http://127.0.0.1:9", "unavailable", "whet confirm serve"), ("", "refused", "")],
    ids=["no service", "a wrong token"],
)
def test_what_no_service_vouches_for_is_a_denial(url, at, status, hint):
    with BlockingClient(at or url, "wct_wrong") as client, pytest.raises(ConfirmationRefused) as caught:
        client.confirm("deploy", "Deploy")
    assert caught.value.status == status and hint in caught.value.hint


async def test_a_wait_without_time_gives_the_request_or_says_that_nobody_is_there(server, token, url):
    async with asyncio.timeout(20), ConfirmClient(url, token) as client:
        ticket = await client.submit("deploy", "Deploy")
        assert (await client.wait(ticket.id, 0.0))["status"] == "pending"
        await client.cancel(ticket.id)
        assert (await client.wait(ticket.id, 600.0))["status"] == "cancelled"
    async with asyncio.timeout(20), ConfirmClient("http://127.0.0.1:9", token) as client:
        with pytest.raises(Unreachable):
            await client.wait(ticket.id, 0.0)


async def test_a_cancelled_wait_takes_the_request_back(server, token, url):
    async with ConfirmClient(url, token) as client:
        waiting = asyncio.ensure_future(client.confirm("cancelme", "Deploy"))
        async with asyncio.timeout(30):
            while not server.service.hub.waiting:
                await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert server.rows("SELECT status FROM requests WHERE action = 'cancelme'") == [("cancelled",)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--keep", "600"]], ids=["asks", "keeps"])
def test_a_hook_that_is_ended_takes_its_request_back_unless_it_is_kept(server, token, url, tmp_path, options):
    """As `timeout whet confirm hook` does it: the signal comes twice."""
    event = {"hook_event_name": "PreToolUse", "tool_name": f"End{len(options)}", "tool_input": {}}
    command = [sys.executable, "-m", "whet", "confirm", "hook", "--url", url, *options]
    environ = {**os.environ, "CONFIRMATION_TOKEN": token, "WHET_HOME": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as program:
        assert program.stdin is not None
        program.stdin.write(json.dumps(event))
        program.stdin.close()
        program.stdin = None
        wait_until(lambda: server.service.hub.waiting == 1)
        for _ in range(2):
            program.send_signal(signal.SIGTERM)
        out, errors = program.communicate(timeout=30)
    # the second signal may come when Python handles signals no more; a shell says 143 of both
    assert program.returncode in (143, -signal.SIGTERM) and (out, errors) == ("", "")
    rows = server.rows("SELECT status FROM requests WHERE action = ?", f"tool:End{len(options)}")
    assert rows == [("pending" if options else "cancelled",)]


def test_the_decorator_guards_plain_and_async_functions(server, token, url):
    ran = []

    @requires_confirmation("wipe_database", describe="Wipe {table}", url=url, token=token)
    def wipe(table, *, dry=False):
        ran.append(table)
        return f"wiped {table}"

    @requires_confirmation("wipe_database", url=url, token=token)
    async def wipe_later(table):
        ran.append(table)
        raise OSError("no such table")

    with Person(server, "deny"), pytest.raises(ConfirmationRefused):
        wipe("users")
    assert ran == []
    with Person(server, "approve"):
        assert wipe("logs") == "wiped logs"
        with pytest.raises(OSError, match="no such table"):
            asyncio.run(wipe_later("x"))
    assert ran == ["logs", "x"]
    rows = server.rows("SELECT description, details, execution FROM requests WHERE action = 'wipe_database'")
    assert rows[1] == ("Wipe logs", '{"dry":false,"table":"logs"}', "executed")
    assert rows[2][2] == "failed"


def event(name="PreToolUse", tool="Bash", call=""):
    fields = {"hook_event_name": name, "tool_name": tool, "tool_input": {"command": "rm -rf build"}}
    number = call or f"t{time.monotonic_ns()}"
    return json.dumps({**fields, "session_id": "s1", "tool_use_id": number, "cwd": "/tmp"})


def hooked(text, url, **more):
    ask = HookAsk(url, more.get("patterns", ()), more.get("free", ()), 30)
    return json.loads(run_hook(text, more.get("agent", "claude-code"), ask))


def test_the_hook_allows_what_was_approved_and_denies_the_rest(server, token, url, monkeypatch):
    monkeypatch.setenv("CONFIRMATION_TOKEN", token)
    with Person(server, "approve"):
        specific = hooked(event(), url)["hookSpecificOutput"]
        assert specific["permissionDecision"] == "allow" and "alice" in specific["permissionDecisionReason"]
        decision = hooked(event("PermissionRequest"), url)["hookSpecificOutput"]["decision"]
        assert decision == {"behavior": "allow"}
    with Person(server, "deny", reason="no"):
        assert hooked(event(), url)["hookSpecificOutput"]["permissionDecision"] == "deny"
        decision = hooked(event("PermissionRequest"), url)["hookSpecificOutput"]["decision"]
        assert decision["behavior"] == "deny" and "no" in decision["message"]
    assert hooked(event(tool="Read"), url, patterns=("Bash",)) == {}
    assert hooked(event(tool="Read"), url, free=("Re*",)) == {}


def test_two_hooks_of_one_call_are_two_requests(server, token, url, monkeypatch):
    monkeypatch.setenv("CONFIRMATION_TOKEN", token)
    texts = (event(name, call="call 1") for name in ("PreToolUse", "PermissionRequest"))
    with Person(server, "approve"):
        before, permission = (hooked(text, url)["hookSpecificOutput"] for text in texts)
    assert before["permissionDecision"] == "allow"
    assert permission["decision"] == {"behavior": "allow"}


def test_the_hook_asks_about_the_eleventh_call_of_an_hour_too(tmp_path, monkeypatch):
    with Running(tmp_path) as server:
        agent, url = server.client("submit", "agent"), server.url
        monkeypatch.setenv("CONFIRMATION_TOKEN", server.token("submit", "agent"))
        with Person(server, "deny", reason="no"):
            answers = [hooked(event(), url) for _ in range(12)]
        reasons = {a["hookSpecificOutput"]["permissionDecisionReason"] for a in answers}
        assert reasons == {"not confirmed: denied by alice: no"}
        body = {"action": "deploy", "description": "d"}  # a caller that only submits keeps its limit
        assert [agent.post("/confirm", json=body).status_code for _ in range(11)] == [202] * 10 + [429]


def test_the_hook_denies_when_nobody_is_there():
    assert hooked(event(), "http://127.0.0.1:9")["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.slow
def test_the_mcp_server_with_the_official_client(server, token, url):
    pytest.importorskip("mcp")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def go():
        environ = {**os.environ, "CONFIRMATION_TOKEN": token}
        arguments = ["-m", "whet", "confirm", "mcp", "--url", url]
        run = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
        async with stdio_client(run) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            names = [tool.name for tool in tools.tools]
            given = {"action": "deploy", "description": "d", "details": {"v": 1}}
            asked = await session.call_tool("request_confirmation", given)
            request_id = json.loads(text_of(asked))["id"]
            done = await session.call_tool("wait_for_confirmation", {"id": request_id, "seconds": 20})
            bad = await session.call_tool("request_confirmation", {"action": "", "description": ""})
            return names, json.loads(text_of(done)), bad

    with Person(server, "approve"):
        names, done, bad = asyncio.run(go())
    assert names == ["request_confirmation", "wait_for_confirmation"]
    assert (done["status"], done["resolved_by"]) == ("approved", "alice")
    assert "Do not do it" in text_of(bad)


def whet(folder, *arguments, **environ):
    return forked.run(("confirm", *arguments), folder, environ={"WHET_HOME": str(folder), **environ})


NOT_CALLS = [
    ("tools/call", {"name": "other"}, "no tool 'other'"),
    ("prompts/list", {}, "no method 'prompts/list'"),
    ("tools/call", {"name": "request_confirmation", "arguments": {"details": [1]}}, "must be an object"),
    ("tools/call", {"name": "request_confirmation", "arguments": {"timeout_seconds": "9"}}, "a whole number"),
    ("tools/call", {"name": "wait_for_confirmation", "arguments": {"id": "a", "seconds": "9"}}, "a number"),
    ("tools/call", {"name": "wait_for_confirmation", "arguments": {"id": "a", "seconds": True}}, "a number"),
    ("tools/call", {"name": "wait_for_confirmation", "arguments": {"id": "a/b"}}, "id is required"),
    ("tools/call", {"name": "wait_for_confirmation"}, "id is required"),
]


def mcp_answer(url, token, method, params):
    async def go():
        async with ConfirmClient(url, token) as client:
            return await answer_call(client, RpcCall(method, params, print))

    return asyncio.run(go())


def call_tool(url, token, name, **arguments):
    return mcp_answer(url, token, "tools/call", {"name": name, "arguments": arguments})


@pytest.mark.parametrize(("method", "params", "said"), NOT_CALLS)
def test_the_mcp_server_says_what_is_no_call(method, params, said):
    with pytest.raises(BadCall, match=said):
        mcp_answer("http://127.0.0.1:9", "x", method, params)


def test_the_mcp_server_asks_waits_and_says_approved_once(server, token, url):
    given = {"action": "deploy", "description": "d", "details": {"v": 1}, "timeout_seconds": 60}
    answer = call_tool(url, token, "request_confirmation", **given)
    asked = answer["structuredContent"]
    assert not answer["isError"]
    assert asked["status"] == "pending" and asked.keys() == {"id", "status", "digest"}
    stored = server.stored(asked["id"])
    assert (stored.timeout_seconds, stored.details_json, stored.requester) == (60, '{"v":1}', "mcp")
    waiting = call_tool(url, token, "wait_for_confirmation", id=asked["id"], seconds=-1)
    assert waiting["structuredContent"] == asked | {"action": "deploy", "details": {"v": 1}}
    refused = call_tool(url, token, "wait_for_confirmation", id="r" * 22, seconds=0)
    assert refused["isError"] and "Do not do it" in refused["structuredContent"]["message"]
    server.client("approve", "alice").post(f"/confirm/{asked['id']}/approve")
    first, again = (call_tool(url, token, "wait_for_confirmation", id=asked["id"], seconds=5) for _ in "ab")
    assert first["structuredContent"]["status"] == "approved" and not first["isError"]
    assert again["isError"] and "used before" in again["structuredContent"]["message"]
    assert server.stored(asked["id"]).consumed_at is not None


@pytest.mark.slow
def test_the_command_line_from_token_to_verify(server, url, tmp_path):
    folder = server.paths.folder.parent
    person = {"WHET_CONFIRM_URL": url, "CONFIRMATION_TOKEN": server.token("approve", "bob")}
    agent = server.client("submit", "agent")
    body = {"action": "cli", "description": "d\x1b[31m", "details": {"a": 1}}
    request = agent.post("/confirm", json=body).json()
    assert request["id"] in whet(folder, "list", **person).out
    shown = whet(folder, "show", request["id"][:18], **person).out
    assert request["digest"] in shown and "\x1b[31m" not in shown and '"a": 1' in shown
    hidden = {"command": "uptime; echo http://a:$(touch${IFS}HIDDEN)@h"}
    keyed = agent.post("/confirm", json={"action": "run", "description": "d", "details": hidden}).json()
    assert hidden["command"] in whet(folder, "show", keyed["id"], **person).out
    denied = whet(folder, "deny", request["id"], "-r", "why not", "--json", **person)
    assert json.loads(denied.out)["reason"] == "why not"
    late = whet(folder, "approve", request["id"], **person)
    assert late.code == 1 and "already denied by bob" in late.err
    run = agent.post("/confirm", json={"action": "run", "description": "d", "details": {}}).json()
    assert whet(folder, "approve", run["id"], "--digest", run["digest"], **person).code == 0
    assert agent.post(f"/confirm/{run['id']}/consume", json={"digest": run["digest"]}).status_code == 200
    report = {"result": "failed", "note": "full"}
    assert agent.post(f"/confirm/{run['id']}/report", json=report).status_code == 200
    shown = whet(folder, "show", run["id"], **person).out
    assert "used by      agent, " in shown and "result       failed " in shown and ": full" in shown
    enrolled = json.loads(whet(folder, "token", "enrol", "--name", "bob", "--json").out)
    assert len(enrolled["secret"]) == 32 and enrolled["uri"].endswith("&issuer=whet%20confirm")
    listed = json.loads(whet(folder, "token", "list", "--json").out)["tokens"]
    assert {row["name"] for row in listed if row["second_factor"]} == {"bob"}
    verified = whet(folder, "audit", "verify", "--json")
    assert verified.code == 0 and json.loads(verified.out)["ok"] is True
    exported = whet(folder, "audit", "export").out.splitlines()
    assert [json.loads(line)["id"] for line in exported][:3] == [1, 2, 3]


@pytest.mark.slow
def test_a_token_is_printed_once_and_holds_as_long_as_its_option_says(tmp_path):
    for option, seconds in (("45s", 45), ("30m", 1_800), ("12h", 43_200), ("30d", 2_592_000)):
        done = whet(tmp_path, "token", "create", "--role", "audit", "--name", "eve", "--for", option)
        assert len(done.out.strip()) > 30
        rows = json.loads(whet(tmp_path, "token", "list", "--json").out)["tokens"]
        assert seconds in [round(row["expires_at"] - row["created_at"]) for row in rows]
        assert not any(done.out.strip() in str(row) for row in rows)


class Other(Host):
    """Another program on the port: it answers with JSON, as many do."""

    def app(self):
        async def take(request):
            if "broken" in request.url.path:
                return PlainTextResponse("Internal Server Error", 500)
            return JSONResponse({"ok": True}, 404 if "confirm" not in request.url.path else 200)

        return Starlette(routes=[Route("/{path:path}", take, methods=["GET", "POST"])])


def test_a_wrong_address_is_named_and_how_to_name_the_right_one(tmp_path):
    with Other() as other:
        done = whet(tmp_path, "list", WHET_CONFIRM_URL=other.url)
        done.assert_error("is another program, not a confirmation service")
        assert "--url or WHET_CONFIRM_URL" in done.err
        done = whet(tmp_path, "list", WHET_CONFIRM_URL=f"{other.url}/elsewhere")
        done.assert_error("is another program, not a confirmation service")
        with pytest.raises(ConfirmationRefused, match="another program"), BlockingClient(other.url) as client:
            client.confirm("deploy", "Deploy")
        done = whet(tmp_path, "list", WHET_CONFIRM_URL=f"{other.url}/broken")
        done.assert_error("answered 500")
        assert "log says why" in done.err
    nobody = whet(tmp_path, "list", WHET_CONFIRM_URL="http://127.0.0.1:9")
    nobody.assert_error("can't be reached")
    assert "whet confirm serve" in nobody.err and "--url or WHET_CONFIRM_URL" in nobody.err


@pytest.mark.parametrize("option", ["--port", "--web-port"])
def test_a_taken_port_names_its_own_option(tmp_path, option):
    with Other() as other:
        taken = other.url.rpartition(":")[2]
        ports = {"--port": "0", "--web-port": "0", option: taken}
        arguments = [text for pair in ports.items() for text in pair]
        done = whet(tmp_path, "serve", *arguments)
        done.assert_error(f"port {taken} on 127.0.0.1 is taken")
        assert f"or choose another {option}\n" in done.err and "ss -ltnp" in done.err


@pytest.mark.slow
def test_policy_commands(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[[rules]]\nname="prod"\naction="deploy_*"\neffect="deny"\n')
    assert "is right: 1 rule, version" in whet(tmp_path, "policy", "check", str(path)).out
    tried = whet(tmp_path, "policy", "test", str(path), "--action", "Deploy_X", "--json")
    assert json.loads(tried.out)["effect"] == "deny"
    path.write_text('rules=[{action="wipe*", effect="allow"}, {action="Rotate-Keys", effect="allow"}]')
    noted = whet(tmp_path, "policy", "check", str(path)).out.splitlines()
    assert "2 rules" in noted[0]
    assert noted[1:] == [
        "note: rule 'rule 1' has no effect on wipe_database, which always needs a person",
        "note: rule 'rule 2' has no effect: rotate-keys always needs a person",
    ]
    path.write_text('[groups]\nops=["ann"]\n[[rules]]\nname="two"\neffect="ask"\nquorum="2 of ops"\n')
    assert "'two' can never be approved" in whet(tmp_path, "policy", "check", str(path)).out
    path.write_text('[[rules]]\neffect="perhaps"\n')
    broken = whet(tmp_path, "policy", "check", str(path))
    assert broken.code == 1 and "perhaps" in broken.err


def test_a_rotated_first_token_is_replaced_in_the_file_that_agents_read(tmp_path):
    paths = ServicePaths(tmp_path / "confirmations.db", tmp_path / "confirm")
    service = open_service(paths, policy=None, limits=CallerLimits())
    make_first_tokens(service, paths)
    service.database.close()
    before = paths.token_path("submit").read_text()
    rows = json.loads(whet(tmp_path, "token", "list", "--json").out)["tokens"]
    ids = {row["role"]: row["id"] for row in rows}
    rotated = whet(tmp_path, "token", "rotate", ids["submit"], "--overlap", "1h")
    assert rotated.code == 0 and "submit.token has the new one" in rotated.err
    assert paths.token_path("submit").read_text() == rotated.out != before
    assert paths.token_path("submit").stat().st_mode & 0o777 == 0o600
    listed = whet(tmp_path, "token", "list").out
    assert re.search(rf"{ids['submit']} +agent +submit +until \d{{4}}-\d\d-\d\d \d\d:\d\d", listed), listed
    other = json.loads(whet(tmp_path, "token", "create", "--role", "submit", "--name", "ci", "--json").out)
    assert "submit.token" not in whet(tmp_path, "token", "rotate", other["id"]).err
    assert paths.token_path("submit").read_text() == rotated.out


def list_requests(folder: Path, **variables: str) -> forked.Done:
    return forked.run(("confirm", "list"), folder, environ={"WHET_HOME": str(folder), **variables})


@pytest.mark.parametrize(
    "address", ["127.0.0.1:6000", "localhost", "http//127.0.0.1:6000", "http:", "http://127.0.0.1:x"]
)
def test_an_address_without_its_scheme_host_or_port_is_named(tmp_path, address):
    done = list_requests(tmp_path, WHET_CONFIRM_URL=address)
    done.assert_error(f"{address} is not an address", "for example http://127.0.0.1:6000")
    refused = pytest.raises(ConfirmationRefused, match="is not an address")
    with refused, BlockingClient(address, "wct_x") as client:
        client.confirm("deploy", "Deploy")


def test_a_token_that_was_copied_badly_is_named_and_a_line_end_after_it_does_no_harm(server, tmp_path):
    url, secret = server.url, server.token("approve", "ann")
    done = list_requests(tmp_path, WHET_CONFIRM_URL=f" {url}/\n", CONFIRMATION_TOKEN=f"{secret}\r\n")
    assert done.code == 0, done.err
    for copied in (f"{secret[:9]}\n{secret[9:]}", f"{secret}\u2026"):
        done = list_requests(tmp_path, WHET_CONFIRM_URL=url, CONFIRMATION_TOKEN=copied)
        done.assert_error("the token holds a character that can't be sent", "copy the token again")


def test_half_a_character_in_a_request_is_named(server):
    client = BlockingClient(server.url, server.token("submit", "agent"))
    with client, pytest.raises(ConfirmationRefused, match="its text holds half a character"):
        client.confirm("deploy", "Deploy \ud800")


def test_a_request_whose_wait_ended_early_is_refused_as_withdrawn(server):
    client = BlockingClient(server.url, server.token("submit", "agent"))
    words = "cancelled by agent: the caller stopped waiting"
    with client, pytest.raises(ConfirmationRefused, match=words) as refusal:
        client.confirm("deploy", "Deploy", ask=ConfirmOptions(timeout_s=-10))  # no time to wait
    assert refusal.value.status == "cancelled"
    assert server.stored(refusal.value.request_id).status == "cancelled"
