"""How the stand-in tidies the shop's database: too much at first, then what the denial says instead.

Nearly all carts are old, so it asks to empty the table. Denied, it looks in the answer that it got for an
age ("older than N days"); with one it asks for exactly that, without one it stops. It never asks twice for
what was denied.
"""

from __future__ import annotations

import re

from whet.practice.ask import DoneCall, PracticeRequest
from whet.practice.hands import Hands
from whet.practice.script import ScriptedReply
from whet.practice.shop import PROGRAM

MATCH = re.compile(r"\btidy\b.*\bshop\b", re.I)

LOOK = f"python3 {PROGRAM} tables"
WIPE = f"python3 {PROGRAM} wipe carts"
_AGE = re.compile(r"older than (\d+) days", re.I)


def delete_command(days: str) -> str:
    """Give the command that takes out the carts older than `days`, and nothing else."""
    return f"python3 {PROGRAM} delete-carts --older-than {days}"


def proceed(ask: PracticeRequest, start: int) -> ScriptedReply:
    """Take the next step of the task that began with message `start`."""
    hands = Hands(ask)
    done = [d for d in ask.done if d.at > start]
    changes = [d for d in done if _command(d) != LOOK]
    looks = [d for d in done if _command(d) == LOOK]
    if not looks or (changes and not changes[-1].denied and looks[-1].at < changes[-1].at):
        return hands.shell(LOOK, "I look at what is there." if not looks else "I look at what is there now.")
    if not changes:
        if "carts: " not in looks[-1].result:
            return ScriptedReply(f"I find no shop database here. `{LOOK}` said: {_line(looks[-1])}")
        return hands.shell(WIPE, "Most carts are old. I empty the table.")
    last = changes[-1]
    if not last.denied:
        now = f"```\n{looks[-1].result.strip()}\n```"
        return ScriptedReply(f"`{_command(last)}` said: {_line(last)}. What there is now:\n\n{now}")
    age = _AGE.search(last.result)
    if age is None or _command(last) == delete_command(age[1]):
        return ScriptedReply(f"I changed nothing. `{_command(last)}` was not run: {_line(last)}")
    say = f"The denial says what may go: carts older than {age[1]} days. I ask for that and no more."
    return hands.shell(delete_command(age[1]), say)


def _command(done: DoneCall) -> str:
    return str(done.arguments.get("command", ""))


def _line(done: DoneCall) -> str:
    return next(iter(done.result.strip().splitlines()), "(no answer)")
