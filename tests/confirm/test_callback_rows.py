"""Webhooks as rows and slots: how many at once, when one is tried again, and when it is given up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.confirm.running import Running
from tests.confirm.test_waiting import Receiver, wait_until
from whet.contract.errors import ConfigError
from whet.web.beat import aligned_delay
from whet_confirm.callbacks import (
    POLL_S,
    Callbacks,
    CallbackSlots,
    DueCallback,
    load_secret,
    receiver_of,
    retry_dead_letter,
    signatures,
)
from whet_confirm.http.reading import read_before, read_limit, read_wait_s
from whet_confirm.http.wire import HttpRefusal, header, parse_object, query, read_as


def test_each_receiver_has_two_at_once_and_nobody_more_than_half_of_what_is_free():
    slots = CallbackSlots()
    assert slots.take(1, ("a", "ann")) and slots.take(2, ("a", "ann"))
    assert not slots.take(3, ("a", "ben")), "the receiver has two"
    assert not slots.take(1, ("b", "ben")), "it is under way"
    slots.free(1)
    assert slots.take(3, ("a", "ben")) and not slots.take(4, ("a", "ben"))
    taken = sum(slots.take(number, (f"r{number}", "cat")) for number in range(10, 200))
    assert taken == 63 and not slots.is_full  # 126 were free, of which cat has as many as are left
    others = sum(slots.take(number, (f"r{number}", f"p{number}")) for number in range(200, 400))
    assert others == 63 and slots.is_full
    slots.free(10)
    assert not slots.is_full and not slots.take(500, ("x", "cat")) and slots.take(501, ("x", "new"))


@pytest.mark.parametrize("left_over", [True, False])
async def test_a_look_waits_for_a_slot_only_where_something_is_left_over(left_over):
    slots = CallbackSlots()
    slots.take(1, ("a", "ann"))
    if not left_over:
        await asyncio.sleep(aligned_delay(POLL_S))  # a whole step lies before the next look
    pause = asyncio.ensure_future(slots.wait(left_over))
    await asyncio.sleep(0)
    slots.free(1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert pause.done() == left_over
    pause.cancel()


@pytest.mark.parametrize("steps", range(4))
async def test_who_waits_for_slots_again_and_again_ends_even_if_one_is_freed_just_then(steps):
    slots = CallbackSlots()

    async def wait_for_ever() -> None:
        while True:
            await slots.wait(True)

    slots.take(1, ("a", "ann"))
    waiting = asyncio.ensure_future(wait_for_ever())
    await asyncio.sleep(0)
    slots.free(1)
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.done()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://User:pw@Example.org:8443/x", "example.org:8443"),
        ("http://example.org", "example.org"),
        ("http://[x", ""),
        ("nonsense", ""),
    ],
)
def test_a_receiver_is_a_host_and_its_port(url, name):
    assert receiver_of(url) == name


def test_a_secret_is_made_once_and_is_nobody_elses(tmp_path):
    path = tmp_path / "secret"
    secret = load_secret(path)
    assert secret.startswith("whsec_") and len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert load_secret(path) == secret and path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by others"):
        load_secret(path)


DAY_S = 24 * 3600.0


@pytest.mark.parametrize(
    ("attempts", "age_s", "problem", "is_final", "row"),
    [
        (0, 0, "", True, ("delivered", 1, 0, "")),
        (0, 0, "answered 500", False, ("waiting", 1, 5, "answered 500")),
        (3, 0, "answered 500", False, ("waiting", 4, 40, "answered 500")),
        (9, 0, "answered 500", False, ("waiting", 10, 2560, "answered 500")),
        (10, 0, "answered 500", False, ("waiting", 11, 3600, "answered 500")),
        (3, DAY_S, "answered 500", False, ("waiting", 4, 40, "answered 500")),
        (3, DAY_S + 1, "answered 500", False, ("dead", 4, 0, "answered 500")),
        (0, 0, "answered 410", True, ("dead", 1, 0, "answered 410")),
    ],
)
def test_a_webhook_is_tried_for_a_day_at_longer_and_longer_intervals(
    desk, attempts, age_s, problem, is_final, row
):
    now_s, columns = 2_000_000_000.0, "status, attempts, run_after, error"
    callbacks = Callbacks(desk.service, "", allow_private=False)

    def work(db: Any) -> Any:
        db.execute(
            "INSERT INTO callbacks (message_id, request_id, url, body, created_at, attempts, run_after,"
            " status) VALUES ('msg_1', 'r1', 'https://x.example', '{}', ?, ?, ?, 'waiting')",
            (now_s - age_s, attempts, now_s),
        )
        item = DueCallback(db.last_insert_rowid(), "msg_1", "r1", "u", "{}", now_s - age_s, attempts)
        callbacks.record_result(db, now_s, item, (problem, is_final))
        found = db.execute(f"SELECT {columns} FROM callbacks").fetchone()
        revived = retry_dead_letter(db, item.id, now_s + 7), retry_dead_letter(db, item.id + 1, now_s)
        return found, revived, db.execute(f"SELECT {columns}, created_at FROM callbacks").fetchone()

    found, revived, after = desk.service.database.write_now(work)
    assert found == (row[0], row[1], now_s + row[2], row[3])
    assert revived == (row[0] == "dead", False)
    if row[0] == "dead":
        assert after == ("waiting", 0, now_s + 7, row[3], now_s + 7)
    else:
        assert after == (*found, now_s - age_s)


async def test_only_what_became_of_a_request_is_signed(desk):
    secret = desk.token("ann")
    url = "https://x.example/hook"
    request = await desk.submit(callback_url=url)
    await desk.decide(request, desk.who(secret), "approve")
    callbacks = Callbacks(desk.service, "", allow_private=False)
    ((message_id, request_id, body),) = desk.service.database.read_now(
        lambda db: db.execute("SELECT message_id, request_id, body FROM callbacks").fetchall()
    )
    item = DueCallback(1, message_id, request_id, url, body, 0.0, 0)
    assert callbacks.is_ours(item)
    other = json.dumps({"data": {**json.loads(body)["data"], "status": "denied"}})
    for change in (
        {"message_id": "msg_2"},
        {"request_id": "r" * 22},
        {"url": "https://y.example"},
        {"body": other},
        {"body": "no json"},
        {"body": "{}"},
        {"body": "[]"},
    ):
        assert not callbacks.is_ours(msgspec.structs.replace(item, **change)), change


# Bodies as they are read.


class Shape(msgspec.Struct):
    user_name: str = ""
    count: int = 0


def test_json_is_read_as_deep_as_it_may_be():
    deep = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"
    assert parse_object(deep).keys() == {"a"}
    wide = b'{"a":[' + b",".join([b"{}"] * 100) + b"]}"
    assert len(parse_object(wide)["a"]) == 100


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count": "x"}, "count: Expected `int`, got `str`"),
        ({"userName": "x"}, "'userName' is not a field; did you mean username?"),
        ({" Count": 1}, "' Count' is not a field; did you mean count?"),
        ({"user-name": "x"}, "'user-name' is not a field; did you mean user_name?"),
        ({"user_name": "a\0"}, "user_name must not hold NUL"),
        ({"user_name": "\ud800"}, "user_name is not valid Unicode: a lone surrogate"),
    ],
)
def test_a_field_that_is_none_of_ours_is_named(fields, said):
    with pytest.raises(HttpRefusal) as caught:
        read_as(fields, Shape)
    assert (caught.value.status, caught.value.message) == (400, said)


def test_what_else_a_body_holds_is_left_alone():
    assert read_as({"user_name": "ä", "other": 1, "count": 2}, Shape) == Shape("ä", 2)


def test_numbers_of_a_query_are_read_within_their_bounds():
    waits = {"0.5": 0.5, "300": 300.0, "301": 300.0, "inf": 300.0, "0": 0.0, "-1": 0.0, "nan": 0.0, "x": 0.0}
    assert {text: read_wait_s({"wait": text}) for text in waits} == waits and read_wait_s({}) == 0.0
    limits = {"1": 1, "0": 1, "-7": 1, "500": 500, "501": 500, "x": 50, "1.5": 50}
    assert {text: read_limit({"limit": text}) for text in limits} == limits and read_limit({}) == 50
    assert [read_before({"before": text}) for text in ("7", "x", "-1")] == [7, 0, 0] and read_before({}) == 0


def test_the_first_header_and_the_last_parameter_count():
    scope = {"headers": [(b"a", b"1"), (b"a", b"\xe4"), (b"b", b"3")], "query_string": b"x=1&x=2&y="}
    assert (header(scope, b"a"), header(scope, b"b"), header(scope, b"c")) == ("1", "3", "")
    assert query(scope) == {"x": "2", "y": ""} and query({"query_string": b""}) == {}


def test_a_webhook_is_signed_by_the_secret_and_the_key(desk):
    secret, key = "whsec_" + base64.b64encode(b"k" * 32).decode(), desk.service.key
    shared, own = signatures(secret, key, "msg_1", 7, "{}").split(" ")
    mac = hmac.new(b"k" * 32, b"msg_1.7.{}", hashlib.sha256).digest()
    assert shared == f"v1,{base64.b64encode(mac).decode()}"
    assert own == f"v1a,{base64.b64encode(key.sign(b'msg_1.7.{}')).decode()}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff", "Invalid JSON body: not UTF-8"),
        (b"[]", "Invalid JSON body: not an object"),
        (b'{"a":1,"a":2}', "Invalid JSON body: a key stands twice in one object"),
        (b'{"a":NaN}', "Invalid JSON body: NaN is not JSON"),
        (b'{"a":-Infinity}', "Invalid JSON body: -Infinity is not JSON"),
        (b'{"a":1e999}', "Invalid JSON body: 1e999 is too large a number"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "Invalid JSON body: nested deeper than 64"),
        (b'{"a":' + b"[" * 100_000, "Invalid JSON body: nested deeper than 64"),
    ],
)
def test_json_that_has_more_than_one_meaning_is_refused(body, said):
    with pytest.raises(HttpRefusal) as caught:
        parse_object(body)
    assert (caught.value.status, caught.value.message) == (400, said)


@contextlib.contextmanager
def silent(count: int) -> Iterator[list[socket.socket]]:
    """Listeners that take every connection and never answer."""
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64)) for _ in range(count)
        ]
        yield listeners


def submit_many(server: Running, name: str, urls: list[str]) -> None:
    agent = server.client("submit", name)
    for number, url in enumerate(urls):
        request = agent.post(
            "/confirm", json={"action": f"a{number}", "description": "d", "callback_url": url}
        ).json()
        agent.post(f"/confirm/{request['id']}/cancel")


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}/hook"


def delivered(server: Running, name: str) -> int:
    sql = (
        "SELECT count(*) FROM callbacks c JOIN requests r ON r.id = c.request_id"
        " WHERE c.status = 'delivered' AND r.principal = ?"
    )
    return int(server.rows(sql, name)[0][0])


@pytest.mark.slow
def test_receivers_that_never_answer_delay_nobody(tmp_path):
    with (
        silent(20) as listeners,
        Receiver() as quick,
        Running(tmp_path, rate=10_000, private_callbacks=True) as server,
    ):
        # Far more than may be under way at once, to twenty receivers, of one principal and then of another.
        submit_many(server, "greedy", [url_of(listener) for listener in listeners for _ in range(15)])
        wait_until(lambda: len(server.rows("SELECT 1 FROM callbacks WHERE status = 'waiting'")) == 300)
        submit_many(server, "other", [quick.url] * 8)
        wait_until(lambda: delivered(server, "other") == 8)
        submit_many(server, "greedy", [quick.url])  # its own, to one that answers
        wait_until(lambda: delivered(server, "greedy") == 1)
        assert len(server.rows("SELECT 1 FROM callbacks WHERE status = 'waiting'")) == 300


@pytest.mark.slow
def test_a_long_queue_to_one_receiver_hides_no_other(tmp_path):
    many = Running(tmp_path, rate=10_000, private_callbacks=True)
    with silent(1) as (listener,), Receiver() as quick, many as server:
        submit_many(server, "agent", [url_of(listener)])
        names = "message_id, request_id, url, body, created_at, run_after"
        rows = server.rows(f"SELECT {names} FROM callbacks")
        many = f"INSERT INTO callbacks ({names}) VALUES (?, ?, ?, ?, ?, ?)"
        server.change(lambda tx: tx.connection.executemany(many, rows * 9_000))
        submit_many(server, "agent", [quick.url])
        wait_until(lambda: delivered(server, "agent") == 1)


@pytest.mark.slow
def test_a_burst_to_one_receiver_arrives_without_waiting_between(tmp_path):
    with Receiver() as quick, Running(tmp_path, rate=10_000, private_callbacks=True) as server:
        before = threading.active_count()
        submit_many(server, "agent", [quick.url] * 40)
        wait_until(lambda: delivered(server, "agent") == 40)
        assert len(quick.got) == 40 and threading.active_count() - before < 20
