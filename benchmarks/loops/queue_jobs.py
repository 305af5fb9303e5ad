"""The same jobs in three queues on PostgreSQL: `queue_jobs.py ENGINE setup|ask|work|ended URL [COUNT|MARKS]`.

A job notes that it begins, lasts a quarter of a second, notes that it ends. A worker does one at a time, and
counts as dead after two seconds of silence. `ended` prints how many jobs the queue holds for done.
"""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import closing, suppress

import psycopg

LEASE_S, JOB_S = 2, 0.25


def mark(marks: str, number: int, what: str) -> None:
    with open(marks, "a") as file:
        file.write(f"{number} {what} {time.time():.4f}\n")


def do(marks: str, number: int) -> None:
    mark(marks, number, "begun")
    time.sleep(JOB_S)
    mark(marks, number, "ended")


def whet(action: str, url: str, last: str) -> None:
    from whet.store import sessions
    from whet.store.sessions import NewSession
    from whet.store.team import TeamDatabase, init
    from whet.team.notices import WAITING
    from whet.team.queue import AskedTurn, DatabaseQueue

    if action == "setup":
        init(url)
        return
    with closing(TeamDatabase.open_url(url, lease_s=LEASE_S)) as database:
        queue = DatabaseQueue(database)
        if action == "ask":
            for number in range(int(last)):

                def put(connection, name: str = str(number)) -> None:
                    sessions.create(connection, NewSession(name), "2026-11-21T09:00:00.000Z")
                    queue.ask(connection, AskedTurn(name, name, name))

                database.write_now(put)
        elif action == "ended":
            sql = "SELECT count(*) FROM team_turns WHERE state = 'done'"
            print(database.read_now(lambda db: db.execute(sql).fetchone())[0])
        else:
            raw = database.connected().raw
            raw.execute(f"LISTEN {WAITING}".encode())
            while True:
                for taken in queue.take(str(os.getpid()), 1):
                    do(last, int(taken.id))
                    database.write_now(lambda db, taken=taken: queue.end(db, taken, "answered", ""))
                    break
                else:
                    try:
                        for _ in raw.notifies(timeout=1, stop_after=1):
                            pass
                    except psycopg.Error:  # the connection was cut
                        raw = database.connected().raw
                        raw.execute(f"LISTEN {WAITING}".encode())


def procrastinate(action: str, url: str, last: str) -> None:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="job")
    async def job(number: int) -> None:
        mark(last, number, "begun")
        await asyncio.sleep(JOB_S)
        mark(last, number, "ended")

    async def look_for_stalled() -> None:
        """What its manual says to do: nothing takes a dead worker's jobs by itself."""
        while True:
            await asyncio.sleep(0.5)
            with suppress(Exception):
                for stalled in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE_S):
                    await app.job_manager.retry_job(stalled)

    async def go() -> None:
        async with app.open_async():
            if action == "setup":
                await app.schema_manager.apply_schema_async()
            elif action == "ask":
                for number in range(int(last)):
                    await job.defer_async(number=number)
            elif action == "ended":
                print(len(list(await app.job_manager.list_jobs_async(status="succeeded"))))
            else:
                helper = asyncio.create_task(look_for_stalled())
                await app.run_worker_async(
                    fetch_job_polling_interval=1,
                    update_heartbeat_interval=0.5,
                    stalled_worker_timeout=LEASE_S,
                )
                helper.cancel()

    asyncio.run(go())


def absurd(action: str, url: str, last: str) -> None:
    from absurd_sdk import Absurd

    if action == "setup":
        _set_absurd_up(url)
    elif action == "ended":
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT count(*) FROM absurd.t_default WHERE state = 'completed'")
            print(row.fetchone()[0])
    elif action == "ask":
        app = Absurd(url, default_max_attempts=100)
        app.register_task("job")(lambda params, context: None)
        for number in range(int(last)):
            app.spawn("job", {"number": number})
    while action == "work":
        with suppress(psycopg.Error):  # its worker ends with its connection; whoever runs it starts it again
            app = Absurd(url, default_max_attempts=100)
            app.register_task("job")(lambda params, context: do(last, params["number"]))
            app.start_worker(claim_timeout=LEASE_S, poll_interval=0.1)
        time.sleep(0.2)


def _set_absurd_up(url: str) -> None:
    environ = {**os.environ, "ABSURD_DATABASE_URL": url}
    for words in (["init"], ["create-queue", "default"]):
        command = [os.path.join(os.path.dirname(sys.executable), "absurdctl"), *words]
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    engine, action, url, *more = sys.argv[1:]
    {"whet": whet, "procrastinate": procrastinate, "absurd": absurd}[engine](action, url, (more or [""])[0])
