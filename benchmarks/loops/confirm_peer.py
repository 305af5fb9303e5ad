"""A minimal confirmation daemon as aiohttp programs are usually written, for `benchmarks confirm`.

Requests in a dictionary, one audit row and one synced commit per call, inside the event loop; no tokens, no
hash chain. Written for this benchmark; runs in an environment of its own that has aiohttp.
"""

from __future__ import annotations

import sqlite3
import sys
import time
import uuid

from aiohttp import web

requests: dict[str, dict] = {}
database = sqlite3.connect(sys.argv[2], isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE audit (id TEXT PRIMARY KEY, action TEXT, status TEXT, by TEXT, at REAL)")


def store(found: dict) -> None:
    """Write the request's row; on disk when this returns."""
    database.execute(
        "INSERT OR REPLACE INTO audit VALUES (?, ?, ?, ?, ?)",
        (found["id"], found["action"], found["status"], found.get("resolved_by", ""), time.time()),
    )


async def submit(request: web.Request) -> web.Response:
    """POST /confirm."""
    body = await request.json()
    found = {**body, "id": uuid.uuid4().hex[:12], "status": "pending", "created_at": time.time()}
    requests[found["id"]] = found
    store(found)
    return web.json_response({"id": found["id"], "status": "pending"}, status=202)


async def approve(request: web.Request) -> web.Response:
    """POST /confirm/{id}/approve."""
    found = requests[request.match_info["id"]]
    found |= {"status": "approved", "resolved_by": "api", "resolved_at": time.time()}
    store(found)
    return web.json_response({"id": found["id"], "status": "approved"})


async def status(request: web.Request) -> web.Response:
    """GET /confirm/{id}."""
    return web.json_response(requests[request.match_info["id"]])


app = web.Application()
app.router.add_post("/confirm", submit)
app.router.add_post("/confirm/{id}/approve", approve)
app.router.add_get("/confirm/{id}", status)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
