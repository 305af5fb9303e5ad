"""Start an App and open a session from command-line options, for the chat and for `whet chat -q`.

The options that choose a model are defined here for every command that has them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import msgspec

from whet import log
from whet.config.load import load, names_model
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError
from whet.terminal.wording import count_columns

if TYPE_CHECKING:
    from whet.agent.session import Session
    from whet.app.build import App
    from whet.contract.messages import TextOrigin
    from whet.contract.protocols import Person
    from whet.store.database import StateDatabase

Output = Literal["text", "json", "stream-json"]
F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = {
    "provider": "model.provider",
    "base_url": "model.base_url",
    "model": "model.model",
    "api_key_env": "model.api_key_env",
    "format": "model.format",
}


def text_option(*names: str, **options: Any) -> Callable[[F], F]:
    """Return a click option that rejects an empty value, which usually comes from an unset shell variable."""
    return click.option(*names, callback=_refuse_empty, **options)


def _refuse_empty(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    is_typed = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    texts: list[object] = [*value] if param.multiple else [value]
    if is_typed and any(isinstance(text, str) and not text.strip() for text in texts):
        raise click.BadParameter("it is empty; give a value, or leave the option out", ctx, param)
    return value


_OPTIONS = (
    text_option("--provider", help="The provider's name."),
    text_option("--base-url", help="The API's root."),
    text_option("-m", "--model", help="The model's name."),
    text_option("--api-key-env", metavar="NAME", help="The variable that holds the key."),
    text_option("--format", metavar="FORMAT", help="chat_completions, anthropic_messages or responses."),
)
approvals_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--approvals", type=click.Choice(["ask", "auto", "deny"]), help="What runs without a question."
)


class ChatOptions(msgspec.Struct, frozen=True):
    """The options of `whet chat`.

    `flags` maps settings' keys to values, or to None if a flag was not given. `warm_template` names the
    template of a new session (`--warm`). With `continues_latest`, the folder's latest session is opened. With
    `picks_session` (`--resume`), the person chooses one in the chat.
    """

    home: Home
    flags: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])
    question: str | None = None
    output: Output = "text"
    session_id: str = ""
    continues_latest: bool = False
    images: tuple[Path, ...] = ()
    private: bool = False
    title: str = ""
    warm_template: str = ""
    picks_session: bool = False
    is_plan_mode: bool = False

    def read_origin(self) -> TextOrigin:
        """Return the origin of the question: "brought" if it is standard input, and nobody types that."""
        is_input = self.question in (None, "", "-") and not sys.stdin.isatty()
        return "brought" if is_input else ""


def workspace_of(settings: Settings) -> Path:
    """Return the workspace folder of the settings, or the current folder if none is set.

    A path with `..` is resolved, so that the folder's sessions are found again from inside it.
    """
    path = Path(settings.tools.workspace or os.getcwd()).expanduser().absolute()
    return path.resolve() if ".." in path.parts else path


async def start_app(
    options: ChatOptions,
    settings: Settings,
    person: Person,
    say: Callable[[str], object] | None = None,
) -> App:
    """Start an App for the workspace of the settings, without contacting the model.

    `say` gets a line about each slow step; by default it is written to standard error. Raises ConfigError if
    the workspace is not a folder.
    """
    from whet.app.build import App  # noqa: PLC0415 - takes 90 ms; the chat draws its input line first

    workspace = workspace_of(settings)
    if not workspace.is_dir():
        raise ConfigError(
            f"the workspace {workspace} is not a folder", hint="choose another with --workspace DIR"
        )
    secrets = load_secrets(options.home, os.environ)
    write = say or sys.stderr.write
    wait = partial(_announce_servers, write) if sys.stderr.isatty() else None
    log.start_logging(options.home.logs)  # or a plugin's traceback would go to the terminal
    log.show_waits(partial(_say_on_loop, write, asyncio.get_running_loop(), threading.get_ident()))
    app = await App.start(options.home, settings, secrets, person, workspace, wait=wait)
    # Objects from imports and start-up live until the end, so the garbage collector need not scan them.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    return app


def _say_on_loop(
    say: Callable[[str], object], loop: asyncio.AbstractEventLoop, loop_thread: int, line: str
) -> None:
    """Call `say` on the loop's thread. On that thread itself, call it at once: the loop is blocked, so
    nothing else is being drawn."""
    if threading.get_ident() == loop_thread:
        say(line)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(say, line)


@contextmanager
def _announce_servers(say: Callable[[str], object], names: Sequence[str]) -> Generator[asyncio.Event]:
    """Announce which MCP servers are asked for their tools. In the context, Ctrl-C sets the yielded event
    instead of interrupting the program."""
    loop, skip, previous = asyncio.get_running_loop(), asyncio.Event(), signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, skip.set)
    try:
        say(f"asking {', '.join(names)} for their tools, once (Ctrl-C skips it) ...\n")
        yield skip
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)


def load_settings(options: ChatOptions, read_line: Callable[[str], str] | None) -> Settings:
    """Load the settings, with the command line's flags on top. If no model is set, the person chooses one.

    `read_line` asks the person for a line. Raises ConfigError if it is None and no model is set. Must not be
    called from an event loop.
    """
    loaded = load(options.home, options.flags, environ=os.environ)
    for warning in loaded.warnings:
        sys.stderr.write(f"note: {warning}\n")
    if not (loaded.settings.model.provider or loaded.settings.model.base_url):
        # Imported on demand: the import takes time, and only the first run needs it.
        from whet.app.model_links.discover import choose_model  # noqa: PLC0415

        choose_model(options.home, load_secrets(options.home, os.environ), _print_line, read_line)
        loaded = load(options.home, options.flags, environ=os.environ)
    return loaded.settings


def _print_line(line: str) -> None:
    from whet.terminal.output import terminal_width, wrap_text  # noqa: PLC0415 - needed on the first run only

    indent = len(line) - len(line.lstrip())
    sys.stderr.write(
        (wrap_text(line, indent=indent) if count_columns(line) > terminal_width() else line) + "\n"
    )


async def open_session(app: App, options: ChatOptions) -> Session:
    """Open the session that the options name, the latest of this folder, or a new one; in plan mode if the
    options ask for it."""
    session = await _open_by_options(app, options)
    if options.is_plan_mode:
        from whet.app.planning import set_planning  # noqa: PLC0415 - needed in plan mode only

        await set_planning(app.services, session.id, True)
    return session


async def _open_by_options(app: App, options: ChatOptions) -> Session:

    is_chosen = names_model(options.flags)
    if options.session_id:
        from whet.store import sessions  # noqa: PLC0415 - as above

        name = options.session_id
        session_id = await app.database.read(lambda db: sessions.resolve_id(db, name))
        return await app.open_session(session_id, model_chosen=is_chosen)
    if options.continues_latest:
        return await app.open_session(await app.sessions.latest(), model_chosen=is_chosen)
    return await app.new_session(
        private=options.private,
        title=options.title,
        warm=options.warm_template,
        model_chosen=is_chosen,
    )


async def forget_empty(database: StateDatabase, session: Session) -> None:
    """Delete a session if it has no messages."""
    if session.log.session.turns == 0 and not session.log.messages:
        from whet.store import session_deletion  # noqa: PLC0415 - a one-shot's session has a message

        await database.write(lambda db: session_deletion.delete_session(db, session.id))


def model_options(command: F) -> F:
    """Add the model options to a command. It gets their values by name; None if an option was not given."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def model_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that correspond to the model options."""
    return {key: options[name] for name, key in _SETTINGS.items()}
