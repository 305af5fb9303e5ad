"""A model server that sends its answers as real ones come: in pieces, some time apart; with TLS where a
certificate is named. Speaks Chat Completions, Responses and Messages.

Run as: python -m benchmarks.loops.paced_server [CERTIFICATE]; prints its base URL. The model's name says what
is sent: `paced-PIECES-GAP_MS-STEPS`, of which every answer but the last calls the shell, or the tool `noop`;
`work-PIECES-GAP_MS-STEPS` calls the shell with what a job is made of.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import sys

from benchmarks.loops.paced_shapes import SHAPES, call_for, results_in

_MODELS = json.dumps({"object": "list", "data": [{"id": "paced", "object": "model"}]}).encode()
_BYTES_PER_TOKEN = 4


async def _answer(writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
    asked = json.loads(body)
    kind, count, gap_ms, steps = asked["model"].split("-")
    is_last = results_in(asked) >= int(steps) or not asked.get("tools")
    call = None if is_last else call_for(asked, kind)
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
        b"x-request-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    due_s = asyncio.get_running_loop().time()
    for event in SHAPES[path](int(count), call, len(body) // _BYTES_PER_TOKEN):
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        if gap_ms != "0":
            due_s += int(gap_ms) / 1000
            await asyncio.sleep(due_s - asyncio.get_running_loop().time())
    writer.write(b"0\r\n\r\n")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if head.startswith("get "):
                kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(kind % len(_MODELS) + _MODELS)
            else:
                size = int((head.partition("content-length: ")[2] or "0").split("\r\n")[0])
                path = head.split(" ", 2)[1].partition("?")[0]
                body = await reader.readexactly(size)
                if path in SHAPES:
                    await _answer(writer, path, body)
                else:
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()


async def main() -> None:
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or Nagle delays it
    listener.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(_serve, sock=listener, ssl=context)
    port = server.sockets[0].getsockname()[1]
    print(f"http{'s' if context else ''}://localhost:{port}/v1", flush=True)
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, ended.cancel)
    try:
        await ended
    except asyncio.CancelledError:
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
