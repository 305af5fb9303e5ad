"""Our side of JSON-RPC over stdio: calls side by side, calling off, and lines that are not calls."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SERVER = """
import asyncio, sys
from whet.contract.errors import WhetError
from whet.rpc import BadCall, METHOD_NOT_FOUND, serve_stdio

async def answer(call):
    if call.method == "wait":
        try:
            await asyncio.sleep(call.params["seconds"])
            return {}
        except asyncio.CancelledError:
            sys.stderr.write("called off\\n")
            raise
    if call.method == "tell":
        call.notify("news", {"n": 1})
        print("a stray line")
        return {"told": call.params}
    if call.method == "tools/call":
        return {"got": list(call.tool)}
    if call.method == "busy":
        raise WhetError("the file is in use")
    raise BadCall(METHOD_NOT_FOUND, "no such method")

asyncio.run(serve_stdio(answer))
"""


def talk(*lines: bytes) -> tuple[list[dict[str, Any]], str]:
    """Send lines, end, and give what was answered and what stood on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", SERVER], input=b"\n".join(lines), capture_output=True, timeout=30, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def call(method: str, call_id: object = 1, **params: Any) -> bytes:
    """Give a call's line."""
    return json.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}).encode()


def test_calls_run_side_by_side_and_one_is_called_off() -> None:
    off = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "one"}}'
    fields, errors = talk(call("wait", "one", seconds=60), call("tell", 2, a=1), off, call("ping", 3))
    assert fields == [
        {"jsonrpc": "2.0", "method": "news", "params": {"n": 1}},
        {"jsonrpc": "2.0", "id": 2, "result": {"told": {"a": 1}}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
    ]
    assert "a stray line" in errors


def test_what_is_no_call_is_refused_and_the_next_one_answered() -> None:
    long = call("tell", 1, text="x" * 3_000_000)
    bad = call("tools/call", 8, name="n", arguments=[1])
    fields, _ = talk(b"{nope", b"[1, 2]", b"", long, b"null", bad, call("no", 9), call("ping", 10))
    codes = [field.get("error", {}).get("code") for field in fields]
    assert fields[-1] == {"jsonrpc": "2.0", "id": 10, "result": {}}
    assert codes[-3:-1] == [-32602, -32601] and set(codes[:-3]) == {-32600}


def test_a_line_that_is_no_utf_8_and_a_failure_of_ours_end_nothing() -> None:
    latin = call("tell", 1, text="caf\\").replace(b"\\\\", b"\xe9")
    fields, _ = talk(latin, call("busy", 2), call("ping", 3))
    assert fields[1:] == [
        {"jsonrpc": "2.0", "id": 1, "result": {"told": {"text": "caf\ufffd"}}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "the file is in use"}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
    ]


@pytest.mark.slow
def test_an_id_that_is_in_use_is_refused_and_nothing_is_left_when_the_client_goes() -> None:
    fields, errors = talk(call("wait", 1, seconds=600), call("wait", 1, seconds=600))
    assert [(field["id"], field["error"]["code"]) for field in fields] == [
        (1, -32600)
    ] and "called off" in errors


@pytest.mark.slow
def test_calls_that_run_when_the_client_goes_are_called_off() -> None:
    fields, errors = talk(call("wait", seconds=60))
    assert fields == [] and "called off" in errors
