"""Formats a request of the confirmation service for the terminal: in full, or briefly for a list."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, cast

from whet.contract.texts import short, subject_of
from whet.terminal import output
from whet.terminal.output import style_text
from whet.visible import escape_characters
from whet_confirm.names import GATE_PREFIX

_SUBJECT_CHARS = 120


def describe_status(record: dict[str, Any], now_s: float) -> str:
    """Return the status, and of a pending request the time left and what is missing."""
    if record["status"] != "pending":
        return str(record["status"])
    left_s = max(0, int(record["expires_at"] - now_s))
    missing = f", missing {record['missing']}" if record.get("votes") else ""
    return f"{left_s // 60}:{left_s % 60:02d} left{on_one_line(missing)}"


def risk_word(record: dict[str, Any]) -> str:
    """Return a word for the risk, or an empty string."""
    if record.get("high_risk"):
        return "HIGH RISK"
    return {"dangerous": "DANGEROUS", "unread": "not read"}.get(record.get("risk", {}).get("level", ""), "")


def summarize(record: dict[str, Any]) -> str:
    """Summarise a request on one line. A held tool call begins with its command, path or address."""
    description = " ".join(record["description"].split())
    details: dict[str, Any] = record["details"]
    arguments = details.get("arguments")  # of a gateway, whose details name the server, too
    call_arguments = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else details
    subject = subject_of(call_arguments) if record["action"].startswith(GATE_PREFIX) else ""
    return on_one_line(f"{short(subject, _SUBJECT_CHARS)} ({description})" if subject else description)


def _format_time(at_s: float, now_s: float) -> str:
    """Format a time of day, with the date unless it is today, and how long ago it was."""
    at, now = datetime.fromtimestamp(at_s), datetime.fromtimestamp(now_s)
    shape = "%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S"
    ago = output.age(datetime.fromtimestamp(at_s, UTC).isoformat(), datetime.fromtimestamp(now_s, UTC))
    return f"{at.strftime(shape)} ({ago})"


def local_minute(at_s: float | None) -> str:
    """Format a date and time of day in this machine's time zone, or return an empty string for None."""
    return "" if at_s is None else datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M")


def on_one_line(text: str) -> str:
    """Return a text on one line, with hidden characters as their codes."""
    return escape_characters(text.replace("\n", "⏎"))


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in escape_characters(text).split("\n")]


def _vote_text(vote: dict[str, Any]) -> str:
    word = "approved" if vote["verdict"] == "approve" else "denied"
    reason = f": {vote['reason']}" if vote.get("reason") else ""
    return on_one_line(f"{vote['by']} {word} {_format_time(vote['at'], time.time())}{reason}")


def _delivery_text(row: dict[str, Any]) -> str:
    error = f": {row['error']}" if row.get("error") else f", {row['waits']}" if row.get("waits") else ""
    at_s = row.get("seen_at") or row.get("delivered_at") or row["updated_at"]
    name, at = row.get("label") or row["channel"], _format_time(at_s, time.time())
    return on_one_line(f"{name} {row['kind']} {row['state']} {at}{error}")


def _execution_lines(record: dict[str, Any]) -> list[str]:
    """Return who used an approval, and the reported result."""
    lines: list[str] = []
    if record.get("consumed_at"):
        used = f"{record['consumed_by']}, {_format_time(record['consumed_at'], time.time())}"
        lines.append(f"used by      {on_one_line(used)}")
    if record.get("executed_at"):
        note = f": {record['execution_note']}" if record.get("execution_note") else ""
        result = f"{record['execution']} {_format_time(record['executed_at'], time.time())}{note}"
        lines.append(f"result       {on_one_line(result)}")
    return lines


def describe_request(record: dict[str, Any]) -> list[str]:
    """Return a whole request as lines: what exactly would run, who asked, and how it ended."""
    lines = [
        style_text(escape_characters(record["action"]), "bold")
        + (f"  {risk_word(record)}" if risk_word(record) else ""),
        f"status       {record['status']}"
        + (
            f" by {record['resolved_by']}"
            if record["resolved_by"]
            else f"  ({describe_status(record, time.time())})"
        ),
        f"asked by     {escape_characters(record['requester'])} (token: {record['principal']})",
        f"asked        {_format_time(record['created_at'], time.time())}",
        f"digest       {record['digest']}",
    ]
    if record["session_key"]:
        lines.append(f"session      {on_one_line(record['session_key'])}")
    if record["resolved_at"]:
        lines.insert(4, f"ended        {_format_time(record['resolved_at'], time.time())}")
    if record.get("risk"):
        lines.append(f"risk         {on_one_line(record['risk']['text'])}")
    if record.get("quorum"):
        lines.append(f"it takes     {on_one_line(record['quorum'])}")
    lines += [f"vote         {_vote_text(vote)}" for vote in record.get("votes", [])]
    if "votes" in record and record.get("missing"):
        lines.append(f"missing      {on_one_line(record['missing'])}")
    if record.get("on_call"):
        lines.append(f"on call      {on_one_line(record['on_call'])}")
    if record.get("reason"):
        lines.append(f"reason       {escape_characters(record['reason'])}")
    lines += _execution_lines(record)
    lines += [
        f"may pass     others {on_one_line(offer['text'])} (--for {offer['kind']})"
        for offer in record.get("grants", [])
    ]
    if record.get("grant_id"):
        lines.append(
            f"grant        {record['grant_id']} runs: whet confirm grants --stop {record['grant_id']}"
        )
    lines += [f"told         {_delivery_text(row)}" for row in record.get("deliveries", [])]
    if record.get("unclear"):
        lines.append(f"look closely characters that hide or look like others: {', '.join(record['unclear'])}")
    lines.append("description, written by the agent:")
    lines += _indent(record["description"])
    lines.append("details, exactly as they would run:")
    lines += _indent(json.dumps(record["details"], indent=2, ensure_ascii=False))
    return lines
