"""Load the plugins that the settings enable, and return their parts.

Import this module only if `plugins.enabled` is not empty, so that a start without plugins pays nothing for
them. A plugin that fails to load is disabled and keeps none of its parts; the others load. The reason is in
`LoadedPlugins.problems`. The composition root connects the parts.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Collection, Generator, MutableMapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import msgspec

from whet.config.paths import Home
from whet.config.schema import PluginSettings
from whet.config.secrets import load_secrets, read_env
from whet.contract.context_engine import ContextEngine
from whet.contract.errors import ConfigError, PluginError
from whet.contract.protocols import FailureJudge
from whet.contract.tools import Tool
from whet.plugins import hermes, hooks, modules, printing, shims
from whet.plugins.calls import attribute_errors
from whet.plugins.context import CAPABILITIES, PluginContext, TakenNames
from whet.plugins.discover import MEMORY_GROUP, WHET_GROUP, Discovery, FoundPlugin, discover
from whet.plugins.failures import FailureHooks
from whet.plugins.manifest import Manifest
from whet.plugins.memories import EmptyMemory, Memories
from whet.plugins.model_calls import SideCallHooks
from whet.plugins.parts import (
    MemoryProvider,
    PluginCliCommand,
    PluginCommand,
    PluginEngine,
    PluginNotifier,
    PluginProvider,
    PluginSkill,
    Problem,
    PromptSection,
    Registrations,
    bound_parts,
)


class PluginHost(msgspec.Struct, frozen=True):
    """The services that the program offers to plugins, and the names that it uses itself.

    `ask_model` runs in the thread of the plugin that asks. `offers` are the capabilities that a plugin's ctx
    has here. `workspace` is the folder that may contain `.whet/plugins`.
    """

    ask_model: hermes.AskModel | None = None
    offers: frozenset[str] = CAPABILITIES
    taken_tools: Collection[str] = ()
    taken_commands: Collection[str] = ()
    taken_engines: Collection[str] = ()
    taken_providers: Collection[str] = ()
    workspace: Path | None = None


class PluginState(msgspec.Struct, frozen=True):
    """An enabled plugin with the names of its parts by kind. `folder` is None for an installed package."""

    manifest: Manifest
    key: str
    is_loaded: bool
    registrations: dict[str, list[str]]
    folder: Path | None = None


class _Running(msgspec.Struct, frozen=True):
    source: FoundPlugin
    registered: Registrations
    register_again: Callable[[], Registrations]


class LoadedPlugins:
    """The parts of the loaded plugins, in the order of `plugins.enabled`. Close it at the program's end."""

    def __init__(
        self,
        running: list[_Running],
        states: list[PluginState],
        problems: list[Problem],
        names: hermes.Names,
    ) -> None:
        parts = [plugin.registered for plugin in running]
        self.plugins = states
        self.problems = problems
        self.tools: list[Tool] = [tool for part in parts for tool in part.tools]
        self.overrides: frozenset[str] = frozenset(name for part in parts for name in part.overrides)
        self.cli_commands: list[PluginCliCommand] = [item for part in parts for item in part.cli_commands]
        self.commands: list[PluginCommand] = [command for part in parts for command in part.commands]
        self.sections: list[PromptSection] = [section for part in parts for section in part.sections]
        self.skills: list[PluginSkill] = [skill for part in parts for skill in part.skills]
        self.memory_providers: dict[str, MemoryProvider] = {
            memory.name: memory for part in parts for memory in part.memory_providers
        }
        self.providers: dict[str, PluginProvider] = {
            provider.name: provider for part in parts for provider in part.providers
        }
        self.notifiers: dict[str, PluginNotifier] = {
            notifier.name: notifier for part in parts for notifier in part.notifiers
        }
        self.engines: dict[str, PluginEngine] = {
            engine.name: PluginEngine(
                plugin.source.name,
                engine.name,
                plugin.source.manifest.description,
                engine,
                plugin.register_again,
                hermes.await_real_usage,
            )
            for plugin in running
            for engine in plugin.registered.engines
        }
        self.names = names
        self._reported_count = 0
        self._is_closed = False
        self._on_close: list[Callable[[], None]] = []
        self._tasks = [item.registered.tasks for item in running]
        self._unloads = [(item.source.name, unload) for item in running for unload in item.registered.unloads]
        self.memories: Memories = Memories(self.memory_providers.values(), problems)
        self.hooks: hooks.Hooks = hooks.Hooks([hook for part in parts for hook in part.hooks], problems)
        self.hooks.add_source(names.hooks.hooks_named)
        self.judge: FailureJudge = FailureHooks(self.hooks).judge
        self.side_calls: SideCallHooks = SideCallHooks(self.hooks)

    @property
    def toolsets(self) -> list[str]:
        """The toolsets of the plugins' tools. A toolset is on while its plugin is."""
        return list(dict.fromkeys(tool.toolset for tool in self.tools))

    @property
    def load_failures(self) -> dict[str, str]:
        """The plugins that are enabled but not loaded, with the reason."""
        loaded = {
            name for state in self.plugins if state.is_loaded for name in (state.manifest.name, state.key)
        }
        return {problem.plugin: problem.reason for problem in self.problems if problem.plugin not in loaded}

    def find_command(self, name: str, engine: object = None) -> PluginCommand | None:
        """Return the command of that name, or None. The commands of the engine instance come first."""
        bound = bound_parts(engine)
        own_commands = bound.commands if bound else ()
        return next((command for command in (*own_commands, *self.commands) if command.name == name), None)

    def scope(self, session_id: str, conversation_id: str) -> AbstractContextManager[object]:
        """Name the session to plugin code that is called inside."""
        return hermes.session_scope(session_id, conversation_id)

    def note_failure(self, error: PluginError) -> None:
        """Record a failure of a plugin outside of its hooks. `take_news` returns it."""
        self.problems.append(Problem(error.plugin, f"its {error.hook} failed: {error.message}"))

    def take_news(self) -> list[str]:
        """Return the problems since the last call, one line each."""
        news = [problem.line for problem in self.problems[self._reported_count :]]
        self._reported_count = len(self.problems)
        return news

    def on_close(self, undo: Callable[[], None]) -> None:
        """Call `undo` in `close`, in reverse order."""
        self._on_close.append(undo)

    def close(self) -> None:
        """Undo the loading; a second call does nothing.

        Cancels the plugins' tasks, calls what they passed to on_unload, shuts down their engines, and removes
        their module names and variables.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for tasks in self._tasks:
            for task in tasks:
                if not task.get_loop().is_closed():
                    task.cancel()
        for plugin, unload in reversed(self._unloads):
            with contextlib.suppress(PluginError), attribute_errors(plugin, "on_unload"):
                unload()
        for engine in self.engines.values():
            shutdown = getattr(engine.prototype, "shutdown", None)
            if callable(shutdown):
                with contextlib.suppress(PluginError), attribute_errors(engine.plugin, "shutdown()"):
                    shutdown()
        for undo in reversed(self._on_close):
            undo()


def load_plugins(
    home: Home, settings: PluginSettings, environ: MutableMapping[str, str], host: PluginHost
) -> LoadedPlugins:
    """Load all enabled plugins in order. Failures are in `problems` of the result; none is raised.

    `environ` is the process's environment. It gets HERMES_HOME and the variables of .env before any plugin's
    code runs.
    """
    problems: list[Problem] = []
    undo = [_set_environment(home, environ, problems)]
    names = hermes.Names(home.root, host.ask_model, problems)
    undo.append(names.close)
    if settings.enabled:
        undo.append(printing.keep_off_stdout())
    loader = _Loader(home, host, names, problems)
    running: list[_Running] = []
    states: list[PluginState] = []
    for source in select_plugins(_discover(home, settings, host), settings, problems):
        plugin = loader.load(source)
        if plugin is not None:
            running.append(plugin)
            undo.append(_make_releaser(source))
        registrations = plugin.registered.names() if plugin else {}
        states.append(
            PluginState(source.manifest, source.key, plugin is not None, registrations, source.folder)
        )
    for hook in names.hooks.all():
        if hook.name not in hooks.NAMES:
            hook_names = ", ".join(hooks.NAMES)
            problems.append(Problem(hook.plugin, f"there is no hook {hook.name}; there are {hook_names}"))
    loaded = LoadedPlugins(running, states, problems, names)
    for step in undo:
        loaded.on_close(step)
    return loaded


def _discover(home: Home, settings: PluginSettings, host: PluginHost) -> Discovery:
    project = host.workspace / ".whet" / "plugins" if settings.project and host.workspace else None
    return discover(home.root / "plugins", project)


def select_plugins(
    discovery: Discovery, settings: PluginSettings, problems: list[Problem]
) -> list[FoundPlugin]:
    """Return the plugins that are enabled and not disabled, by name or key, in the order of `enabled`."""
    broken = {problem.plugin: problem for problem in discovery.problems}
    chosen: dict[str, FoundPlugin] = {}
    for name in settings.enabled:
        source = discovery.find_plugin(name)
        if source is None:
            installed = ", ".join(discovery.plugins) or "none"
            missing = Problem(name, f"it is enabled but not installed; installed: {installed}")
            problems.append(broken.get(name, missing))
        elif not {source.name, source.key} & set(settings.disabled):
            chosen.setdefault(source.name, source)
    return list(chosen.values())


class _Loader:
    """Loads one plugin after another. Later plugins can't take names of earlier ones."""

    def __init__(self, home: Home, host: PluginHost, names: hermes.Names, problems: list[Problem]) -> None:
        self._home = home
        self._offers = host.offers
        self._names = names
        self._problems = problems
        self._taken = TakenNames(
            dict.fromkeys(host.taken_tools, ""),
            dict.fromkeys(host.taken_commands, ""),
            dict.fromkeys(host.taken_engines, ""),
            dict.fromkeys((f"PluginProvider {name}" for name in host.taken_providers), ""),
        )

    def load(self, source: FoundPlugin) -> _Running | None:
        """Import and register a plugin. Returns None, and adds a problem, if that failed."""
        context = self._make_context(source, self._taken)
        imported: ModuleType | None = None
        try:
            if _is_hermes_plugin(source):
                self._names.open()
                self._names.hooks.plugins[_module_of(source)] = source.name
            # Output that a plugin prints while it loads must not mix with ours.
            with contextlib.redirect_stdout(sys.stderr), _register_for(context):
                register, imported = _load_entry(source)
                _run_register(source, register, context)
        except PluginError as error:
            where = f" ({error.hook})" if error.hook else ""
            self._problems.append(
                Problem(source.name, f"disabled{where}: {error.message}{_missing_module_hint(error)}")
            )
            if imported is not None:
                modules.release(source.module)
            return None
        self._problems.extend(context.registered.problems)
        self._taken.add(source.name, context.registered)

        def register_again() -> Registrations:
            collector = self._make_context(source, TakenNames())
            with self._names.collecting() as table, _register_for(collector):
                _run_register(source, register, collector)
            collector.registered.hooks.extend(table.all())
            return collector.registered

        return _Running(source, context.registered, register_again)

    def _make_context(self, source: FoundPlugin, taken_names: TakenNames) -> PluginContext:
        return PluginContext(
            source.manifest, source.folder, self._home.root, taken_names, self._offers, self._names
        )


