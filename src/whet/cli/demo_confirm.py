"""The demo's chapter `confirm`: a high-risk action waits for a decision, and an altered record is found.

The approver is a script, and is called so on the screen and in the record. What is claimed is checked on the
shop's database, the service's records and page, the recorded requests, and the exit codes of `verify`.
"""

from __future__ import annotations

import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import apsw
import msgspec

from whet.cli.demo_browser import browser, find_program
from whet.cli.demo_play import DemoRun, DemoTurn
from whet.cli.demo_service import APPROVER, SIGNED_ACTION, DemoConfirmService
from whet.cli.wording import clip
from whet.contract.errors import Unavailable
from whet.contract.events import ConfirmationAsked, Event
from whet.practice.shop import CART_AGES_DAYS, DATABASE, PROGRAM, WIPE, delete_command, make_shop

_TIDY = "Tidy the shop database: there are too many old carts."
_DAYS = 90
_LIMIT_S = 100.0
_REASON = f"customers are using the newest carts. Delete only those older than {_DAYS} days"
_ACTIONS = {
    f"terminal(python3 {PROGRAM} wipe *)": "wipe_database",
    f"terminal(python3 {PROGRAM} delete-carts *)": "delete_data",
}
_OLD = sum(age > _DAYS for age in CART_AGES_DAYS)


class Seen(msgspec.Struct, frozen=True):
    """What a request looked like while it waited: the event, the carts in the database, its page."""

    asked: ConfirmationAsked
    carts: int
    page: str


def play(play: DemoRun) -> None:
    """Tell the chapter."""
    make_shop(play.world.project)
    service = _open(play)
    turn, seen = _ask(play, service)
    _records(play, service, seen)
    _alter(play, service)
    _approve_itself(play, service)
    _sign(play, service)
    _measure(play, service, turn)


def _open(play: DemoRun) -> DemoConfirmService:
    stage = play.stage
    stage.title("whet demo, chapter confirm")
    stage.say(
        "The model is the practice model: a scripted stand-in, not a language model. The approver is a "
        f"script too, named {APPROVER}; it stands where a person would sit. Everything else is real: the "
        "shop's SQLite database, the agent, the confirmation service, its page, its records."
    )
    stage.command("whet confirm serve")
    service = DemoConfirmService(play.world, passkeys=not _missing())
    stage.block(f"confirmation service: {service.url}\nweb page: {service.page_url}")
    stage.say("These lines of its settings make the agent ask there before it touches data:")
    stage.block(service.furnish(play.world.home, _ACTIONS))
    return service


def _ask(play: DemoRun, service: DemoConfirmService) -> tuple[DemoTurn, list[Seen]]:
    stage, shop = play.stage, play.world.project / DATABASE
    stage.title("1  The agent asks for too much")
    stage.say(f"The shop has {_carts(shop)} carts, most of them forgotten. The agent is to tidy up.")
    seen: list[Seen] = []

    def decide(event: Event) -> None:
        if isinstance(event, ConfirmationAsked):
            page = service.page(event.page_url)
            seen.append(Seen(event, _carts(shop), page))
            _decide(play, service, seen)

    turn = play.chat(["-q", _TIDY], meanwhile=decide, limit_s=_LIMIT_S)
    play.answered("tidied", turn)
    wanted = [WIPE, delete_command(str(_DAYS))]
    play.check("wipe_asked_then_narrower", [one.asked.subject for one in seen] == wanted)
    play.check("page_shows_each_request", all(one.asked.subject in one.page for one in seen))
    before = len(CART_AGES_DAYS)
    play.check("nothing_ran_while_it_waited", [one.carts for one in seen] == [before, before])
    told = any(_REASON in request.body for request in play.world.requests())
    play.check("denial_read_by_the_model", told)
    play.conclude(
        "What you just saw: each request waited, and nothing ran meanwhile. The denial and its reason went "
        "back to the model as the call's result, and the next request was the narrower one."
    )
    return turn, seen


