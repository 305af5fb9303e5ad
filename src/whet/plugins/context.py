"""`ctx`: the object that a plugin's register() receives.

Plugins probe it with getattr, so a capability that the host does not support is an absent attribute. If a
name is in use, only that registration is refused and reported. An invalid registration (no handler, no
schema) disables the plugin. Nothing takes effect before register() has returned.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from whet.config.schema import ModelSettings
from whet.contract.context_engine import ContextEngine
from whet.contract.errors import PluginError
from whet.contract.protocols import Provider
from whet.contract.texts import as_object
from whet.plugins import hermes, hooks, sections, shims
from whet.plugins.asked import HostAnswers
from whet.plugins.calls import accepted_keywords, attribute_errors
from whet.plugins.manifest import Manifest
from whet.plugins.memories import read_tool_schemas
from whet.plugins.parts import (
    Hook,
    MemoryProvider,
    PluginCliCommand,
    PluginCommand,
    PluginNotifier,
    PluginProvider,
    PluginSkill,
    PromptSection,
    Registrations,
)
from whet.plugins.tools import PluginToolOptions, make_tool

CAPABILITIES = frozenset(
    {
        "register_tool",
        "register_command",
        "register_hook",
        "register_context_engine",
        "register_memory_provider",
        "register_skill",
        "register_provider",
        "register_notifier",
        "register_cli_command",
        "register_middleware",
        "register_system_prompt_section",
    }
)
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,31}")


class TakenNames(msgspec.Struct):
    """The names that are in use, each with the plugin that uses it; an empty string means Whet."""

    tools: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    commands: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    engines: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    others: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    plugins: set[str] = msgspec.field(default_factory=set[str])
    sections: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def add(self, plugin: str, registered: Registrations) -> None:
        """Record the names that a plugin uses from now on."""
        self.plugins.add(plugin)
        self.tools.update((tool.name, plugin) for tool in registered.tools)
        self.commands.update((command.name, plugin) for command in registered.commands)
        self.sections.update((section.id, plugin) for section in registered.sections)
        self.engines.update((engine.name, plugin) for engine in registered.engines)
        parts = (
            *registered.memory_providers,
            *registered.skills,
            *registered.providers,
            *registered.notifiers,
        )
        self.others.update((f"{type(part).__name__} {part.name}", plugin) for part in parts)


def _no_answer(tool_name: str, args: dict[str, Any]) -> str:
    return shims.tool_error(f"{tool_name} has no handler")


def _memory_handler(answer: Callable[..., object], tool: str) -> Callable[..., object]:
    def handle(args: dict[str, Any], **facts: object) -> object:
        return answer(tool, args, **accepted_keywords(answer, facts))

    return handle


class PluginContext(HostAnswers):
    """Accepts the registrations of one plugin. `offered` are the capabilities that exist here."""

    def __init__(
        self,
        manifest: Manifest,
        folder: Path | None,
        home: Path,
        taken_names: TakenNames,
        offered: frozenset[str],
        names: hermes.Names | None = None,
    ) -> None:
        super().__init__(manifest.name, home, names, taken_names.plugins)
        self.manifest = manifest
        self.folder = folder
        self._taken = taken_names
        self._offered = offered

    def __getattribute__(self, name: str) -> Any:
        if name in CAPABILITIES and name not in object.__getattribute__(self, "_offered"):
            raise AttributeError(f"this host has no {name}")
        return object.__getattribute__(self, name)

    def on_unload(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the program ends, in reverse order of registration."""
        self._require(callable(callback), "on_unload", "what on_unload got can't be called")
        self.registered.unloads.append(callback)

    def register_cli_command(
        self,
        name: str,
        help: str,
        setup_fn: Callable[[argparse.ArgumentParser], object],
        handler_fn: Callable[[argparse.Namespace], object] | None = None,
        description: str = "",
    ) -> None:
        """Add a command for the shell: `whet plugins run NAME ...`."""
        self._require(callable(setup_fn), "register_cli_command", f"the set-up of {name} can't be called")
        self.registered.cli_commands.append(
            PluginCliCommand(self.name, name, help or description, setup_fn, handler_fn)
        )

    def register_tool(
        self,
        name: str,
        toolset: str,
        schema: Mapping[str, Any],
        handler: Callable[..., object],
        **options: Unpack[PluginToolOptions],
    ) -> None:
        """Add a tool. Without `effects` the gate asks before each call. Its output counts as untrusted."""
        tool = make_tool(self.name, name, toolset, schema, handler, **options)
        own_names = [tool.name for tool in self.registered.tools]
        # With `override`, a built-in tool may be replaced. The gate asks about the new tool.
        is_built_in = self._taken.tools.get(name) == ""
        replaces = bool(options.get("override")) and is_built_in and name not in own_names
        if replaces:
            self.registered.overrides.append(name)
        if replaces or self._is_free("tool", name, self._taken.tools, own_names):
            missing = self._explain_unusable(options)
            if missing:
                self._add_problem(f"its tool {name} is left out: {missing}")
            else:
                self.registered.tools.append(tool)

    def register_command(
        self, name: str, handler: Callable[..., object], description: str = "", args_hint: str = ""
    ) -> None:
        """Add the slash command `name`; `handler` receives the text after it and returns text or None."""
        name = re.sub(r"\s+", "-", name.strip().lower().lstrip("/"))
        self._require(callable(handler), "register_command", f"the handler of /{name} can't be called")
        if not _COMMAND.fullmatch(name):
            self._add_problem(f"/{name} can't be a command: a-z, 0-9 and -, a letter first")
            return
        own_names = [command.name for command in self.registered.commands]
        if self._is_free("command", name, self._taken.commands, own_names):
            self.registered.commands.append(PluginCommand(self.name, name, handler, description, args_hint))

    def register_hook(self, name: str, function: Callable[..., object]) -> None:
        """Call `function` at one of the points in `hooks.NAMES`, with the keywords that it accepts."""
        self._require(callable(function), "register_hook", f"the hook {name} can't be called")
        if name in hooks.NAMES:
            self.registered.hooks.append(Hook(self.name, name, function))
        else:
            self._add_problem(f"there is no hook {name}; there are {', '.join(hooks.NAMES)}")

    def register_middleware(self, kind: str, function: Callable[..., object], **options: Any) -> None:
        """Let `function` change tool calls before they are judged (`tool_request`), or wrap each run of a
        tool (`tool_execution`).

        Any other kind disables the plugin, because it may be a guard that depends on it.
        """
        self._require(callable(function), "register_middleware", f"the {kind} can't be called")
        kinds = ", ".join(hooks.MIDDLEWARE)
        self._require(
            kind in hooks.MIDDLEWARE, "register_middleware", f"there is no {kind} here, only {kinds}"
        )
        self.registered.hooks.append(Hook(self.name, kind, function))

    def register_system_prompt_section(
        self,
        id: str,
        content: object,
        *,
        position: str = "after_memory",
        max_chars: int = sections.MAX_CHARS,
    ) -> None:
        """Add a section to the system prompt of new sessions.

        `content` is a text, or a function that receives a session's facts and is called once per session.
        The position is always after the memory.
        """
        del position
        where = "register_system_prompt_section"
        self._require(sections.is_id(id), where, f"{id!r} is not a section's name: a-z, 0-9, . _ and - only")
        self._require(
            isinstance(content, str) or callable(content), where, f"{id} is neither text nor function"
        )
        own_ids = [section.id for section in self.registered.sections]
        if self._is_free("section", id, self._taken.sections, own_ids):
            section = PromptSection(self.name, id, content, min(max_chars, sections.MAX_CHARS))
            self.registered.sections.append(section)

    def register_context_engine(self, engine: object) -> None:
        """Offer an engine, which the setting `context.engine` selects by name. A plugin may offer one."""
        if not isinstance(engine, ContextEngine):
            raise PluginError(
                f"a {type(engine).__name__} is not a ContextEngine",
                plugin=self.name,
                hook="register_context_engine",
            )
        with attribute_errors(self.name, "the engine's name"):
            name = engine.name
        self._require(bool(name), "register_context_engine", "the engine has no name")
        if self.registered.engines:
            first = self.registered.engines[0].name
            self._add_problem(f"its second engine {name} is refused; the first, {first}, is used")
        elif self._is_free("engine", name, self._taken.engines, ()):
            self.registered.engines.append(engine)

    def register_memory_provider(self, provider: object) -> None:
        """Offer an external memory with a `name`."""
        name = getattr(provider, "name", "")
        self._require(
            isinstance(name, str) and bool(name), "register_memory_provider", "the provider has no name"
        )
        part = MemoryProvider(self.name, name, provider)
        if not self._is_free_part(part, name):
            return
        self.registered.memory_providers.append(part)
        answer: Callable[..., object] = getattr(provider, "handle_tool_call", None) or _no_answer
        for schema in read_tool_schemas(part):
            bare = as_object(schema.get("function", schema))
            tool = str(bare.get("name") or "")
            self.register_tool(tool, f"memory-{name}", bare, _memory_handler(answer, tool))

    def register_skill(self, name: str, path: str | os.PathLike[str], description: str = "") -> None:
        """Offer a skill: `path` is its folder, or the SKILL.md in it."""
        skill_path = Path(path)
        folder = skill_path.parent if skill_path.name == "SKILL.md" else skill_path
        self._require((folder / "SKILL.md").is_file(), "register_skill", f"{folder} holds no SKILL.md")
        part = PluginSkill(self.name, name, folder, description)
        if self._is_free_part(part, name):
            self.registered.skills.append(part)

    def register_provider(
        self,
        name: str,
        factory: Callable[[ModelSettings, Mapping[str, str]], Provider],
        description: str = "",
    ) -> None:
        """Offer a model server: `factory(model settings, secrets)` returns a Provider."""
        self._require(callable(factory), "register_provider", f"the factory of {name} can't be called")
        part = PluginProvider(self.name, name, factory, description)
        if self._is_free_part(part, name):
            self.registered.providers.append(part)

    def register_notifier(self, name: str, send: Callable[..., object], description: str = "") -> None:
        """Offer a way to reach the person: `send(title, text)`."""
        self._require(callable(send), "register_notifier", f"the sender of {name} can't be called")
        part = PluginNotifier(self.name, name, send, description)
        if self._is_free_part(part, name):
            self.registered.notifiers.append(part)

    def _is_free_part(
        self, part: MemoryProvider | PluginSkill | PluginProvider | PluginNotifier, name: str
    ) -> bool:
        kind = type(part).__name__
        owner = self._taken.others.get(f"{kind} {name}")
        owners = {} if owner is None else {name: owner}
        return self._is_free(kind.removeprefix("Plugin").lower(), name, owners, ())

    def _is_free(self, kind: str, name: str, owners: Mapping[str, str], own_names: Sequence[str]) -> bool:
        owner = owners.get(name)
        if owner is None and name not in own_names:
            return True
        owner_text = f"the plugin {owner}"
        if owner is None:
            owner_text = "the same plugin"
        elif not owner:
            owner_text = "Whet itself"
        self._add_problem(f"its {kind} {name} is refused: the name belongs to {owner_text}")
        return False

    def _explain_unusable(self, options: PluginToolOptions) -> str:
        """Return why a tool can't work, by its variables and its own check, or an empty string."""
        absent = [name for name in options.get("requires_env") or () if not os.environ.get(name)]
        if absent:
            return f"{', '.join(absent)} not set"
        check = options.get("check_fn")
        if check is None:
            return ""
        with attribute_errors(self.name, "check_fn"):
            return "" if check() else "its own check says that it can't work here"

    def _require(self, is_valid: bool, hook: str, reason: str) -> None:
        if not is_valid:
            raise PluginError(reason, plugin=self.name, hook=hook)
