"""The part of a plugin's `ctx` that answers it: facts, settings, the person's model, the current session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.config.edit import set_table_entry
from whet.config.paths import Home
from whet.contract.errors import PluginError
from whet.contract.texts import NOT_JSON, as_object, from_foreign_json
from whet.plugins import hermes, shims
from whet.plugins.calls import reason_of
from whet.plugins.kept import DATA, PersistentValues
from whet.plugins.manifest import slug_of
from whet.plugins.model_ask import PluginModel, no_model
from whet.plugins.parts import Problem, Registrations

_MARK = re.compile(r"\A\[untrusted: from [^\n]*\]\n")


class HostAnswers:
    """Answers one plugin. `loaded` are the names of the plugins that were loaded before it."""

    def __init__(self, name: str, home: Path, names: hermes.Names | None, loaded: Collection[str]) -> None:
        self.name: str = name
        self.home: Path = home
        self.registered: Registrations = Registrations()
        self._names = names
        self._loaded = loaded

    @property
    def plugin_id(self) -> str:
        """The plugin's name."""
        return self.name

    @property
    def profile_name(self) -> str:
        """The name of the home's profile; there is only one."""
        return "default"

    def has_plugin(self, plugin_id: str) -> bool:
        """Return whether another plugin is loaded already. Plugins are loaded in the order of
        `plugins.enabled`."""
        return plugin_id in self._loaded

    def has_capability(self, capability: str) -> bool:
        """Return whether a capability of Hermes' list is granted. Tools may be replaced, because the gate
        asks about them."""
        return capability == "tools.override"

    @property
    def llm(self) -> PluginModel:
        """The person's model, for the plugin's own requests."""
        return PluginModel(self.name, self._ask)

    def _ask(self, *, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        ask = self._names.ask_model if self._names else None
        if ask is None:
            return no_model(self.name)()
        return ask(
            hermes.ModelRequest(
                "plugin",
                messages,
                max_tokens=options.get("max_tokens"),
                temperature=options.get("temperature"),
                timeout_s=options.get("timeout"),
            )
        )

    def get_config(self, key: str, default: Any = None) -> Any:
        """Return `plugins.entries.NAME.settings.KEY`."""
        return shims.entry_setting(self.name, key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Write `plugins.entries.NAME.settings.KEY` to config.yaml; dots in the key separate levels.

        Raises PluginError if the key is invalid, ConfigError if the file can't be edited.
        """
        path = key.split(".")
        if not all(path):
            raise PluginError(f"{key!r} is not a setting's name", plugin=self.name, hook="set_config")
        entry = as_object(shims.setting(shims.load_config(), "plugins", "entries", self.name))
        settings = entry.setdefault("settings", {})
        for part in path[:-1]:
            settings = settings.setdefault(part, {})
        settings[path[-1]] = value
        set_table_entry(Home(self.home), "plugins.entries", self.name, entry)

    @property
    def state(self) -> PersistentValues:
        """The values that the plugin keeps between runs."""
        return PersistentValues(self.name, self.home / DATA / slug_of(self.name))

    def call_mcp(
        self, server: str, tool: str, arguments: dict[str, Any] | None = None, timeout: float = 30
    ) -> dict[str, Any]:
        """Run a tool of an MCP server through the gate of the current session. Blocks, so it must be called
        from synchronous code.

        Returns {"ok": True, "result": ...} or {"ok": False, "error": ...}. Raises PermissionError if
        `plugins.entries.NAME.mcp_allowlist` does not name the server.
        """
        allowed = shims.setting(shims.load_config(), "plugins", "entries", self.name, "mcp_allowlist")
        if not isinstance(allowed, list) or server not in allowed:
            setting_name = f"plugins.entries.{self.name}.mcp_allowlist"
            raise PermissionError(f"{setting_name} of config.yaml does not name the MCP server {server}")
        reply = self.dispatch_tool(f"mcp__{server}__{tool}", arguments or {}, timeout=timeout)
        if error := as_object(_parse_json(reply)).get("error"):
            return {"ok": False, "error": _strip_source(str(error))}
        return {"ok": True, "result": _parse_json(_strip_source(reply))}

    def spawn_task(self, coro: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Run a coroutine in parallel to the sessions. At the end of the program it is cancelled. If it
        raises, the error is reported as a problem of the plugin.

        Must be called from asynchronous code. Raises RuntimeError otherwise, also while plugins register.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            coro.close()
            raise RuntimeError("spawn_task needs a running loop: call it from an async function") from None
        task = loop.create_task(coro, name=name or f"plugin {self.name}")
        task.add_done_callback(self._handle_task_end)
        self.registered.tasks.append(task)
        return task

    def _handle_task_end(self, task: asyncio.Task[Any]) -> None:
        self.registered.tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            problems = self._names.problems if self._names else self.registered.problems
            problems.append(Problem(self.name, f"its task {task.get_name()} failed: {reason_of(error)}"))

    def _add_problem(self, reason: str) -> None:
        self.registered.problems.append(Problem(self.name, reason))

    def dispatch_tool(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool of the current session through the gate. Returns its text, or JSON with an error.

        Blocks, so it must be called from synchronous code.
        """
        del kwargs
        access, session_id = self._names.session if self._names else None, hermes.served_session()
        if access is None or not session_id:
            return shims.tool_error("no session is served here")
        return access.dispatch(session_id, tool_name, dict(args))

    def inject_message(self, content: str, role: str = "user", *, session_key: str | None = None) -> bool:
        """Add text to a session as if it was typed, for the running turn or the next one. Returns whether the
        session exists."""
        access = self._names.session if self._names else None
        session_id = session_key or hermes.served_session()
        text = content if role == "user" else f"[{role}] {content}"
        return access is not None and access.inject(session_id, text)


def _strip_source(text: str) -> str:
    """Remove the line above a server's text that tells the model its source."""
    return _MARK.sub("", text, count=1)


def _parse_json(text: str) -> object:
    """Parse JSON; return other text unchanged."""
    try:
        return from_foreign_json(text, object)
    except NOT_JSON:
        return text