def _decide(play: DemoRun, service: DemoConfirmService, seen: list[Seen]) -> None:
    """Do what a person at the page or the command line would do: look, then say no or yes."""
    stage, asked = play.stage, seen[-1].asked
    is_first = len(seen) == 1
    verdict = "deny" if is_first else "approve"
    stage.say(f"The script {APPROVER} decides, with a command that you can type as well:")
    why = ["-r", _REASON] if is_first else []
    arguments = ["confirm", verdict, asked.request_id, *why]
    stage.command("whet " + " ".join(f"'{text}'" if " " in text else text for text in arguments))
    code, said = service.whet(*arguments)
    stage.block(said.strip())
    play.check(f"{verdict}_accepted", code == 0, clip(said, 200))


def _records(play: DemoRun, service: DemoConfirmService, seen: list[Seen]) -> None:
    stage, shop = play.stage, play.world.project / DATABASE
    stage.title("2  What ran, and how often")
    changes, carts = _rows(shop, "SELECT what, rows FROM changes"), _carts(shop)
    records = service.records()
    left = len(CART_AGES_DAYS) - _OLD
    stage.write("\n")
    stage.table(
        [
            ("carts", f"{seen[0].carts if seen else '?'} before, {carts} now"),
            ("changes", "; ".join(f"{what}: {rows} rows" for what, rows in changes) or "none"),
            *((str(one["action"]), _outcome(one)) for one in records),
        ]
    )
    play.check("only_old_carts_gone", carts == left, f"{carts} of {left}")
    play.check("ran_exactly_once", changes == [(f"delete carts older than {_DAYS} days", _OLD)], str(changes))
    outcomes = [(one["action"], one["status"]) for one in records]
    wanted = [("wipe_database", "denied"), ("delete_data", "approved")]
    play.check("recorded_as_decided", outcomes == wanted, str(outcomes))
    play.check("decided_by_the_script", {one["resolved_by"] for one in records} == {APPROVER})
    used = [bool(one.get("consumed_at")) and one.get("execution") == "executed" for one in records]
    play.check("consumed_and_executed_once", used == [False, True], str(used))
    play.conclude(
        "What you just saw: the approval was bound to that one command, used up before it ran, and closed "
        "with a report that it was executed. The denied one never ran."
    )


def _outcome(record: dict[str, Any]) -> str:
    text = f"{record['status']} by {record['resolved_by']}"
    if record.get("consumed_at"):
        text += f"; used up {_clock(record['consumed_at'])}"
    if record.get("executed_at"):
        text += f"; {record['execution']} {_clock(record['executed_at'])}"
    return text


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _alter(play: DemoRun, service: DemoConfirmService) -> None:
    stage = play.stage
    stage.title("3  Somebody alters the record")
    stage.say(
        "Each event of the service's log holds the hash of the one before. In a copy of its database, one "
        f"byte of the recorded denial is changed now: the {_DAYS} days become 10 days."
    )
    before = f'"reason":"{_REASON}'.encode()
    home, differing = service.altered_copy(before, before.replace(b"90 days", b"10 days"))
    altered, said_altered = _verify(play, service, home)
    stage.say("And the log that nobody touched:")
    untouched, said = _verify(play, service, service.home.root)
    play.check("one_byte_differs", differing == 1, f"{differing} bytes")
    play.check("altered_log_found", altered == 1 and "wrong: " in said_altered, clip(said_altered, 200))
    play.check("untouched_log_verifies", untouched == 0 and "Nothing was altered" in said, clip(said, 200))
    play.conclude("What you just saw: one byte is enough, and the line says which event it is in.")


