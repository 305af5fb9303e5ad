"""Requests made so that a person says yes to something else than runs, and ways to lend a yes that fail."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.confirm.running import SUBMIT, Running, answered
from tests.confirm.test_sight import ask, form, page_of
from tests.support import wait_until
from whet_confirm.client import requires_confirmation
from whet_confirm.commands.record_text import describe_request
from whet_confirm.grants import GrantRefused, check_grant, sign_grant
from whet_confirm.hook import HOOK_AGENTS, HookAsk, run_hook
from whet_confirm.notify.notice_text import build_notice
from whet_confirm.notify.plain import format_body
from whet_confirm.shown import describe_unclear, unclear_warning
from whet_confirm.tickets import ConfirmationRefused

HARM = "rm -rf /srv/shop"
LONG = "\n".join(f"line {number}" for number in range(60))
FILE = f"{LONG}\n{HARM}\n{LONG}"
DETAILS: dict[str, dict[str, Any]] = {
    "a change of nothing": {"old": HARM, "new": HARM},
    "a change of nothing, under other names": {"before": HARM, "after": HARM, "path": "job.sh"},
    "far from what is said to change": {"old": FILE, "new": f"{FILE}\ndone"},
    "far from it, at the beginning": {"old_string": f"{HARM}\n{LONG}", "new_string": f"{HARM}\n{LONG}!"},
    "far from it, in values": {"old_value": f"{FILE}a", "new_value": f"{FILE}b"},
    "a change of blanks at an end": {"old_text": f"{FILE} ", "new_text": FILE},
    "two changes at once": {"old": "a", "new": "b", "before": FILE, "after": FILE + "x"},
    "more lines than are compared": {"old": "x\n" * 2_500, "new": "x\n" * 2_400 + HARM},
    "a change with one side no text": {"old": HARM, "new": [HARM]},
    "a patch's line that says it is an index": {"patch": f"--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\nindex {HARM}"},
    "a patch's line that says it is a name": {"patch": f"@@ -1 +1 @@\n-x\n+++ {HARM}"},
    "a patch's line that says it is a place": {"diff": f"-x\n+y\n@@ {HARM}"},
    "a patch and a diff": {"patch": "-a\n+b", "diff": f"-a\n+{HARM}"},
    "the end of a long name": {"x" * 400 + HARM: 1},
    "the end of a long name further in": {"files": {"y" * 400 + HARM: "content"}},
    "a name with nothing under it": {HARM: ""},
    "a name with line breaks": {f"path\nExactly this would run\n{HARM}": "job.sh"},
    "one of four thousand": {"items": [*range(4_000), HARM, *range(100)]},
    "one of two thousand names": {f"name{at}": HARM if at == 1_500 else "" for at in range(2_000)},
    "sixty levels down": json.loads('{"a":' * 60 + json.dumps(HARM) + "}" * 60),
    "after a carriage return": {"command": f"ls\r{HARM}"},
    "after two hundred lines": {"command": "\n".join(["ls"] * 200 + [HARM])},
    "after a word of 5,000 letters": {"command": "x" * 5_000 + HARM},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("deceits"), rate=10_000, upkeep=False) as running:
        yield running


def seen(page: str) -> str:
    """What a page shows without a press: a fold that is closed hides."""
    opened = re.sub(r"<details class=\"fold raw\">.*?</details>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", opened))


@pytest.mark.fast_rows(
    "a change of nothing",
    "a patch and a diff",
    "a name with line breaks",
    "5,000 letters",
    "far from it, in values",
    "more lines than",
    "sixty levels",
    "two thousand names",
    "two changes",
    "a change with one side",
)
@pytest.mark.parametrize("way", DETAILS)
def test_the_harm_is_seen_before_a_yes_wherever_it_stands(server, way):
    request_id = ask(server, DETAILS[way])
    with page_of(server, f"a{len(way)}") as browser:
        page = browser.get(f"/r/{request_id}").text
        assert HARM in seen(page) or 'id="approve"' not in page
    record = server.client("approve", "carol").get(f"/confirm/{request_id}").json()
    assert HARM in "\n".join(describe_request(record))
    notice = build_notice(server.stored(request_id), link="")
    assert HARM in format_body(notice) or not notice.may_approve


@pytest.mark.parametrize("field", ["action", "requester", "session_key", "description"])
def test_the_harm_is_seen_in_every_other_field_that_runs_along(server, field):
    request_id = ask(server, {"a": 1}, **{field: f"{'x' * 200} {HARM}"})
    with page_of(server, f"b{len(field)}") as browser:
        assert HARM in seen(browser.get(f"/r/{request_id}").text)


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("rm /\u05d0/\u05d1", True),
        ("pay \u05d0 100", True),
        ("host \u05d0.\u05d1", True),
        ("\u0645 12/5", True),
        ("\u05e9\u05dc\u05d5\u05dd, \u05e2\u05d5\u05dc\u05dd", False),
        ("a \u05d0 b 5", False),
        ("\u05d0.\n\u05d1", False),
        ("rm /a/b", False),
    ],
)
def test_what_runs_in_another_order_than_it_is_shown_is_named(server, text, turned):
    request = server.stored(ask(server, {"command": text, "more": ["\u05d0", "\u05d1"]}))
    assert any("right to left" in unclear for unclear in describe_unclear(request)) is turned
    assert ("JSON shows" in unclear_warning(request)) is turned


def deciding(server: Running, change: Any) -> threading.Thread:
    """Approve the next request, after `change`."""
    alice = server.client("approve", "alice")

    def work() -> None:
        fields: list[dict[str, Any]] = []
        wait_until(
            lambda: fields.extend(alice.get("/confirm?status=pending").json()["requests"]) or bool(fields)
        )
        change()
        alice.post(f"/confirm/{fields[0]['id']}/approve", json={"digest": fields[0]["digest"]})

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("what", ["a list", "a table", "nothing"])
def test_arguments_that_change_while_a_person_decides_do_not_run(tmp_path, what):
    paths, options = ["/tmp/a"], {"dry": True}
    ran: list[object] = []
    changes = {"a list": lambda: paths.append("/srv/shop"), "a table": options.clear, "nothing": lambda: None}
    with Running(tmp_path, upkeep=False) as server:
        url, token = server.url, server.token("submit", "agent")

        @requires_confirmation("delete", url=url, token=token)
        def delete(paths: list[str], options: dict[str, bool]) -> None:
            ran.append((paths, options))

        thread = deciding(server, changes[what])
        if what == "nothing":
            delete(paths, options)
        else:
            with pytest.raises(ConfirmationRefused, match="changed while"):
                delete(paths, options)
        thread.join()
        (request,) = server.client("audit", "eve").get("/confirm").json()["requests"]
        assert bool(ran) is (what == "nothing")
        assert request["execution"] == ("executed" if ran else "failed")


def test_two_names_that_read_alike_are_both_shown(tmp_path):
    with Running(tmp_path, upkeep=False) as server:
        url, token = server.url, server.token("submit", "agent")

        @requires_confirmation("run", url=url, token=token)
        def run(commands: dict[Any, str]) -> None:
            return

        thread = deciding(server, lambda: None)
        run({1: HARM, "1": "ls"})
        thread.join()
        (request,) = server.client("audit", "eve").get("/confirm").json()["requests"]
        assert HARM in str(request["details"])


HOOKED = [
    '{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":NaN}}',
    '{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"\\ud800"}}',
    '{"hook_event_name":"PreToolUse","tool_name":["Bash"],"tool_input":{}}',
    '{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":' + '{"a":' * 70 + "1" + "}" * 70 + "}",
    '{"hook_event_name":"pretooluse","tool_name":"Bash","tool_input":{}}',
    '[{"hook_event_name":"PreToolUse"}]',
    "",
    "[" * 100_000,
    "junk",
    "{}",
    '{"hook_event_name":"Stop","tool_name":"x"}',
]


@pytest.mark.parametrize("text", HOOKED, ids=range(len(HOOKED)))
def test_a_hook_denies_what_nobody_could_judge(server, text):
    ask = HookAsk(server.url, timeout_s=30)
    for agent in HOOK_AGENTS:
        answer = run_hook(text, agent, ask)
        assert '"deny"' in answer and '"allow"' not in answer


def test_a_yes_is_for_the_version_that_was_looked_at(server):
    """Nine ways to have what was seen changed under a decision, by somebody who may change it."""
    alice, bob = server.client("approve", "alice"), server.client("approve", "bob")
    one, two = (server.stored(ask(server, {"n": n}, accepts_edits=True)) for n in (1, 2))
    way = f"/confirm/{one.id}"
    assert bob.post(f"{way}/amend", json={"details": {"n": 9}, "digest": one.digest}).status_code == 200
    tries = [
        alice.post(f"{way}/approve", json={"digest": one.digest}),
        alice.post(f"{way}/deny", json={"digest": one.digest}),
        alice.post(f"{way}/approve", json={"digest": two.digest}),
        alice.post(f"{way}/amend", json={"details": {"n": 1}, "digest": one.digest}),
        alice.post(f"{way}/amend", json={"details": {"n": 1}, "digest": two.digest}),
        alice.post(f"{way}/amend", json={"details": {"n": 1}, "digest": one.digest.upper()}),
        alice.post(f"{way}/amend", json={"details": {"n": 1}}),
    ]
    assert {answer.status_code for answer in tries} == {400, 409}
    with page_of(server, "dora") as browser:
        page = browser.get(f"/r/{one.id}").text
        for digest, path in ((one.digest, "decide"), (one.digest, "amend"), (two.digest, "amend")):
            sent = form(page, verdict="approve", details='{"n": 1}') | {"digest": digest}
            assert browser.post(f"/r/{one.id}/{path}", data=sent).status_code == 409, path
    now = server.stored(one.id)
    assert (now.status, now.details_json) == ("pending", '{"n":9}') and server.service.votes(one.id) == []


def test_a_token_that_comes_where_none_belongs_is_none(server):
    """Trailers, lists, queries, other schemes and headers, and a connection that somebody else has used."""
    request = server.client("submit", "agent").post("/confirm", json=SUBMIT).json()
    token = server.token("approve", "alice")
    path, host = f"POST /confirm/{request['id']}/approve HTTP/1.1", f"Host: 127.0.0.1:{server.port}"
    close = "Connection: close"
    good = f"GET /confirm HTTP/1.1\r\n{host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    basic = base64.b64encode(f"alice:{token}".encode()).decode()
    heads = [
        f"Authorization: Bearer wct_x, Bearer {token}", f"Authorization: Bearer {token},",
        f"Proxy-Authorization: Bearer {token}",
        f"Authorization: Basic {basic}", f"Authorization: {token}", f"X-Authorization: Bearer {token}",
        f"Authorization: Bearer {token} x", f'Authorization: Bearer "{token}"',
        f"Authorization: Bearer {token[:-1]}",
        f"Cookie: authorization=Bearer {token}", f"Authorization: Bearer\x0b{token}",
        f"Authorization: Bearer token={token}", "X-Forwarded-User: alice\r\nX-Remote-User: alice",
        "Forwarded: for=127.0.0.1;by=alice", f"Cookie: token={token}; session={token}",
        f"Authorization: Basic {token}", f"Authorization: Bearer {token}x",
        f"Authorization: Bearer {token.upper()}", f"Authorization: Bearer {token}, {token}",
        f"Authorization: Bearer\t{token}", "Authorization: Bearer",
    ]  # fmt: skip
    whole = [f"{path}\r\n{host}\r\n{head}\r\n{close}\r\nContent-Length: 0\r\n\r\n" for head in heads]
    in_query = path.replace(" HTTP", f"?access_token={token} HTTP")
    whole.append(f"{in_query}\r\n{host}\r\n{close}\r\nContent-Length: 0\r\n\r\n")
    for trailer in ("Authorization", "AUTHORIZATION", "authorization"):
        chunked = (
            f"{path}\r\n{host}\r\n{close}\r\nTrailer: Authorization\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        whole.append(f"{chunked}2\r\n{{}}\r\n0\r\n{trailer}: Bearer {token}\r\n\r\n")
    for raw in whole:
        status, _ = answered(server.raw(raw.encode("latin-1")))
        assert status in (400, 401, 429), raw
        assert server.stored(request["id"]).is_pending, raw
    # Behind a call of hers on the same connection.
    both = server.raw(f"{good}{path}\r\n{host}\r\n{close}\r\nContent-Length: 0\r\n\r\n".encode())
    assert both.startswith(b"HTTP/1.1 200") and both.count(b"HTTP/1.1 401") + both.count(b"HTTP/1.1 429") == 1
    assert server.stored(request["id"]).is_pending


def test_a_trailer_names_no_host_origin_or_key_either(server):
    token = server.token("submit", "agent")
    head = (
        f"POST /confirm HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {token}\r\n"
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    sent = json.dumps(SUBMIT)
    for trailer in ("Idempotency-Key: one", "Host: evil.example", "Origin: http://evil.example"):
        raw = f"{head}{len(sent):x}\r\n{sent}\r\n0\r\n{trailer}\r\n\r\n"
        assert answered(server.raw(raw.encode()))[0] == 202, trailer
    assert server.rows("SELECT count(*) FROM idempotency") == [(0,)]


def test_who_may_both_ask_and_decide_does_not_do_both(server):
    root, alice = server.client("admin", "root"), server.client("approve", "alice")
    request = root.post("/confirm", json=SUBMIT).json()
    for verb in ("approve", "deny"):
        assert root.post(f"/confirm/{request['id']}/{verb}").status_code == 403
    other = server.client("approve", "root")  # a second token of the same name
    assert other.post(f"/confirm/{request['id']}/approve").status_code == 403
    item = {"id": request["id"], "digest": request["digest"]}
    assert (
        root.post("/decisions", json={"verdict": "approve", "items": [item]}).json()["outcomes"][0]["counted"]
        is False
    )
    assert alice.post("/confirm", json=SUBMIT).status_code == 403
    assert server.stored(request["id"]).is_pending


def test_a_grant_is_good_as_it_was_written_and_in_no_other_spelling(server):
    request = server.stored(ask(server, {"a": 1}))
    server.client("approve", "alice").post(f"/confirm/{request.id}/approve")
    key, now_s = server.service.key, server.service.timeline.now_s()
    grant = sign_grant(key, server.stored(request.id), 600.0)
    assert check_grant(grant, key.public, digest=request.digest, now_s=now_s)
    head, payload, signature = grant.split(".")
    last = signature[-1]
    unused = [a for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" if a != last]
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    spelled = [
        *(f"{head}.{payload}.{signature[:-1]}{letter}" for letter in unused), f"{grant}=",
        f"{grant}==", f"{grant}\n",
        f" {grant}", f"{grant}.", f"{head}.{payload}=.{signature}", f"{head}=.{payload}.{signature}",
        f"{none}.{payload}.", f"{none}.{payload}.{signature}", f"{head}.{payload}.", f"{payload}.{signature}",
        grant.replace("-", "+").replace("_", "/") if set("-_") & set(grant) else f"{grant}+",
    ]  # fmt: skip
    for text in spelled:
        with pytest.raises(GrantRefused):
            check_grant(text, key.public, digest=request.digest, now_s=now_s)


@pytest.mark.slow
def test_a_hook_that_gets_no_text_denies(server):
    """An exit code other than 0 would let the tool run."""
    event = b'{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"\xff"}}'
    environ = {**os.environ, "PYTHONUTF8": "1", "CONFIRMATION_TOKEN": server.token("submit", "robot")}
    command = [sys.executable, "-m", "whet", "confirm", "hook", "--url", "http://127.0.0.1:9"]
    done = subprocess.run(command, input=event, env=environ, capture_output=True, check=True)
    assert b'"permissionDecision": "deny"' in done.stdout
