"""The confirmation service of the demo: its own process, its own home in the demo's folder, its own tokens.

All return values are read from the service itself: its records, its page, its log.
"""

from __future__ import annotations

import http.client
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import apsw
import msgspec

from whet.config.paths import Home, replace_file
from whet.contract.errors import Unavailable
from whet.contract.texts import from_json
from whet_confirm.open import service_paths
from whet_lab.demo.world import DemoWorld

APPROVER = "scripted-approver"
_API = "confirmation service: "
_PAGE = "web page and browsers: "
_WHET = (sys.executable, "-P", "-m", "whet")
_TIMEOUT_S = 20


class DemoConfirmService:
    """A running service that ends with the demo's world."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self.home: Home = Home(world.folder / "service")
        self._environ = {"WHET_HOME": str(self.home.root)}
        process = world.whet(["confirm", "serve", "--port", "0", "--web-port", "0"], extra=self._environ)
        assert process.stdout is not None
        self.url: str = self._read_line(process.stdout, _API)
        self.page_url: str = self._read_line(process.stdout, _PAGE)
        if not self.page_url:
            errors = process.communicate(timeout=_TIMEOUT_S)[1].strip().splitlines()
            raise Unavailable(
                f"the confirmation service did not start: {errors[-1] if errors else 'it said nothing'}",
                hint="`whet confirm serve --port 0 --web-port 0` shows why",
            )
        self._token = self._make_token()

    def configure_agent(self, home: Home, actions: dict[str, str]) -> str:
        """Configure the agent of `home` to ask this service about `actions`, and return the added lines."""
        submit = service_paths(self.home).token_path("submit").read_text("utf-8").strip()
        replace_file(home.root / ".env", f"CONFIRMATION_TOKEN={submit}\n", mode=0o600)
        rows = "".join(f'    - "{rule} = {name}"\n' for rule, name in actions.items())
        lines = f"confirm:\n  url: {self.url}\n  actions:\n{rows}"
        with home.config.open("a", encoding="utf-8") as file:
            file.write(lines)
        return lines

    def whet(self, *arguments: str, home: Path | None = None) -> tuple[int, str]:
        """Run `whet` as the scripted approver, in the service's home or another."""
        extra = {"CONFIRMATION_TOKEN": self._token, "WHET_CONFIRM_URL": self.url}
        extra["WHET_HOME"] = str(home or self.home.root)
        return self._world.run([*_WHET, *arguments], extra=extra)

    def list_records(self) -> list[dict[str, Any]]:
        """Read every request from the service, oldest first."""
        headers = {"Authorization": f"Bearer {self._token}"}
        _, _, text = _call(self.url, "GET", "/confirm?limit=100", headers=headers)
        rows: list[dict[str, Any]] = from_json(text, dict[str, Any])["requests"]
        return rows[::-1]

    def read_page(self, address: str) -> str:
        """Sign in on the page as the scripted approver and return the HTML of `address`, or "" on failure."""
        form = urlencode({"token": self._token})
        headers = {"Origin": self.page_url, "Content-Type": "application/x-www-form-urlencoded"}
        _, cookie, _ = _call(self.page_url, "POST", "/login", form, headers)
        path = urlsplit(address).path
        status, _, text = _call(self.page_url, "GET", path, headers={"Cookie": cookie.partition(";")[0]})
        return text.decode() if status == 200 else ""

    def submit(self, action: str, description: str) -> str:
        """Submit a request as the agent does; return the request's id."""
        token = service_paths(self.home).token_path("submit").read_text("utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = msgspec.json.encode({"action": action, "description": description}).decode()
        _, _, text = _call(self.url, "POST", "/confirm", body, headers)
        return str(from_json(text, dict[str, Any])["id"])

    def try_approving(self) -> tuple[list[tuple[str, int]], str]:
        """Let a program with the agent's token try to approve its own request.

        Returns each method with the HTTP status of the answer, and the request's status afterwards.
        """
        submit = service_paths(self.home).token_path("submit").read_text("utf-8").strip()
        own_headers = {"Authorization": f"Bearer {submit}", "Content-Type": "application/json"}
        request_id = self.submit("wipe_database", "Nothing to see here")
        path, form = f"/confirm/{request_id}/approve", {"Content-Type": "application/x-www-form-urlencoded"}
        no_token_headers = {"Content-Type": "application/json"}
        guessed_headers = {**own_headers, "Authorization": f"Bearer {submit[:-4]}AAAA"}
        impostor_body = f'{{"approver": "{APPROVER}"}}'
        form_headers = {**form, "Origin": self.page_url}
        results = [
            (
                "with its own token, in another's name",
                _call(self.url, "POST", path, impostor_body, own_headers)[0],
            ),
            ("with no token", _call(self.url, "POST", path, impostor_body, no_token_headers)[0]),
            ("with a guessed token", _call(self.url, "POST", path, "{}", guessed_headers)[0]),
            (
                "signing in on the page",
                _call(self.page_url, "POST", "/login", urlencode({"token": submit}), form_headers)[0],
            ),
            (
                "with the page's form, unasked",
                _call(self.page_url, "POST", f"/r/{request_id}/decide", "verdict=approve", form_headers)[0],
            ),
        ]
        _, _, text = _call(self.url, "GET", f"/confirm/{request_id}", headers=own_headers)
        status = str(from_json(text, dict[str, Any])["status"])
        _call(self.url, "POST", f"/confirm/{request_id}/cancel", "{}", own_headers)
        return results, status

    def copy_with_sql(self, statement: str) -> Path:
        """Copy the service's home, run SQL on the copy's database, and return the copied home."""
        copy = self._copy(f"forged-{len([*self._world.folder.glob('forged-*')])}")
        with closing(apsw.Connection(str(service_paths(copy).database))) as db:
            db.execute(statement)
        return copy.root

    def copy_with_change(self, before: bytes, after: bytes) -> tuple[Path, int]:
        """Copy the service's home and replace `before` by `after` in one event of the copy's database file.

        Returns the copied home and the number of bytes that differ.
        """
        copy = self._copy("copy")
        database = service_paths(copy).database
        original = database.read_bytes()
        start = original.find(before)
        while start >= 0:
            changed = original[:start] + after + original[start + len(before) :]
            database.write_bytes(changed)
            # A page that SQLite split keeps bytes of rows that live elsewhere now.
            if _has_event(database, after):
                return copy.root, sum(was != now for was, now in zip(original, changed, strict=True))
            start = original.find(before, start + 1)
        return copy.root, 0

    def _copy(self, name: str) -> Home:
        copy = Home(self._world.folder / name)
        ours, theirs = service_paths(self.home), service_paths(copy)
        theirs.folder.mkdir(parents=True)
        with closing(apsw.Connection(str(ours.database), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            db.execute("VACUUM INTO ?", (str(theirs.database),))
        for path in (ours.public_key, ours.checkpoints):
            if path.exists():
                (theirs.folder / path.name).write_bytes(path.read_bytes())
        return copy

    def _make_token(self) -> str:
        arguments = ["confirm", "token", "create", "--role", "approve", "--name", APPROVER, "--json"]
        code, output = self._world.run([*_WHET, *arguments], extra=self._environ)
        if code != 0:
            raise Unavailable(f"the scripted approver got no token: {output.strip()}")
        return str(from_json(output, dict[str, Any])["token"])

    @staticmethod
    def _read_line(lines: Any, mark: str) -> str:
        return next((str(line).removeprefix(mark).strip() for line in lines if line.startswith(mark)), "")


def _has_event(database: Path, text: bytes) -> bool:
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return bool(list(db.execute("SELECT 1 FROM events WHERE instr(data, ?)", (text.decode(),))))


def _call(
    base: str, method: str, path: str, body: str = "", headers: dict[str, str] | None = None
) -> tuple[int, str, bytes]:
    """Make one HTTP request; return the status, the cookie that the answer sets, and the body."""
    with closing(http.client.HTTPConnection(urlsplit(base).netloc, timeout=_TIMEOUT_S)) as connection:
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("set-cookie", ""), answer.read()
