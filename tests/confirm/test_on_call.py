"""On-call rotas: who is on duty, and who is notified next while nobody answers."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.confirm.notify.test_push import ask, change, shown, subscribe, waits
from tests.confirm.running import ManualClock, Running
from tests.confirm.test_audit import look
from tests.confirm.vendors.push import PushServer, press
from whet.contract.errors import ConfigError
from whet_confirm.policy_file import parse_policy
from whet_confirm.requests import find_due_escalations
from whet_confirm.upkeep import Upkeep

ROTA = """
[rotas.night]
people = ["ann", "bob", "carol"]
since = "2026-03-23 09:00"
timezone = "Europe/Berlin"
next_after_s = 600
"""
RULE = '[[rules]]\naction = "*"\neffect = "ask"\ntimeout_s=3600\nescalate_to="night"\nescalate_after=0.1\n'


@pytest.mark.parametrize(
    ("moment", "first"),
    [
        ("2026-03-23 09:00", "ann"),
        ("2026-03-30 08:59", "ann"),  # clocks went forward on 29 March
        ("2026-03-30 09:00", "bob"),
        ("2026-04-06 09:00", "carol"),
        ("2026-04-13 09:00", "ann"),
        ("2026-03-23 08:59", "carol"),  # before the first turn
    ],
)
def test_turns_change_at_a_local_time(tmp_path, moment, first):
    rota = parse_policy(ROTA + RULE, tmp_path / "p.toml").rotas["night"]
    at_s = datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    order = rota.list_from_duty(at_s)
    assert order[0] == first and sorted(order) == ["ann", "bob", "carol"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('["ann", "bob", "carol"]', "[]"), "each person once"),
        (('"carol"', '"ann"'), "each person once"),
        (("600", "29"), "next_after_s"),
        (("2026-03-23 09:00", "Monday"), "is not like 2026-01-05 09:00"),
        (("2026-03-23 09:00", "2026-03-23T09:00+01:00"), "without an offset"),
        (("Europe/Berlin", "Mars/Base"), "time zone"),
        (("[rotas.night]", "[groups]\nnight = []\n[rotas.night]"), "is a group and a rota"),
        (("[rotas.night]", "[rotas.day]"), r"no group 'night' under \[groups\] or \[rotas\]"),
    ],
)
def test_a_broken_rota_says_where(tmp_path, change, says):
    with pytest.raises(ConfigError, match=says):
        parse_policy((ROTA + RULE).replace(*change), tmp_path / "p.toml")


@pytest.mark.slow
def test_the_next_person_is_notified_until_one_answers(tmp_path):
    policy = ROTA + RULE
    clock = ManualClock()
    clock.wall_s = datetime(2026, 3, 31, 12, tzinfo=ZoneInfo("UTC")).timestamp()  # bob's week
    service = Running(tmp_path, private_callbacks=True, clock=clock, policy=policy)
    with PushServer() as push, service as server:
        push.clock = lambda: clock.wall_s
        server.agent = server.client("submit", "agent")
        pages = {name: server.signed_in(name) for name in ("ann", "bob", "carol")}
        phones = {name: subscribe(page, push, name) for name, page in pages.items()}
        auditor = server.client("audit", "auditor")
        bobs_id = server.rows("SELECT id FROM devices WHERE label = 'bob'")[0][0]
        quiet = {"do": "quiet", "device": bobs_id, "timezone": "Europe/Berlin"}
        assert change(pages["bob"], **quiet, quiet="13:00-16:00").status_code == 303  # it is 14:00
        request = ask(server, timeout_seconds=3600)
        for name in ("ann", "carol"):
            shown(push, phones[name], request)
        assert waits(server, request)["bob"] == "waits: quiet hours until 16:00 Europe/Berlin"
        waits_s = {"bob": 361, "carol": 600, "ann": 600}
        for name, wait_s in waits_s.items():
            for phone in phones.values():
                phone.shown.clear()
            clock.pass_by(wait_s)
            message = shown(push, phones[name], request)
            assert message["title"].startswith("Still unanswered: approval needed")
            assert [other for other, phone in phones.items() if phone.shown] == [name]
            record = auditor.get(f"/confirm/{request}").json()
            assert record["on_call"] == name and ("escalated_at" in record) == (name == "ann")
        clock.pass_by(700)
        assert not server.read(lambda db: find_due_escalations(db, clock.wall_s, 9))
        assert len(server.rows("SELECT 1 FROM events WHERE kind = 'escalated'")) == 3
        assert "On call now: <b>ann</b>" in pages["carol"].get(f"/r/{request}").text
        assert press(pages["ann"], phones["ann"].shown[request], "approve").status_code == 200
        assert "on_call" not in auditor.get(f"/confirm/{request}").json()
    assert look(server.paths.database, server.paths).is_good


@pytest.mark.slow
def test_a_stand_in_answers_for_a_person_who_is_away_and_nobody_for_their_own(tmp_path):
    policy = ROTA.replace('"carol"', '"agent"') + RULE
    clock = ManualClock()
    clock.wall_s = datetime(2026, 3, 31, 12, tzinfo=ZoneInfo("UTC")).timestamp()
    with Running(tmp_path, clock=clock, policy=policy, upkeep=False) as server:
        server.agent = server.client("submit", "agent")
        server.people = {name: server.client("approve", name) for name in ("ann", "bob", "dave")}
        body = {"stand_in": "dave", "until": clock.wall_s + 86_400}
        assert server.people["bob"].post("/delegations", json=body).status_code == 201
        ask(server, timeout_seconds=3600)
        for wait_s in (361, 600, 600, 600):
            clock.pass_by(wait_s)
            server.run(Upkeep(server.service).tick())
        rows = server.rows("SELECT json_extract(data, '$.person') FROM events WHERE kind = 'escalated'")
        assert rows == [("dave",), ("ann",)]