def _approve_itself(play: DemoRun, service: DemoConfirmService) -> None:
    stage = play.stage
    stage.title("4  The agent tries to approve itself")
    stage.say("A script with the agent's own token asks for a wipe, and then tries five ways to a yes:")
    tried, status = service.attempts()
    stage.write("\n")
    stage.table([(way, f"refused, HTTP {code}") if code >= 400 else (way, "let in") for way, code in tried])
    is_refused = len(tried) == 5 and all(code in (401, 403) for _, code in tried)
    play.check("five_ways_refused", is_refused, str(tried))
    play.check("still_pending", status == "pending", status)
    stage.say(
        "What is left is the database itself: in a copy of it, a vote is written straight into the table."
    )
    wiped = service.records()[0]["id"]
    forged = f"INSERT OR REPLACE INTO votes VALUES ('{wiped}', 'owner', 'approve', 1.0, '')"
    code, said = _verify(play, service, service.forged_copy(forged))
    play.check("forged_vote_found", code == 1 and "vote" in said, clip(said, 200))
    play.conclude(
        "What you just saw: a token that submits approves nothing, and a vote that nobody cast is named."
    )


def _verify(play: DemoRun, service: DemoConfirmService, home: Path) -> tuple[int, str]:
    """Check the log in a home, and give the exit code and what was said."""
    play.stage.command(f"WHET_HOME={home} whet confirm audit verify")
    code, said = service.whet("confirm", "audit", "verify", home=home)
    play.stage.block(said.strip())
    return code, said


def _missing() -> str:
    """Say what is not here of what signing takes."""
    if not find_program():
        return "Chromium is not installed (apt-get install chromium)"
    return (
        "" if find_spec("webauthn") else "passkeys are an extra that is not installed (whet-agent[passkeys])"
    )


def _sign(play: DemoRun, service: DemoConfirmService) -> None:
    stage = play.stage
    stage.title("5  A person signs")
    if missing := _missing():
        stage.say(f"Left out: {missing}. A real browser would sign here with a virtual security key.")
        return
    stage.say(
        f"A rule of this service wants a passkey for {SIGNED_ACTION}. A real Chromium signs in on the page,"
        " with a virtual security key in place of a finger on a sensor, and that signs the request's digest."
    )
    request_id = service.submit(SIGNED_ACTION, "Rotate the signing keys of the shop")
    code, said = service.whet("confirm", "approve", request_id)
    stage.command(f"whet confirm approve {request_id}")
    stage.block(said.strip())
    play.check("unsigned_yes_refused", code != 0 and "passkey" in said, clip(said, 200))
    try:
        with browser(find_program(), play.world.folder / "chromium") as page:
            service.approve_signed(page, request_id)
    except Unavailable as error:
        stage.say(f"Left out from here on: {error.message}.")
        return
    record = next(one for one in service.records() if one["id"] == request_id)
    stage.say(f"On the page: {_outcome(record)}.")
    is_signed = (record["status"], record["resolved_by"]) == ("approved", APPROVER)
    play.check("approved_by_passkey", is_signed, _outcome(record))
    code, said = _verify(play, service, service.home.root)
    play.check("signature_verifies", code == 0, clip(said, 200))
    stage.say("In a copy, the signature is taken out of that vote:")
    unsigned = "UPDATE events SET data = json_remove(data, '$.proof') WHERE kind = 'vote'"
    code, said = _verify(play, service, service.forged_copy(unsigned))
    play.check("vote_without_signature_found", code == 1 and "signature" in said, clip(said, 300))
    play.conclude(
        "What you just saw: the yes carries a signature of the person's own key over this very request, and"
        " who checks the log checks the person, not a row."
    )


def _measure(play: DemoRun, service: DemoConfirmService, turn: DemoTurn) -> None:
    requests = play.world.requests()
    held = play.requests_hold(requests)
    play.measured |= {
        "requests": len(requests),
        "tool_calls": len(turn.calls),
        "confirmations": [
            {name: one.get(name, "") for name in ("id", "action", "status", "resolved_by", "execution")}
            for one in service.records()
        ],
        "prefixes": held,
        "wall_s": play.wall_s,
    }


def _carts(shop: Path) -> int:
    return int(_rows(shop, "SELECT count(*) FROM carts")[0][0])


def _rows(shop: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(apsw.Connection(str(shop), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return list(db.execute(sql))