@contextlib.contextmanager
def _register_for(context: PluginContext) -> Generator[None]:
    """Assign tools to this plugin that are registered inside through `tools.registry`."""
    token = shims.holder.set(context)
    try:
        yield
    finally:
        shims.holder.reset(token)


def _missing_module_hint(error: PluginError) -> str:
    """Return a hint if the plugin imports a missing module, otherwise ""."""
    cause = error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or not cause.name:
        return ""
    if cause.name.partition(".")[0] in hermes.PACKAGES:
        return "; that part of Hermes Agent is not here"
    return f"; install what it needs beside Whet: {sys.executable} -m pip install ..."


def _is_hermes_plugin(source: FoundPlugin) -> bool:
    """Return whether a plugin was written for Hermes Agent, so that it needs Hermes' module names."""
    if source.entry is not None:
        return source.entry.group != WHET_GROUP
    return source.folder is not None and hermes.is_hermes_plugin(source.folder)


def _module_of(source: FoundPlugin) -> str:
    return source.entry.module if source.entry is not None else source.module


def _register_function(target: object, group: str) -> object:
    """Return the register function of an entry point.

    That is the register() of a module or object, or `target` itself if it is a function. For the class or
    factory of a memory provider, it is a function that makes the provider and registers it.
    """
    register = getattr(target, "register", None)
    if callable(register) and not inspect.isclass(target):
        return register
    is_memory = inspect.isclass(target) and issubclass(target, EmptyMemory)
    if (
        group == MEMORY_GROUP
        and not inspect.ismodule(target)
        and (is_memory or not _has_required_parameters(target))
    ):
        return lambda ctx: ctx.register_memory_provider(target() if callable(target) else target)  # pyright: ignore
    return target


