"""What a plugin may ask of its host: facts, its settings, the person's model, the session that is served."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from whet.plugins import hermes, shims
from whet.plugins.model_ask import PluginModel, no_model


class HostAnswers:
    """Answers one plugin. `loaded` are the plugins that are loaded by now."""

    def __init__(self, name: str, names: hermes.Names | None, loaded: Collection[str]) -> None:
        self.name: str = name
        self._names = names
        self._loaded = loaded

    @property
    def plugin_id(self) -> str:
        """The plugin's name."""
        return self.name

    @property
    def profile_name(self) -> str:
        """The name of the home's profile; there is one."""
        return "default"

    def has_plugin(self, plugin_id: str) -> bool:
        """Whether another plugin is loaded by now: they are, in the order of `plugins.enabled`."""
        return plugin_id in self._loaded

    def has_capability(self, capability: str) -> bool:
        """Whether a right of Hermes' list is granted: tools may be replaced, as the gate asks about them."""
        return capability == "tools.override"

    @property
    def llm(self) -> PluginModel:
        """The person's model, for requests of the plugin's own."""
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
        """Give `plugins.entries.NAME.settings.KEY`."""
        return shims.entry_setting(self.name, key, default)

    def dispatch_tool(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool of the session that is served, through the gate; gives its text, or JSON with an error.
        For synchronous code: it waits."""
        del kwargs
        access, session_id = self._names.session if self._names else None, hermes.served_session()
        if access is None or not session_id:
            return shims.tool_error("no session is served here")
        return access.dispatch(session_id, tool_name, dict(args))

    def inject_message(self, content: str, role: str = "user", *, session_key: str | None = None) -> bool:
        """Put text into a session as if it was typed; the turn under way reads it, or the next one.
        True where there is such a session."""
        access = self._names.session if self._names else None
        session_id = session_key or hermes.served_session()
        text = content if role == "user" else f"[{role}] {content}"
        return access is not None and access.inject(session_id, text)
