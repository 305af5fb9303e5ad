"""Formats a notice as plain text, for e-mail and other one-way channels, for the log and as fall-back."""

from __future__ import annotations

from whet_confirm.notify.notice import AGENT_MARK, HIDDEN, RequestNotice, agent_lines


def format_title(notice: RequestNotice) -> str:
    """Return the title: the notice's headline and the action's name."""
    return f"{notice.headline}: {notice.action}"


def _risk_text(notice: RequestNotice) -> str:
    parts = ("HIGH" if notice.is_high_risk else "", notice.risk)
    return ". ".join(filter(None, parts)) or "not on the high-risk list"


def format_body(notice: RequestNotice) -> str:
    """Return the service's lines first, then the agent's below a mark, each prefixed with a bar."""
    if notice.is_trial:
        return f"{notice.outcome}\n{notice.requester}: {notice.description}"
    lines = [
        f"Request: {notice.request_id}",
        f"Risk: {_risk_text(notice)}",
        f"Asked by token: {notice.principal or 'nobody (open mode)'}",
    ]
    if notice.is_open:
        lines.append(f"Decide before: {notice.deadline}. Silence is a denial.")
    if notice.warning:
        lines.append(f"{notice.warning}.")
    if notice.is_open and notice.is_hidden:
        lines.append(HIDDEN)
    if notice.progress:
        lines.append(notice.progress)
    if notice.outcome:
        lines.append(notice.outcome)
    if notice.link:
        lines.append(f"Decide here: {notice.link}" if notice.is_open else f"Record: {notice.link}")
    lines += [f"Digest: {notice.digest}", "", AGENT_MARK]
    parts = (
        ("action", notice.action),
        ("requester", notice.requester),
        ("description", notice.description),
        ("details", notice.details),
    )
    for name, text in parts:
        if text:
            lines += [f"| {name}:", agent_lines(text, "|   ")]
    return "\n".join(lines)
