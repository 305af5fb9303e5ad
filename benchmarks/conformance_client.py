"""Whet as the client that the MCP conformance suite starts: `python -m benchmarks.conformance_client URL`.

It does what a person would: reach the server, call each tool, and log in where an error says so. The page of
the authorization server is opened at once, and questions are answered by what is offered first.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx2

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.contract.errors import ToolError, WhetError
from whet.mcp.challenge import read_challenge
from whet.mcp.login import read_tokens, write_tokens
from whet.mcp.oauth import Client, Earlier, log_in
from whet.mcp.remote import Remote, RemoteParts
from whet.mcp.server_requests import CallPerson
from whet.tools.guardian import Guardian

_DOCUMENT = "https://conformance-test.local/client-metadata.json"
_MAX_TRIES = 6
_ARGUMENTS = {"a": 1, "b": 2}


async def _browse(address: str) -> str:
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, timeout=30) as http:
        return (await http.get(address)).text


async def _first(_question: str, choices: Sequence[str]) -> str:
    return choices[0]


async def _login(home: Home, url: str) -> bool:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    client = Client(given.get("client_id", ""), given.get("client_secret", ""), document=_DOCUMENT)
    before = read_tokens(home, "it", url)
    earlier = Earlier(read_challenge(home, "it", url), before.rights if before else ())
    pages: list[asyncio.Task[str]] = []

    def show(address: str) -> None:
        pages.append(asyncio.create_task(_browse(address)))

    tokens = await log_in(url, client, show, SystemClock().unix_ms, 20, earlier)
    await asyncio.gather(*pages, return_exceptions=True)
    if tokens:
        write_tokens(home, "it", tokens)
    return tokens is not None


async def _use(home: Home, url: str) -> None:
    way = RemoteParts(home, {}, SystemClock(), Guardian())
    remote = Remote("it", McpServerSettings(url=url), way, print, lambda _catalogue: None)
    try:
        for tool in (await remote.fetch_catalogue()).tools:
            wanted = tool["inputSchema"].get("properties", {})
            arguments = {key: value for key, value in _ARGUMENTS.items() if key in wanted}
            print(await remote.call(tool["name"], arguments, None, CallPerson("s", _first)))
    finally:
        await remote.aclose()


async def main(url: str) -> None:
    """Use the server, logging in as often as its errors ask for it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for _ in range(_MAX_TRIES):
            try:
                return await _use(home, url)
            except ToolError as error:
                print(error.message, "|", error.hint)
                if "whet mcp login" not in error.hint or not await _login(home, url):
                    return


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except WhetError as error:
        print(error.message)
