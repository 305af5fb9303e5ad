"""One client against the paced server: CPU of each call, as JSON.

Run as: python -m benchmarks.loops.paced_client CLIENT BASE_URL MODEL CALLS, CLIENT one of `whet` (a whole
turn: gate, store with fsync, events), `client` (Whet's HTTP client alone), `http.client` (the standard
library, which blocks: the floor) and `httpx2`. The last three read the events' JSON and do nothing with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import ssl
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

_HEADERS = {"content-type": "application/json", "accept": "*/*", "user-agent": "bench"}


def _body(model: str) -> bytes:
    return json.dumps(
        {"model": model, "stream": True, "messages": [{"role": "user", "content": "go"}]}
    ).encode()


def _read(line: bytes) -> None:
    if line.startswith(b"data: {"):
        json.loads(line[6:])


def standard(base_url: str, model: str, calls: int) -> float:
    """The standard library's client."""
    parts, body = urlsplit(base_url), _body(model)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, port, context=ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
        )
    else:
        connection = http.client.HTTPConnection(host, port)
    began = 0.0
    for number in range(calls + 1):
        if number == 1:  # the first connects
            began = time.process_time()
        connection.request("POST", parts.path + "/chat/completions", body, _HEADERS)
        with connection.getresponse() as answer:
            for line in answer:
                _read(line)
    return time.process_time() - began


async def with_httpx2(base_url: str, model: str, calls: int) -> float:
    """httpx2's asynchronous client."""
    import httpx2

    began = 0.0
    async with httpx2.AsyncClient(timeout=60) as client:
        for number in range(calls + 1):
            if number == 1:
                began = time.process_time()
            url = base_url + "/chat/completions"
            async with client.stream("POST", url, content=_body(model), headers=_HEADERS) as answer:
                async for line in answer.aiter_lines():
                    _read(line.encode())
    return time.process_time() - began


async def alone(base_url: str, model: str, calls: int) -> float:
    """Whet's client without Whet."""
    from whet.http1.client import HttpClient, Limits, Request
    from whet.providers.sse import SseParser

    began = 0.0
    client = HttpClient(Limits())
    for number in range(calls + 1):
        if number == 1:
            began = time.process_time()
        request = Request("POST", base_url + "/chat/completions", _HEADERS, _body(model))
        parser = SseParser()
        async with client.exchange(request) as answer, contextlib.aclosing(answer.chunks()) as chunks:
            async for chunk in chunks:
                for _, data in parser.feed(chunk):
                    if data.startswith(b"{"):
                        json.loads(data)
    spent = time.process_time() - began
    await client.aclose()
    return spent


async def whole(base_url: str, model: str, calls: int) -> float:
    """A turn of Whet's of so many calls."""
    from benchmarks.loops.whet_loop import turn_of

    with tempfile.TemporaryDirectory() as folder:
        return await turn_of(base_url, f"{model}-{calls - 1}", Path(folder))


def main() -> None:
    kind, base_url, model, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if kind == "http.client":
        spent = standard(base_url, f"{model}-0", calls)
    elif kind == "whet":
        spent = asyncio.run(whole(base_url, model, calls))
    else:
        run = alone if kind == "client" else with_httpx2
        spent = asyncio.run(run(base_url, f"{model}-0", calls))
    print(json.dumps({"call_ms": spent * 1000 / calls}))


if __name__ == "__main__":
    main()
