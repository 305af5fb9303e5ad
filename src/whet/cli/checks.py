"""The checks of `whet doctor`. They only read, and a broken installation makes none of them raise."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from datetime import date, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from whet import __version__
from whet.app.model_links.discover import needs_model
from whet.app.model_links.models import MEMORY_FILE
from whet.app.parts import learn_prices
from whet.app.plugins.parts import temporary_provider
from whet.approval.patterns import DENY_HINT, find_unknown
from whet.clock import Clock
from whet.config import paths
from whet.config.load import LoadedSettings, load
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.config.secrets import env_warnings, load_secrets
from whet.contract.errors import ConfigError, WhetError
from whet.contract.tags import BUILT_IN
from whet.contract.texts import NOT_JSON, from_json, plural
from whet.lsp.kinds import find_servers, list_missing
from whet.mcp.kept import read_stored
from whet.mcp.listing import read_listing
from whet.mcp.remote import check_server
from whet.memory import disk, notes
from whet.providers.dialect_memory import describe_dialect, find_dialect_faults, read_dialects
from whet.sandbox.engine import probe
from whet.sandbox.engine_cache import read_status
from whet.sandbox.path_rules import read_path_rules
from whet.terminal.output import has_colour, size
from whet_confirm.boundary import is_same_user

State = Literal["ok", "warning", "failed"]
_DISTRIBUTION = "whet-agent"
_EXTRA = re.compile(r"""([\w.-]+).*;.*extra == ["']([\w-]+)""")
_COMMANDS = {
    "bash": ("warning", "the terminal tool runs commands through sh instead; install bash"),
    "git": ("warning", "install git to let the agent see and undo changes"),
    "rg": ("warning", "install ripgrep (rg): search_files is much faster with it"),
}
_SANDBOX_HINT = "whet config set sandbox.mode strict"
_LOW_BYTES = 1_000_000_000
_TOO_LOW_BYTES = 50_000_000
_LOG_BYTES = 400_000
_CRASH_DAYS = 7
_MANY_TREE_BYTES = 2_000_000_000


class DoctorFinding(msgspec.Struct, frozen=True):
    """One line of the report: the check's name, its state, a text, and the fix if the state is not ok."""

    name: str
    state: State
    text: str
    fix: str = ""


def check_python() -> Iterator[DoctorFinding]:
    """Check the interpreter and the packages."""
    yield DoctorFinding(
        "whet", "ok", f"{__version__}, Python {platform.python_version()}, {platform.system()}"
    )
    versions: list[str] = []
    for name in read_dependencies():
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield DoctorFinding("packages", "failed", f"{name} is missing", f"pip install {name}")
    yield DoctorFinding("packages", "ok", ", ".join(versions))
    yield DoctorFinding("extras", "ok", ", ".join(_list_extras()) or "none")


def _list_extras() -> list[str]:
    """Return the installed packages of extras, each with its version and the extra. Packages that Whet needs
    without an extra as well, such as httpx2, are left out."""
    rows: list[str] = []
    plain = read_dependencies()
    for line in _read_requirements():
        if (match := _EXTRA.match(line)) and match[1] not in plain:
            with suppress(metadata.PackageNotFoundError):
                rows.append(f"{match[1]} {metadata.version(match[1])} ({match[2]})")
    return sorted({*rows})


def read_dependencies() -> list[str]:
    """Return the names of the packages that Whet depends on, without those of extras."""
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in _read_requirements() if ";" not in line]


def _read_requirements() -> list[str]:
    try:
        return metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # Whet runs from its source and is not installed
        return ["apsw", "click", "msgspec"]


def check_home(home: Home) -> Iterator[DoctorFinding]:
    """Check that the home folder exists, can be written and is closed to other users."""
    root = home.root
    if not root.exists():
        parent = next(folder for folder in root.parents if folder.exists())
        if os.access(parent, os.W_OK):
            yield DoctorFinding("home", "ok", f"{root} (made at the first use)")
        else:
            yield DoctorFinding(
                "home", "failed", f"{root} can't be made", "set WHET_HOME to a folder that you can write"
            )
        return
    if not root.is_dir() or not os.access(root, os.W_OK | os.X_OK):
        yield DoctorFinding(
            "home", "failed", f"{root} can't be written", f"check the owner of {root}, or set WHET_HOME"
        )
        return
    mode = paths.read_mode(root) or 0
    if mode & 0o077:
        yield DoctorFinding(
            "home", "warning", f"{root} is open to others (mode {mode:04o})", f"chmod 700 {root}"
        )
    else:
        yield DoctorFinding("home", "ok", str(root))


