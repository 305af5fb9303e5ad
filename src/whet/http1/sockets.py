"""A TCP connection to a name: its addresses are tried one after the other, a moment apart, and the first that
answers is taken (RFC 8305).

asyncio does the same, but where it is cancelled in the moment in which one has answered, Python 3.11 loses
that socket without closing it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

_NEXT_ADDRESS_S = 0.25
_Found = tuple[int, int, int, str, Any]


async def connected(host: str, port: int) -> socket.socket:
    """Give a connected socket. Raises OSError."""
    found = await _addresses(host, port)
    if len(found) == 1:
        return await _try(found[0])
    errors: list[BaseException] = []
    tries: list[asyncio.Task[socket.socket]] = []
    winner: socket.socket | None = None
    try:
        for address in found:
            tries.append(asyncio.create_task(_try(address)))
            winner = await _first(tries, _NEXT_ADDRESS_S, errors)
            if winner is not None:
                return winner
        winner = await _first(tries, None, errors)
    finally:
        for left in tries:
            left.cancel()
        for late in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(late, socket.socket) and late is not winner:
                late.close()
    if winner is None:
        raise errors[0] if errors else OSError(f"{host} has no address")
    return winner


async def _first(
    tries: list[asyncio.Task[socket.socket]], limit_s: float | None, errors: list[BaseException]
) -> socket.socket | None:
    """Wait for the first that is connected; those that failed are dropped."""
    loop = asyncio.get_running_loop()
    until_s = None if limit_s is None else loop.time() + limit_s
    while tries:
        left_s = None if until_s is None else max(until_s - loop.time(), 0.0)
        done, _ = await asyncio.wait(tries, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return None
        for one in done:
            error = one.exception()
            if error is None:
                return one.result()
            errors.append(error)
            tries.remove(one)
    return None


async def _try(address: _Found) -> socket.socket:
    family, kind, protocol, _, place = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, place)
    except BaseException:
        made.close()
        raise
    return made


async def _addresses(host: str, port: int) -> Sequence[_Found]:
    """Give the addresses of a name, the two families in turn; a number is looked up without a thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[:1]
    except OSError:
        pass
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    first = [one for one in found if one[0] == found[0][0]]
    second = [one for one in found if one[0] != found[0][0]]
    return [one for one in chain.from_iterable(zip_longest(first, second)) if one is not None]
