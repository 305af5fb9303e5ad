"""The contract of a public reference daemon, as an aiohttp program of one file, for `benchmarks confirm`.

It checks the same fields, keeps the same row on disk with one synced commit per call inside the event loop,
and answers with the contract's members; it has no tokens, hash chain, digest or waiting. The journal is WAL,
which costs a quarter of SQLite's own default (delete).

confirm_peer.py PORT DATABASE JOURNAL

Written for this benchmark from the contract; runs in an environment of its own that has aiohttp.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
import uuid
from collections import deque
from datetime import UTC, datetime

from aiohttp import web

RATE_LIMIT, WINDOW_S = 100_000_000, 3600.0
requests: dict[str, dict] = {}
whitelist: set[tuple[str, str]] = set()
submissions: dict[str, deque[float]] = {}
database = sqlite3.connect(sys.argv[2], isolation_level=None)
database.execute(f"PRAGMA journal_mode={sys.argv[3]}")
database.execute("PRAGMA synchronous=FULL")
database.execute(
    "CREATE TABLE audit (id TEXT PRIMARY KEY, action TEXT, description TEXT, details TEXT, requester TEXT,"
    " session_key TEXT, status TEXT, resolved_by TEXT, created_at REAL, resolved_at REAL,"
    " timeout_seconds INTEGER)"
)


def store(row: dict) -> None:
    """Write the request's row; on disk when this returns."""
    database.execute(
        "INSERT OR REPLACE INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row["id"], row["action"], row["description"], json.dumps(row["details"]), row["requester"],
            row["session_key"], row["status"], row["resolved_by"], row["created_at"], row["resolved_at"],
            row["timeout_seconds"],
        ),
    )  # fmt: skip


def is_over_limit(action: str, now_s: float) -> bool:
    """Count a submission; return whether there were too many of its action within the window."""
    times = submissions.setdefault(action, deque())
    while times and times[0] <= now_s - WINDOW_S:
        times.popleft()
    if len(times) >= RATE_LIMIT:
        return True
    times.append(now_s)
    return False


def iso(at_s: float | None) -> str | None:
    """Format a time."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat()


async def submit(request: web.Request) -> web.Response:
    """POST /confirm."""
    try:
        body = await request.json()
    except ValueError:
        return web.json_response({"error": "Invalid JSON body"}, status=400)
    action, description = body.get("action", "").strip(), body.get("description", "").strip()
    if not action or not description:
        return web.json_response({"error": "action and description are required"}, status=400)
    session_key = body.get("session_key", "")
    if (action, session_key) in whitelist:
        answer = {
            "id": uuid.uuid4().hex[:8],
            "action": action,
            "status": "auto_approved",
            "message": "whitelisted",
        }
        return web.json_response(answer)
    now_s = time.time()
    if is_over_limit(action, now_s):
        more = {"error": "rate limit", "remaining": 0, "window_seconds": 3600}
        return web.json_response(more, status=429)
    try:
        timeout_s = max(30, min(3600, int(body.get("timeout_seconds", 300))))
    except (TypeError, ValueError):
        timeout_s = 300
    row = {
        "id": uuid.uuid4().hex[:12],
        "action": action,
        "description": description,
        "details": body.get("details") or {},
        "requester": body.get("requester", "agent"),
        "session_key": session_key,
        "status": "pending",
        "resolved_by": "",
        "resolved_at": None,
        "created_at": now_s,
        "timeout_seconds": timeout_s,
    }
    requests[row["id"]] = row
    store(row)
    answer = {
        "id": row["id"],
        "action": action,
        "status": "pending",
        "timeout_seconds": timeout_s,
        "message": "waiting for a person to decide",
        "approve_url": f"/confirm/{row['id']}/approve",
        "deny_url": f"/confirm/{row['id']}/deny",
    }
    return web.json_response(answer, status=202)


async def approve(request: web.Request) -> web.Response:
    """POST /confirm/{id}/approve."""
    row = requests.get(request.match_info["id"])
    if row is None:
        return web.json_response({"error": "no such request"}, status=404)
    if row["status"] != "pending":
        return web.json_response({"error": "not pending", "status": row["status"]}, status=409)
    try:
        approver = (await request.json()).get("approver", "api")
    except ValueError:
        approver = "api"
    row |= {"status": "approved", "resolved_by": approver, "resolved_at": time.time()}
    store(row)
    names = ("id", "action", "status", "resolved_by", "resolved_at")
    return web.json_response({name: row[name] for name in names})


async def status(request: web.Request) -> web.Response:
    """GET /confirm/{id}."""
    row = requests.get(request.match_info["id"])
    if row is None:
        return web.json_response({"error": "no such request"}, status=404)
    if row["status"] == "pending" and time.time() > row["created_at"] + row["timeout_seconds"]:
        row |= {"status": "expired", "resolved_by": "system:timeout", "resolved_at": time.time()}
        store(row)
    times = {"created_at_iso": iso(row["created_at"]), "resolved_at_iso": iso(row["resolved_at"])}
    return web.json_response(row | times)


app = web.Application()
app.router.add_post("/confirm", submit)
app.router.add_post("/confirm/{id}/approve", approve)
app.router.add_get("/confirm/{id}", status)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
