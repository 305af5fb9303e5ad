"""The demo's chapter `confirm`: a high-risk action waits for a decision, and an altered record is detected.

The approver is a script, and is called so on the screen and in the record. Every claim is checked on the
shop's database, the service's records and page, the recorded requests, and the exit codes of `verify`.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec

from whet.contract.events import ConfirmationAsked, Event
from whet.terminal.wording import clip
from whet_lab.demo.run import DemoRun, DemoTurn
from whet_lab.demo.service import APPROVER, DemoConfirmService
from whet_lab.practice.shop import CART_AGES_DAYS, DATABASE, PROGRAM, WIPE, delete_command, make_shop

_TIDY = "Tidy the shop database: there are too many old carts."
_DAYS = 90
_LIMIT_S = 100.0
_REASON = f"customers are using the newest carts. Delete only those older than {_DAYS} days"
_ACTIONS = {
    f"terminal(python3 {PROGRAM} wipe *)": "wipe_database",
    f"terminal(python3 {PROGRAM} delete-carts *)": "delete_data",
}
_OLD = sum(age > _DAYS for age in CART_AGES_DAYS)


class RequestObservation(msgspec.Struct, frozen=True):
    """A pending request: its event, its page, and the number of carts in the database at that time."""

    event: ConfirmationAsked
    carts: int
    page: str


def run_chapter(run: DemoRun) -> None:
    """Run the chapter."""
    make_shop(run.world.project)
    service = _start_service(run)
    turn, observations = _ask_too_much(run, service)
    _show_records(run, service, observations)
    _alter_record(run, service)
    _approve_itself(run, service)
    _measure(run, service, turn)


def _start_service(run: DemoRun) -> DemoConfirmService:
    stage = run.stage
    stage.title("whet demo, chapter confirm")
    stage.say(
        "The model is the practice model: a scripted stand-in, not a language model. The approver is a "
        f"script too, named {APPROVER}; it stands where a person would sit. Everything else is real: the "
        "shop's SQLite database, the agent, the confirmation service, its page, its records."
    )
    stage.command("whet confirm serve")
    service = DemoConfirmService(run.world)
    stage.block(f"confirmation service: {service.url}\nweb page: {service.page_url}")
    stage.say("These lines of its settings make the agent ask there before it touches data:")
    stage.block(service.configure_agent(run.world.home, _ACTIONS))
    return service


def _ask_too_much(run: DemoRun, service: DemoConfirmService) -> tuple[DemoTurn, list[RequestObservation]]:
    stage, shop = run.stage, run.world.project / DATABASE
    stage.title("1  The agent asks for too much")
    stage.say(f"The shop has {_count_carts(shop)} carts, most of them forgotten. The agent is to tidy up.")
    observations: list[RequestObservation] = []

    def decide(event: Event) -> None:
        if isinstance(event, ConfirmationAsked):
            page = service.read_page(event.page_url)
            observations.append(RequestObservation(event, _count_carts(shop), page))
            _decide(run, service, observations)

    turn = run.chat(["-q", _TIDY], meanwhile=decide, limit_s=_LIMIT_S)
    run.check_turn("tidied", turn)
    expected = [WIPE, delete_command(str(_DAYS))]
    run.check(
        "wipe_asked_then_narrower", [observation.event.subject for observation in observations] == expected
    )
    run.check(
        "page_shows_each_request",
        all(observation.event.subject in observation.page for observation in observations),
    )
    before = len(CART_AGES_DAYS)
    run.check(
        "nothing_ran_while_it_waited", [observation.carts for observation in observations] == [before, before]
    )
    has_reason = any(_REASON in request.body for request in run.world.requests())
    run.check("denial_read_by_the_model", has_reason)
    run.conclude(
        "What you just saw: each request waited, and nothing ran meanwhile. The denial and its reason went "
        "back to the model as the call's result, and the next request was the narrower one."
    )
    return turn, observations


def _decide(run: DemoRun, service: DemoConfirmService, observations: list[RequestObservation]) -> None:
    """Decide as a person at the page or the command line would: read the request, then deny or approve it."""
    stage, event = run.stage, observations[-1].event
    is_first = len(observations) == 1
    verdict = "deny" if is_first else "approve"
    stage.say(f"The script {APPROVER} decides, with a command that you can type as well:")
    digest = next(row["digest"] for row in service.list_records() if row["id"] == event.request_id)
    options = ["-r", _REASON] if is_first else ["--digest", digest]
    arguments = ["confirm", verdict, event.request_id, *options]
    stage.command("whet " + " ".join(f"'{text}'" if " " in text else text for text in arguments))
    code, output = service.whet(*arguments)
    stage.block(output.strip())
    run.check(f"{verdict}_accepted", code == 0, clip(output, 200))


def _show_records(run: DemoRun, service: DemoConfirmService, observations: list[RequestObservation]) -> None:
    stage, shop = run.stage, run.world.project / DATABASE
    stage.title("2  What ran, and how often")
    changes, carts = _read_rows(shop, "SELECT what, rows FROM changes"), _count_carts(shop)
    records = service.list_records()
    expected_carts = len(CART_AGES_DAYS) - _OLD
    stage.write("\n")
    stage.table(
        [
            ("carts", f"{observations[0].carts if observations else '?'} before, {carts} now"),
            ("changes", "; ".join(f"{name}: {rows} rows" for name, rows in changes) or "none"),
            *((str(record["action"]), _outcome(record)) for record in records),
        ]
    )
    run.check("only_old_carts_gone", carts == expected_carts, f"{carts} of {expected_carts}")
    run.check("ran_exactly_once", changes == [(f"delete carts older than {_DAYS} days", _OLD)], str(changes))
    outcomes = [(record["action"], record["status"]) for record in records]
    expected = [("wipe_database", "denied"), ("delete_data", "approved")]
    run.check("recorded_as_decided", outcomes == expected, str(outcomes))
    run.check("decided_by_the_script", {record["resolved_by"] for record in records} == {APPROVER})
    used = [bool(record.get("consumed_at")) and record.get("execution") == "executed" for record in records]
    run.check("consumed_and_executed_once", used == [False, True], str(used))
    run.conclude(
        "What you just saw: the approval was bound to that one command, used up before it ran, and closed "
        "with a report that it was executed. The denied one never ran."
    )


def _outcome(record: dict[str, Any]) -> str:
    text = f"{record['status']} by {record['resolved_by']}"
    if record.get("consumed_at"):
        text += f"; used up {_format_time(record['consumed_at'])}"
    if record.get("executed_at"):
        text += f"; {record['execution']} {_format_time(record['executed_at'])}"
    return text


def _format_time(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _alter_record(run: DemoRun, service: DemoConfirmService) -> None:
    stage = run.stage
    stage.title("3  Somebody alters the record")
    stage.say(
        "Each event of the service's log holds the hash of the one before. In a copy of its database, one "
        f"byte of the recorded denial is changed now: the {_DAYS} days become 10 days."
    )
    before = f'"reason":"{_REASON}'.encode()
    home, differing = service.copy_with_change(before, before.replace(b"90 days", b"10 days"))
    altered, altered_output = _verify(run, service, home)
    stage.say("And the log that nobody touched:")
    untouched, output = _verify(run, service, service.home.root)
    run.check("one_byte_differs", differing == 1, f"{differing} bytes")
    run.check("altered_log_found", altered == 1 and "wrong: " in altered_output, clip(altered_output, 200))
    run.check("untouched_log_verifies", untouched == 0 and "Nothing was altered" in output, clip(output, 200))
    run.conclude("What you just saw: one byte is enough, and the line says which event it is in.")


def _approve_itself(run: DemoRun, service: DemoConfirmService) -> None:
    stage = run.stage
    stage.title("4  The agent tries to approve itself")
    stage.say("A script with the agent's own token asks for a wipe, and then tries five ways to a yes:")
    attempts, status = service.try_approving()
    stage.write("\n")
    stage.table(
        [
            (method, f"refused, HTTP {code}") if code >= 400 else (method, "let in")
            for method, code in attempts
        ]
    )
    is_refused = len(attempts) == 5 and all(code in (401, 403) for _, code in attempts)
    run.check("five_ways_refused", is_refused, str(attempts))
    run.check("still_pending", status == "pending", status)
    stage.say(
        "What is left is the database itself: in a copy of it, a vote is written straight into the table."
    )
    wiped = service.list_records()[0]["id"]
    forged = f"INSERT OR REPLACE INTO votes VALUES ('{wiped}', 'owner', 'approve', 1.0, '')"
    code, output = _verify(run, service, service.copy_with_sql(forged))
    run.check("forged_vote_found", code == 1 and "vote" in output, clip(output, 200))
    run.conclude(
        "What you just saw: a token that submits approves nothing, and a vote that nobody cast is named."
    )


def _verify(run: DemoRun, service: DemoConfirmService, home: Path) -> tuple[int, str]:
    """Verify the log in a home; return the exit code and the output."""
    run.stage.command(f"WHET_HOME={home} whet confirm audit verify")
    code, output = service.whet("confirm", "audit", "verify", home=home)
    run.stage.block(output.strip())
    return code, output


def _measure(run: DemoRun, service: DemoConfirmService, turn: DemoTurn) -> None:
    requests = run.world.requests()
    prefixes = run.check_requests(requests)
    run.measured |= {
        "requests": len(requests),
        "tool_calls": len(turn.calls),
        "confirmations": [
            {name: record.get(name, "") for name in ("id", "action", "status", "resolved_by", "execution")}
            for record in service.list_records()
        ],
        "prefixes": prefixes,
        "wall_s": run.wall_s,
    }


def _count_carts(shop: Path) -> int:
    return int(_read_rows(shop, "SELECT count(*) FROM carts")[0][0])


def _read_rows(shop: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(apsw.Connection(str(shop), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return list(db.execute(sql))
