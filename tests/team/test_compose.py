"""The services of `deploy/compose.yaml` on a real PostgreSQL with passwords: each under a role of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.late import Late
from tests.support import output_of, quiet_port
from tests.team.processes import end, environment, start
from tests.team.test_workers import run_whet
from whet_lab.practice.database import TrialServer, find_programs
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Late("psycopg")

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy/compose.yaml").read_text("utf-8")
)["services"]
DOTENV = {
    "POSTGRES_PASSWORD": "administrates",
    "WHET_AGENT_PASSWORD": "a'g\"e$nt",
    "WHET_CONFIRM_PASSWORD": "confirms",
    "WHET_MODEL_PROVIDER": "practice",
}
OVERRIDES = {  # the tests of other processes have the usual ports
    "worker": ["--metrics-port", "0", "--metrics-host", "127.0.0.1"],
    "api": ["--port", "0", "--host", "127.0.0.1"],
    "confirm": ["--port", "0", "--web-port", "-1", "--host", "127.0.0.1"],
    "gateway": [],
}
FIRST_LINES = {"worker": "working on", "api": "/v1", "confirm": "http://127.0.0.1", "gateway": "webhook"}


@contextmanager
def server_with_passwords() -> Iterator[TrialServer]:
    """A server as the image `postgres` starts it: one superuser, and no connection without a password."""
    with closing(TrialServer()) as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("CREATE DATABASE whet TEMPLATE template0 LOCALE 'C.UTF-8'")
            admin.execute(f"ALTER ROLE whet PASSWORD '{DOTENV['POSTGRES_PASSWORD']}'".encode())
        (server.folder / "data/pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        server.control("reload")
        yield server


def resolve(text: str, port: int) -> str:
    """Return a text of the file with the values of .env, for the server at this port."""
    text = re.sub(r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))?\}", lambda m: DOTENV.get(m[1], m[2] or ""), text)
    return "127.0.0.1" if text == "database" else text.replace("@database/", f"@127.0.0.1:{port}/")


@pytest.mark.slow
def test_the_services_of_the_compose_file_work_with_roles_of_their_own(tmp_path):
    with server_with_passwords() as server, PracticeServer() as model, ExitStack() as stack:

        def given_to(name: str, home: str = "home") -> dict[str, str]:
            given = environment("", tmp_path / home, model, "practice") | {"PGPORT": str(server.port)}
            del given["WHET_STORE_URL"], given["WHET_MODEL_PROVIDER"]
            given["PATH"] = f"{find_programs()}:{os.environ['PATH']}"
            own = {
                key: resolve(str(value), server.port) for key, value in SERVICES[name]["environment"].items()
            }
            return given | own

        def command_of(name: str) -> list[str]:
            return [resolve(str(word), server.port) for word in SERVICES[name]["command"]]

        printed = run_whet(given_to("setup"), tmp_path, *command_of("setup"))
        assert 'CREATE ROLE "whet_agent" LOGIN;' in printed and 'CREATE ROLE "whet_confirm" LOGIN;' in printed
        subprocess.run(command_of("roles"), env=given_to("roles"), check=True, timeout=60)
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home/gateway.toml").write_text(
            '[[channel]]\nkind = "webhook"\nurl = "http://127.0.0.1:9/whet"\n'
            f'listen = "127.0.0.1:{quiet_port()}"\n'
        )
        secret = {"GATEWAY_WEBHOOK_SECRET": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}
        for name, words in OVERRIDES.items():
            given = given_to(name, "confirm" if name == "confirm" else "home") | secret
            assert DOTENV["POSTGRES_PASSWORD"] not in given.values()
            process = start([*command_of(name), *words], given, tmp_path)
            stack.callback(end, process)
            line = output_of(process).readline()
            assert FIRST_LINES[name] in line, line + output_of(process).read()
        answer = run_whet(given_to("worker"), tmp_path, "team", "ask", "is the build green?")
        assert answer.strip()
        with psycopg.connect(
            f"{server.url.rpartition('/')[0]}/whet", password=DOTENV["POSTGRES_PASSWORD"]
        ) as admin:
            roles = admin.execute(
                "SELECT usename, count(*) > 0 FROM pg_stat_activity"
                " WHERE datname = 'whet' AND pid <> pg_backend_pid() GROUP BY 1 ORDER BY 1"
            ).fetchall()
        assert roles == [("whet_agent", True), ("whet_confirm", True)]
        assert "whet team init URL --roles" not in run_whet(given_to("worker"), tmp_path, "doctor")
