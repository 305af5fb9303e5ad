"""Read and set the facts that the message box of a session's page shows: model, mode, folder, branch, context
window."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePath

import apsw
import msgspec

from whet.app import modes
from whet.app.git_branch import read_branch
from whet.app.services import Services
from whet.contract.errors import ConfigError
from whet.serve.turns import Turns
from whet.store import sessions, spans

_MAX_CHOICES = 40


class BoxFacts(msgspec.Struct, frozen=True):
    """The facts that the message box shows. `is_chosen`: the model was chosen for this session. `models` and
    `folders` are the choices. `window_tokens` is 0 if unknown."""

    model: str
    models: tuple[str, ...]
    is_chosen: bool
    mode: str
    folder: str
    branch: str
    used_tokens: int
    window_tokens: int
    folders: tuple[str, ...] = ()

    @property
    def folder_name(self) -> str:
        """The last part of the folder."""
        return PurePath(self.folder).name

    @property
    def share(self) -> float:
        """How full the window is, 0 to 1."""
        return min(1.0, self.used_tokens / self.window_tokens) if self.window_tokens else 0.0


async def read_new_box(services: Services) -> BoxFacts:
    """Return the facts for a session that does not exist yet."""
    provider = services.models.provider.info

    def read(db: apsw.Connection) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return _read_models(db, services), _read_folders(db)

    names, folders = await services.database.read(read)
    folder = str(services.workspace)
    branch = await asyncio.to_thread(read_branch, services.workspace)
    mode = services.gate.get().mode
    return BoxFacts(
        provider.model, names, False, mode, folder, branch, 0, provider.window_tokens, (folder, *folders)
    )


async def read_box(services: Services, row: sessions.SessionRow) -> BoxFacts:
    """Return the facts of a session. `used_tokens` is the size of its last request."""

    def read(db: apsw.Connection) -> tuple[tuple[str, ...], int]:
        requests = spans.read_window(db, row.id, 1)
        last = requests[-1] if requests else None
        used = 0 if last is None else last.tokens if last.after is None else last.after
        return _read_models(db, services), used

    names, used = await services.database.read(read)
    info = services.models.provider_of(row.id).info
    folder = Path(row.workspace or services.workspace)
    branch = await asyncio.to_thread(read_branch, folder)
    window = info.window_tokens if row.model in ("", info.model) else 0
    return BoxFacts(
        model=row.model or info.model,
        models=names,
        is_chosen=row.model_chosen,
        mode=modes.read_mode(services, row.id),
        folder=str(folder),
        branch=branch,
        used_tokens=used,
        window_tokens=window,
    )


async def set_model(turns: Turns, session_id: str, model: str) -> None:
    """Set the model of a session, from its next request on. "default" is the configured one. Raises
    WhetError."""
    model = model.strip()
    if not model or len(model) > 200:
        raise ConfigError("name a model", hint="default goes back to the configured one")
    async with turns.hosted.using(session_id) as session:
        await turns.hosted.switch_model(session, "" if model == "default" else model)


async def set_mode(services: Services, session_id: str, mode: str) -> None:
    """Set the mode of a session. Raises ConfigError for an unknown one."""
    if mode not in modes.ABOUT:
        raise ConfigError(f"{mode[:40]!r} is not a mode", hint=", ".join(modes.MODES))
    await modes.set_mode(services, session_id, mode)


def parse_folder(text: str, fallback: Path) -> Path | None:
    """Return the folder for a new session, or None if it is `fallback` or empty. Raises ConfigError if it
    does not exist."""
    text = text.strip()
    if not text or text == str(fallback):
        return None
    folder = Path(text).expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        raise ConfigError(f"{text[:200]!r} is not a folder on this machine", hint="write its whole path")
    return folder.resolve()


def _read_models(connection: apsw.Connection, services: Services) -> tuple[str, ...]:
    settings = services.models.settings
    used = connection.execute(
        "SELECT DISTINCT model FROM (SELECT model FROM sessions WHERE provider = ? AND model <> ''"
        " ORDER BY last_active DESC LIMIT 500) AS recent LIMIT ?",
        (settings.provider, _MAX_CHOICES),
    )
    names = [settings.model, *settings.aliases, *(record[0] for record in used)]
    return tuple(dict.fromkeys(name for name in names if name))


def _read_folders(connection: apsw.Connection) -> tuple[str, ...]:
    rows = sessions.list_sessions(connection, 200)
    return tuple(dict.fromkeys(row.workspace for row in rows if row.workspace))[:_MAX_CHOICES]
