"""A running API with a practice server behind it, and the official SDK as its client."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import pytest
from starlette.routing import Route

from tests.late import Late
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.config.paths import Home
from whet.config.permission_settings import ApprovalSettings, ConfirmSettings, SandboxSettings
from whet.config.schema import (
    EmbeddingSettings,
    MemorySettings,
    ModelSettings,
    ReviewSettings,
    ScheduleSettings,
    Settings,
)
from whet.schedules.adding import add_schedule
from whet.serve import tokens
from whet.serve.run import ServeOptions, serve
from whet.serve.site import Site, SiteTimings
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

T = TypeVar("T")
WAIT_S = 30.0


class Api:
    """`whet serve` in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        model: PracticeServer,
        mode: str = "auto",
        *,
        web: bool = False,
        answer_wait_s: float = 60.0,
        beat_s: float = 0.3,
        head_wait_s: float = 30.0,
        confirm: ConfirmSettings | None = None,
        embeddings: EmbeddingSettings | None = None,
        secrets: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.model = model
        self._settings = Settings(
            model=ModelSettings(
                provider="practice", base_url=model.base_url, model="practice", max_retries=0
            ),
            approval=ApprovalSettings(mode=mode),  # type: ignore[arg-type]
            review=ReviewSettings(worker="off", turns=0, steps=0, on_correction=False, on_recovery=False),
            memory=MemorySettings(),
            sandbox=SandboxSettings(mode="off"),
            schedules=ScheduleSettings(worker="off"),
            confirm=confirm or ConfirmSettings(),
            embeddings=embeddings or EmbeddingSettings(),
        )
        self._secrets = secrets or {}
        self._pace = SiteTimings(answer_wait_s, beat_s, head_wait_s)
        self._web = web
        self.url = ""
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S), "the API did not start"
        if self._problem is not None:
            raise self._problem
        self.token = tokens.first_token_path(self.home).read_text().strip()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - told to the test
            self._problem = error
            self._ready.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        people = PersonRouter()
        self.app = await App.start(
            self.home, self._settings, self._secrets, people, self.workspace, source="api"
        )
        self.hosted = SessionHost(self.app.sessions, people)
        tokens.make_first(self.app.database, self.home, self.app.clock)
        self._stop = asyncio.Event()

        def ready(port: int) -> None:
            self.url = f"http://127.0.0.1:{port}"
            self._ready.set()

        listening = ServeOptions(
            port=0, has_web=self._web, drain_s=0.2, commands=SLASH_COMMANDS, add_schedule=add_schedule
        )
        try:
            await serve(self.hosted, listening, self._pace, ready, stop=self._stop)
        finally:
            await self.app.aclose()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the API's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def stacks(self) -> str:
        """Return what each task of the API waits for."""

        async def print_all() -> str:
            out = io.StringIO()
            for task in asyncio.all_tasks():
                task.print_stack(file=out)
            return out.getvalue()

        return self.call(print_all())

    def cancel_turns(self) -> None:
        """Cancel the turns that a test left, and wait for their ends: the next test finds none."""

        async def cancel_all() -> None:
            async with asyncio.timeout(WAIT_S):
                while left := self.hosted.running:
                    for session_id in left:
                        self.hosted.cancel(session_id)
                    await asyncio.sleep(0.01)

        self.call(cancel_all())

    def new_token(self, name: str, role: tokens.TokenRole = "chat") -> str:
        return self.app.database.write_now(lambda db: tokens.make(db, name, role, self.app.clock))[1]

    def revoke(self, name: str) -> None:
        self.app.database.write_now(lambda db: tokens.revoke(db, name, "2026-11-21T00:00:00.000Z"))

    def http(self, token: str = "") -> httpx2.Client:
        headers = {"authorization": f"Bearer {token or self.token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=WAIT_S)

    def routes(self) -> list[Route]:
        """The routes of the API, as the application has them."""
        return Site(self.hosted, self.app.clock, self._pace).routes()

    def say(self, *replies: ScriptedReply) -> None:
        """Have the model answer with these from now on; none: the practice model's own rules."""
        self.model.reset()
        self.model.install(replies or None)

    def close(self) -> None:
        self.model.release()
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._problem is not None:
            raise self._problem


@pytest.fixture(scope="session")
def shared_model() -> Iterator[PracticeServer]:
    with PracticeServer() as server:
        yield server


@pytest.fixture(scope="session")
def shared_api(tmp_path_factory: pytest.TempPathFactory, shared_model: PracticeServer) -> Iterator[Api]:
    """One API for the tests that leave nothing running."""
    made = Api(tmp_path_factory.mktemp("api"), shared_model)
    yield made
    made.close()


@pytest.fixture
def api(shared_api: Api) -> Iterator[Api]:
    shared_api.say()
    yield shared_api
    shared_api.cancel_turns()


@pytest.fixture
def http(api: Api) -> Iterator[httpx2.Client]:
    """A client of the owner's."""
    with api.http() as client:
        yield client


@pytest.fixture(scope="session")
def asking_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One whose gate asks before anything that changes something."""
    with PracticeServer() as model:
        made = Api(tmp_path_factory.mktemp("asking"), model, mode="ask")
        yield made
        made.close()


# Making a client takes 50 ms of certificates; one serves all tests.
@pytest.fixture(scope="session")
def sdk() -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient()
    with openai.OpenAI(api_key="unset", timeout=WAIT_S, http_client=http) as client:
        yield client


@pytest.fixture
def client(sdk: openai.OpenAI, api: Api) -> openai.OpenAI:
    return sdk.with_options(base_url=f"{api.url}/v1", api_key=api.token)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API with its pages, whose gate asks."""
    with PracticeServer() as model:
        made = Api(tmp_path_factory.mktemp("board"), model, mode="ask", web=True)
        yield made
        made.close()


def sign_in(client: httpx2.Client, board: Api, token: str) -> httpx2.Response:
    return client.post("/login", data={"token": token}, headers={"origin": board.url})


@pytest.fixture
def person(board: Api) -> Iterator[httpx2.Client]:
    """A browser that is signed in as the owner at the page of the module's `board`."""
    with httpx2.Client(base_url=board.url, timeout=WAIT_S) as client:
        sign_in(client, board, board.token)
        client.headers["origin"] = board.url
        yield client