def check_disk(home: Home) -> Iterator[DoctorFinding]:
    """Check the free disk space at the home folder."""
    folder = next(folder for folder in (home.root, *home.root.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    state: State = "failed" if free < _TOO_LOW_BYTES else "warning" if free < _LOW_BYTES else "ok"
    yield DoctorFinding(
        "disk", state, f"{size(free)} free", "" if state == "ok" else "free some space; nothing is lost"
    )


def check_config(home: Home, environ: Mapping[str, str]) -> tuple[list[DoctorFinding], LoadedSettings | None]:
    """Read the settings. The second value is None if they are broken."""
    try:
        loaded = load(home, environ=environ)
    except ConfigError as error:
        return [DoctorFinding("config", "failed", error.message, error.hint)], None
    changed = [name for name, origin in loaded.origins.items() if origin != "default"]
    source = str(home.config) if home.config.exists() else "no config.yaml"
    text = f"{source}, {len(changed)} of {len(loaded.origins)} settings changed"
    if changed:
        text += f": {', '.join(changed)}"
    findings = [DoctorFinding("config", "ok", text)]
    findings += [
        DoctorFinding("config", "warning", warning, "unset it or correct its name")
        for warning in loaded.warnings
    ]
    return findings, loaded


def check_secrets(home: Home) -> Iterator[DoctorFinding]:
    """Check that .env can be read and parsed and is closed to other users."""
    try:
        warnings = env_warnings(home)
    except ConfigError as error:
        yield DoctorFinding(".env", "failed", error.message, error.hint)
        return
    for warning in warnings:
        text, _, fix = warning.partition("; run: ")
        yield DoctorFinding(".env", "warning", text, fix or f"edit {home.env}")
    if not warnings:
        yield DoctorFinding(
            ".env", "ok", "mode 0600" if home.env.exists() else "none (keys from the environment only)"
        )


def check_provider(home: Home, settings: Settings, environ: Mapping[str, str]) -> DoctorFinding:
    """Check that a model is set and its key exists. Sends no request."""
    if needs_model(settings):
        fix = "whet (asks and offers what it finds), or whet config set model.provider NAME"
        return DoctorFinding(
            "model", "warning", "no model is set yet; the demo and the practice model work", fix
        )
    try:
        with temporary_provider(home, settings, load_secrets(home, environ)) as provider:
            info = provider.info
    except WhetError as error:
        return DoctorFinding("model", "failed", error.message, error.hint)
    account = f", account {settings.model.account}" if settings.model.account else ""
    text = f"{info.model or '(default)'} from {info.provider}{account}; whet doctor --online asks its server"
    return DoctorFinding("model", "ok", text)


def check_accounts(home: Home, settings: Settings, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Check that each named account of the provider has a key."""
    if not settings.model.accounts.get(settings.model.provider):
        return
    from whet.app.model_links.accounts import list_accounts  # noqa: PLC0415 - few have any

    for account in list_accounts(settings.model, load_secrets(home, environ)):
        if account.name and not account.has_key:
            names = " or ".join(account.variables) or "a variable whose key may be sent there"
            yield DoctorFinding(
                "account", "warning", f"{account.name} has no key", f"put {names} into {home.env}"
            )


def check_dialects(home: Home, today: date) -> Iterator[DoctorFinding]:
    """List the servers that refused a request, and the dialect in which they are asked since then."""
    for key, learned in read_dialects(home.root / MEMORY_FILE, today).items():
        server = key.partition(" ")[2]
        text = f"{server}: {describe_dialect(learned)}; whet model probe --forget asks anew"
        yield DoctorFinding("dialect", "ok", text)
    for fault in find_dialect_faults(home.root / MEMORY_FILE):
        yield DoctorFinding("dialect", "warning", fault, f"correct or delete it in {home.root / MEMORY_FILE}")


def check_prices(home: Home, clock: Clock) -> Iterator[DoctorFinding]:
    """Check that the home's own price table can be read. No chat starts otherwise."""
    try:
        learn_prices(home, clock)
    except ConfigError as error:
        yield DoctorFinding("prices", "failed", error.message, error.hint)


async def check_online(
    home: Home, settings: Settings, environ: Mapping[str, str], clock: Clock
) -> DoctorFinding:
    """Ask the server for its models and measure how long that takes."""
    start_s = clock.monotonic_s()
    try:
        with temporary_provider(home, settings, load_secrets(home, environ)) as provider:
            start_s, model_name = clock.monotonic_s(), provider.info.model
            async with aclosing(provider):
                models = await provider.list_models()
    except WhetError as error:
        return DoctorFinding("server", "failed", error.message, error.hint)
    text = f"answers in {1000 * (clock.monotonic_s() - start_s):.0f} ms, {plural(len(models), 'model')}"
    if models and model_name and model_name not in models:
        return DoctorFinding("server", "warning", f"{text}, not among them: {model_name}", "whet model list")
    return DoctorFinding("server", "ok", text)


def check_commands(path: str | None = None) -> Iterator[DoctorFinding]:
    """Check for the programs that tools use."""
    for name, (state, fix) in _COMMANDS.items():
        where = shutil.which(name, path=path)
        if where:
            yield DoctorFinding(name, "ok", where)
        else:
            yield DoctorFinding(name, "warning" if state == "warning" else "failed", "not found", fix)


def check_terminal() -> Iterator[DoctorFinding]:
    """Check the terminal's size, encoding and colours."""
    columns, lines = shutil.get_terminal_size((80, 24))
    encoding = (sys.stdout.encoding or "ascii").lower()
    text = f"{columns}x{lines}, {encoding}, {'colour' if has_colour() else 'no colour'}"
    if "utf" not in encoding:
        yield DoctorFinding("terminal", "warning", text, "export LANG=C.UTF-8 (or another UTF-8 locale)")
    elif columns < 40:
        yield DoctorFinding("terminal", "warning", text, "widen the window to 40 columns or more")
    else:
        yield DoctorFinding("terminal", "ok", text)


def check_servers(home: Home, settings: Settings) -> Iterator[DoctorFinding]:
    """Check the MCP servers' settings and the result of the last contact. Contacts no server."""
    for name, server in settings.mcp.servers.items():
        label = f"mcp {name}"
        try:
            check_server(name, server)
        except ConfigError as error:
            yield DoctorFinding(label, "failed", error.message, error.hint)
            continue
        if not server.enabled:
            yield DoctorFinding(label, "ok", "switched off")
            continue
        last_contact = read_stored(home, name, server)
        if last_contact is None:
            yield DoctorFinding(label, "ok", "not reached yet; the first session does")
        elif last_contact.failure:
            yield DoctorFinding(label, "warning", last_contact.failure, f"whet mcp test {name}")
        else:
            listing = read_listing(name, server, last_contact.catalogue)
            left_out = f", {len(listing.left_out)} left out" if listing.left_out else ""
            count = len(listing.offered)
            yield DoctorFinding(label, "ok", f"{plural(count, 'tool')}{left_out}")


def check_language_servers(home: Home, settings: Settings, workspace: Path) -> Iterator[DoctorFinding]:
    """Check which language servers the workspace's files need. Starts none."""
    lsp, name = settings.lsp, "languages"
    if not lsp.enabled or "code" not in settings.tools.toolsets:
        return
    servers = find_servers(Path(os.path.realpath(workspace)), lsp.servers)
    if servers and read_status(settings.sandbox.mode, home.main_root):
        hint = _SANDBOX_HINT if settings.sandbox.mode == "off" else ""
        yield DoctorFinding(name, "warning", "no server runs: there is no sandbox", hint)
        return
    for server in servers:
        yield DoctorFinding(name, "ok", f"{server.kind.name}: {server.command[0]}")
    for kind in list_missing(workspace, lsp.servers, servers):
        programs = " or ".join(dict.fromkeys(command[0] for command in kind.programs))
        install = kind.install or f"install {programs}"
        fix = f"{install}; or set enabled: false for {kind.name} in the setting lsp.servers"
        yield DoctorFinding(name, "warning", f"{kind.name}: no server ({programs})", fix)


def check_sandbox(settings: Settings) -> Iterator[DoctorFinding]:
    """Name the sandbox that commands run in. The first call in a process takes 0.2 s."""
    if settings.sandbox.mode == "off":
        yield DoctorFinding("sandbox", "warning", "off: commands reach all that you reach", _SANDBOX_HINT)
    elif settings.sandbox.backend != "local":
        yield DoctorFinding("sandbox", "ok", f"commands run by {settings.sandbox.backend}")
    else:
        status = probe()
        state: State = "ok" if status.name != "none" else "warning"
        yield DoctorFinding("sandbox", state, status.line, "whet sandbox status says what was tried")


def check_file_rules(settings: Settings) -> Iterator[DoctorFinding]:
    """List how each deny rule for files is interpreted, and warn if no sandbox enforces it on programs."""
    for rule in find_unknown(settings.approval.deny, BUILT_IN):
        text = f"deny {rule} names no tool of Whet's own; unless a plugin has it, the rule holds nothing"
        yield DoctorFinding("rule", "warning", text, DENY_HINT)
    has_sandbox = settings.sandbox.mode != "off" and settings.sandbox.backend == "local"
    for rule in read_path_rules(settings.approval.deny).rules:
        if has_sandbox:
            yield DoctorFinding("rule", "ok", f"deny {rule.source}: {rule.describe()}")
            continue
        text = f"deny {rule.source}: no sandbox here holds programs that open a file without naming it"
        yield DoctorFinding("rule", "warning", text, _SANDBOX_HINT)


def check_notes(home: Home, settings: Settings) -> Iterator[DoctorFinding]:
    """Warn about notes files that are longer than their limits."""
    limits_chars = {"memory": settings.memory.memory_chars, "user": settings.memory.user_chars}
    for target, name in notes.FILES.items():
        try:
            text = disk.read_text(home.root / name) or ""
        except WhetError as error:
            yield DoctorFinding("notes", "warning", error.message, error.hint)
            continue
        if line := notes.describe_overfull(target, text, limits_chars[target]):
            yield DoctorFinding("notes", "warning", line, f"whet memory edit {target}, or raise the setting")


def check_confirmations(home: Home) -> Iterator[DoctorFinding]:
    """Warn if the confirmation service's files belong to the user that agents run as."""
    folder = home.root / "confirm"
    if is_same_user(folder):
        yield DoctorFinding(
            "confirmations",
            "warning",
            "the service runs as your user: an agent with a shell outside the sandbox could approve itself",
            "whet confirm install --approver YOU --submitter AGENT --dry-run",
        )


def check_confirmation_channels(home: Home) -> Iterator[DoctorFinding]:
    """Warn about channels of the confirmation service that can't be opened, e.g. because an extra is
    missing."""
    path = home.root / "confirm" / "channels.toml"
    if not os.path.isfile(path):
        return
    from whet_confirm.notify.settings import open_channels, read_channels  # noqa: PLC0415 - takes long

    try:
        notifiers = open_channels(read_channels(path), load_secrets(home, os.environ), bytes(32))
    except (WhetError, OSError) as error:
        hint = error.hint if isinstance(error, WhetError) else ""
        yield DoctorFinding("confirmations", "warning", f"no channel can be opened: {error}", hint)
        return
    for notifier in notifiers:
        if notifier.failure:
            text = f"channel {notifier.channel.name} delivers nothing: {notifier.failure}"
            yield DoctorFinding("confirmations", "warning", text, "then whet confirm try-channels")


def check_folders(home: Home) -> Iterator[DoctorFinding]:
    """List the plugins and the helpers' working trees, and report crashes in the log."""
    plugins = home.root / "plugins"
    names = sorted(entry.name for entry in plugins.iterdir() if entry.is_dir()) if plugins.is_dir() else []
    yield DoctorFinding("plugins", "ok", ", ".join(names) or "none")
    yield from _check_trees(home)
    log = home.logs / "whet.log"
    if not log.exists():
        yield DoctorFinding("log", "ok", "none yet")
        return
    if crashes := _read_crashes(log):
        text = f"{plural(len(crashes), 'crash', 'crashes')} in {_CRASH_DAYS} days, the last: {crashes[-1]}"
        yield DoctorFinding("log", "warning", text, f"try it again; if it crashes, report it with {log}")
    else:
        yield DoctorFinding("log", "ok", f"{log}, {size(log.stat().st_size)}")


class _LogRow(msgspec.Struct):
    time: str = ""
    logger: str = ""
    message: str = ""
    stack: str = ""


def _read_crashes(log: Path) -> list[str]:
    """Return the time and the error of each recent crash, from the end of the log."""
    since = (datetime.now() - timedelta(days=_CRASH_DAYS)).isoformat(timespec="seconds")
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return []
    crashes: list[str] = []
    for line in lines:
        if b'"unexpected ' not in line:
            continue
        try:
            row = from_json(line, _LogRow)
        except NOT_JSON:
            continue  # the line's beginning was cut off, or another program wrote it
        if row.logger == "whet.cli" and row.message.startswith("unexpected ") and row.time >= since:
            crashes.append(f"{row.time} {row.stack.splitlines()[-1] if row.stack else row.message}")
    return crashes


def _check_trees(home: Home) -> Iterator[DoctorFinding]:
    """Report how many working trees of helpers still exist and how large they are, if there are any."""
    folder = home.main_root.with_name(f"{home.main_root.name}-worktrees")
    trees = sorted(path for path in folder.glob("*/*") if path.is_dir())
    if not trees:
        return
    total_bytes = 0
    for tree in trees:
        for path in tree.rglob("*"):
            with suppress(OSError):  # a helper may be at work in it
                total_bytes += path.lstat().st_size
    text = f"{plural(len(trees), 'working tree')} of helpers, {size(total_bytes)}, in {folder}"
    if total_bytes < _MANY_TREE_BYTES:
        yield DoctorFinding("trees", "ok", text)
    else:
        fix = "in the repository: git worktree list, then git worktree remove --force PATH"
        yield DoctorFinding("trees", "warning", text, fix)