def _class_registration(module: ModuleType) -> Callable[[PluginContext], object] | None:
    """Return a register function for a module without one, or None.

    It registers the only memory provider that the module defines, or else its only context engine.
    """
    own_classes = [
        class_
        for class_ in vars(module).values()
        if inspect.isclass(class_)
        and class_.__module__.startswith(module.__name__)
        and not inspect.isabstract(class_)
    ]
    memories = [class_ for class_ in own_classes if issubclass(class_, EmptyMemory)]
    engines = [class_ for class_ in own_classes if issubclass(class_, ContextEngine)]
    if len(memories) == 1:
        return lambda ctx: ctx.register_memory_provider(memories[0]())
    return (lambda ctx: ctx.register_context_engine(engines[0]())) if len(engines) == 1 else None


def _has_required_parameters(target: object) -> bool:
    """Return whether a function has required parameters, as register(ctx) has."""
    if not callable(target):
        return False
    try:
        required = [
            parameter
            for parameter in inspect.signature(target).parameters.values()
            if parameter.default is parameter.empty
        ]
    except (TypeError, ValueError):
        return True
    return any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in required
    )


def _load_entry(source: FoundPlugin) -> tuple[Callable[[PluginContext], object], ModuleType | None]:
    """Return a plugin's register function, and its module if it is from a folder. Raises PluginError."""
    module: ModuleType | None = None
    if source.entry is not None:
        with attribute_errors(source.name, "import"):
            target: object = source.entry.load()
        register = _register_function(target, source.entry.group)
    elif source.folder is not None:
        module = modules.acquire(source.name, source.module, source.folder)
        register = getattr(module, "register", None) or _class_registration(module)
    else:
        register = None
    if not callable(register):
        if module is not None:
            modules.release(source.module)
        raise PluginError("it has no function register(ctx)", plugin=source.name, hook="import")
    return register, module


def _run_register(
    source: FoundPlugin, register: Callable[[PluginContext], object], context: PluginContext
) -> None:
    with attribute_errors(source.name, "register"):
        result = register(context)
    if inspect.iscoroutine(result):
        result.close()
        raise PluginError("register must not be async", plugin=source.name, hook="register")


def _make_releaser(source: FoundPlugin) -> Callable[[], None]:
    return lambda: modules.release(source.module) if source.folder is not None else None


def _set_environment(
    home: Home, environ: MutableMapping[str, str], problems: list[Problem]
) -> Callable[[], None]:
    """Set .env's values (the environment wins) and HERMES_HOME. Returns the function that undoes it."""
    wanted_values = {"HERMES_HOME": str(home.root)}
    try:
        load_secrets(home, environ)  # masks the secrets before a plugin can print them
        values = read_env(home).values
        wanted_values |= {
            n: v for n, v in values.items() if not environ.get(n) and n not in ("WHET_HOME", "HERMES_HOME")
        }
    except ConfigError as error:
        problems.append(Problem(".env", error.message))
    before = {name: environ.get(name) for name in wanted_values}
    environ.update(wanted_values)

    def undo() -> None:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value

    return undo
