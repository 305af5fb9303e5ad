"""Answers as no good server sends them: cut, slow, mangled, endless. From a seed, always the same ones."""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from typing import Literal

Ending = Literal["close", "reset", "stall", "endless", "keep"]


@dataclass
class HostileAnswer:
    """What a server writes, piece by piece, and how it ends; `whole` is the body where the answer is a good
    one, else None. `endless` is repeated until the client hangs up."""

    pieces: list[bytes]
    ending: Ending
    whole: bytes | None = None
    endless: bytes = b""
    trail: list[str] = field(default_factory=list)


def answer_of(seed: int) -> HostileAnswer:
    rng = random.Random(seed)
    body = _body(rng)
    head, wire, needs_close = _message(rng, body)
    made = head + wire
    if rng.random() < 0.25:
        ending: Ending = "close" if needs_close else rng.choice(["keep", "close"])
        return HostileAnswer(_cut(rng, made), ending, whole=body, trail=["good"])
    trail: list[str] = []
    for _ in range(rng.randrange(1, 4)):
        name, made = _mangled(rng, head, made)
        trail.append(name)
    ending = rng.choice(["close", "reset", "stall", "endless", "close", "keep"])
    return HostileAnswer(_cut(rng, made), ending, endless=_endless(rng), trail=[*trail, ending])


def _body(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 17, 4_000, 70_000]))
    if kind == 1:
        return b'{"error":{"message":"no such model"}}'
    event = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    last = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    return event * rng.randrange(1, 30) + last


def _message(rng: random.Random, body: bytes) -> tuple[bytes, bytes, bool]:
    """Write an answer properly; gives its head, the rest, and whether only the connection's end ends it."""
    status = rng.choice([200, 200, 200, 200, 404, 429, 500, 302])
    lines = [b"HTTP/1.%d %d Yes" % (1 if rng.random() < 0.9 else 0, status)]
    lines.append(b"content-type: " + rng.choice([b"text/event-stream", b"application/json", b"text/html"]))
    lines += [b"x-%d: %s" % (number, b"y" * rng.randrange(200)) for number in range(rng.randrange(5))]
    if rng.random() < 0.15:
        lines.append(b"content-encoding: gzip")
        body = gzip.compress(body)
    way = rng.randrange(3)
    if way == 0:
        lines.append(b"content-length: %d" % len(body))
        wire = body
    elif way == 1:
        lines.append(b"transfer-encoding: chunked")
        wire = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in _cut(rng, body) if piece)
        wire += b"0\r\n" + (b"x-trailer: yes\r\n" if rng.random() < 0.2 else b"") + b"\r\n"
    else:
        wire = body
    interim = b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" if rng.random() < 0.1 else b""
    return interim + b"\r\n".join(lines) + b"\r\n\r\n", wire, way == 2


def _mangled(rng: random.Random, head: bytes, data: bytes) -> tuple[str, bytes]:
    """Spoil an answer in one way."""
    number = rng.randrange(len(data) + 1)
    early = rng.randrange(len(head) + 1)
    ways: dict[str, bytes] = {
        "cut": data[:number],
        "cut in head": data[:early],
        "garbage": data[:number] + rng.randbytes(rng.randrange(1, 60)) + data[number:],
        "garbage in head": data[:early] + rng.randbytes(rng.randrange(1, 9)) + data[early:],
        "flipped": data[:early] + bytes([rng.randrange(256)]) + data[early + 1 :],
        "lost": data[:early] + data[early + rng.randrange(1, 9) :],
        "doubled": data + data,
        "long header": data.replace(b"\r\n", b"\r\nx-long: " + b"y" * 150_000 + b"\r\n", 1),
        "many headers": data.replace(b"\r\n", b"\r\n" + b"x: y\r\n" * 400, 1),
        "two lengths": data.replace(b"\r\n", b"\r\ncontent-length: 5\r\n", 1),
        "wrong length": data.replace(b"content-length: ", b"content-length: 9"),
        "huge length": data.replace(b"content-length: ", b"content-length: 99999999999999999999"),
        "negative": data.replace(b"content-length: ", b"content-length: -"),
        "both": data.replace(b"\r\n", b"\r\ntransfer-encoding: chunked\r\n", 1),
        "other coding": data.replace(b"\r\n", b"\r\ntransfer-encoding: br, x\r\n", 1),
        "no line ends": data.replace(b"\r\n", b" "),
        "bare line feeds": data.replace(b"\r\n", b"\n"),
        "interim": b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" * rng.randrange(1, 200) + data,
        "upgrade": b"HTTP/1.1 101 Switch\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n" + data,
        "not gzip": data.replace(b"\r\n", b"\r\ncontent-encoding: gzip\r\n", 1),
        "version": data.replace(b"HTTP/1.1", rng.choice([b"HTTP/2.0", b"HTTP/0.9", b"ICY", b"HTTPS/1.1"]), 1),
        "nothing": b"",
    }
    name = rng.choice(list(ways))
    return name, ways[name]


def _endless(rng: random.Random) -> bytes:
    return rng.choice(
        [
            b"x" * 30_000,
            b"x-more: y\r\n" * 2_000,
            b"HTTP/1.1 100 Continue\r\n\r\n" * 500,
            b"1;" + b"x" * 30_000,
            b"1\r\nx\r\n" * 4_000,
            b"data: x\n" * 3_000,
            b"0" * 20_000,
        ]
    )


def _cut(rng: random.Random, data: bytes) -> list[bytes]:
    """Cut into a few pieces, anywhere."""
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
