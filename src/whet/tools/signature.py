"""Make a tool from a typed function: its schema, its checks and its call.

The JSON schema is derived from the signature and kept small, since every request carries it. Arguments are
read leniently if the intent is clear ("5" for 5, "true" for true, JSON text for a list); otherwise the
error names the argument.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MethodType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Required,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from whet.contract.changes import TextChange
from whet.contract.errors import BadInput
from whet.contract.tags import BUILT_IN
from whet.contract.texts import NOT_JSON, from_values
from whet.contract.tools import TOOL_NAME, Effect, Handler, Tool, ToolContext, ToolOutput, ToolSpec
from whet.lanes import ToolPool

Method = TypeVar("Method", bound=Callable[..., Any])
_OPTIONS = "tool_options"  # the attribute in which a method keeps them
_REQUIRED: Any = inspect.Parameter.empty
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


class _Unsent:
    """Marks an argument that is accepted but not described in requests."""


UNSENT = _Unsent()


class DeclaredOptions(TypedDict, total=False):
    """A tool's declarations besides its signature. Missing ones take the defaults of `Tool`."""

    name: str
    description: str
    effects: Required[Iterable[Effect]]
    parallel: bool
    repeatable: bool
    timeout_s: float | None
    output_cap_chars: int


class MethodOptions(DeclaredOptions, total=False):
    """The options of a method of a `Toolset`.

    `refuse` is a method that raises ToolError for arguments that are refused before a person is asked.
    `plan` is a method that returns the changes of a call without making them; it runs on the pool.
    """

    refuse: Callable[[Any, dict[str, Any]], None]
    plan: Callable[[Any, ToolContext, dict[str, Any]], tuple[TextChange, ...]]


class ToolOptions(DeclaredOptions, total=False):
    """The options of a function that belongs to no `Toolset`."""

    toolset: Required[str]
    tags: Iterable[str]
    pool: ToolPool


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a tool: its type for reading, its schema for the model."""

    name: str
    annotation: Any
    schema: dict[str, Any]
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether a call must include it."""
        return self.default is _REQUIRED


def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]:
    """Decorate a function as a tool: `make_tool` with these options."""
    return lambda function: make_tool(function, **options)


def make_tool(function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
    """Make a tool named after the function and described by the first paragraph of its docstring.

    Each parameter is an argument for the model, of type str, int, float, bool, list, Literal, a msgspec
    Struct or one of them | None, with its description in Annotated. A first parameter of type ToolContext
    is not an argument. The function returns text, a ToolOutput, or a value that the model gets as JSON. An
    async function runs on the event loop. A synchronous one runs on `pool`, which it must name, and may
    take `stop: threading.Event`, which is set when the call is cancelled. Raises TypeError if the function
    can't be a tool.
    """
    name = options.get("name") or getattr(function, "__name__", "")
    if not TOOL_NAME.fullmatch(name):
        raise TypeError(f"a tool can't be named {name!r}: letters, digits, _ and -, at most 64")
    if not hasattr(function, "__code__"):
        raise TypeError(f"tool {name} is not written as a function: its signature can't be read")
    parameters = _parameters(function, name)
    description = options.get("description") or _description(function, name)
    unsent = tuple(p.name for p in parameters if UNSENT in get_args(p.annotation))
    spec = ToolSpec(name, description, object_schema(parameters), unsent)
    apart = ("name", "description", "pool", "effects", "tags")
    declared = {key: value for key, value in options.items() if key not in apart}
    return Tool(
        spec=spec,
        run=_handler(function, name, parameters, options.get("pool")),
        effects=frozenset(options["effects"]),
        tags=frozenset(options.get("tags", ())),
        check=lambda given: read_arguments(name, parameters, given),
        preview=_propose_changes if "edits" in options.get("tags", ()) else None,
        names=_find_named_files if "edits" in options.get("tags", ()) else None,
        **cast("Any", declared),
    )


def tool_method(**options: Unpack[MethodOptions]) -> Callable[[Method], Method]:
    """Declare a method of a `Toolset` as a tool. `make_tool` says how a function becomes one."""

    def mark(method: Method) -> Method:
        method.__dict__[_OPTIONS] = options
        return method

    return mark


class Toolset(msgspec.Struct, frozen=True):
    """Tools that share services: the fields are the services, each `tool_method` is a tool.

    Iterating creates the tools in the order of their methods, with their tags from `contract/tags.py`.
    Synchronous methods run on the field `pool`. Iterating raises TypeError for a tool without tags.
    """

    toolset: ClassVar[str]

    def __iter__(self) -> Iterator[Tool]:
        """Create the tools."""
        for name, method in vars(type(self)).items():
            options: MethodOptions | None = getattr(method, _OPTIONS, None)
            if options is not None:
                yield self.configure(self._make(name, MethodType(method, self), options))

    def configure(self, tool: Tool) -> Tool:
        """Return a tool with what the services change of its declaration."""
        return tool

    def _make(self, name: str, method: Callable[..., Any], options: MethodOptions) -> Tool:
        if name not in BUILT_IN:
            raise TypeError(f"tool {name} has no row in BUILT_IN of contract/tags.py")
        pool: ToolPool | None = getattr(self, "pool", None)
        rest: dict[str, Any] = {key: options[key] for key in options if key not in ("plan", "refuse")}
        rest["pool"] = pool
        tool = make_tool(method, toolset=self.toolset, tags=BUILT_IN[name], **rest)
        if refuse := options.get("refuse"):
            tool = _refusing(tool, MethodType(refuse, self))
        if (plan := options.get("plan")) and pool is not None:
            tool = _planning(tool, MethodType(plan, self), pool)
        return tool


def _refusing(tool: Tool, refuse: Callable[[dict[str, Any]], None]) -> Tool:
    check_types = tool.check

    def check(given: dict[str, Any]) -> dict[str, Any]:
        values = check_types(given) if check_types is not None else given
        refuse(values)
        return values

    return msgspec.structs.replace(tool, check=check)


def _planning(tool: Tool, plan: Callable[..., tuple[TextChange, ...]], pool: ToolPool) -> Tool:
    check = tool.check

    async def preview(ctx: ToolContext, arguments: dict[str, Any]) -> tuple[TextChange, ...]:
        return await pool.run(plan, ctx, check(arguments) if check is not None else arguments)

    return msgspec.structs.replace(tool, preview=preview)


def _find_named_files(arguments: dict[str, Any]) -> list[str]:
    from whet.tools.diffs import find_named_files  # noqa: PLC0415 - most sessions ask no such tool

    return find_named_files(arguments)


async def _propose_changes(ctx: ToolContext, arguments: dict[str, Any]) -> tuple[TextChange, ...]:
    from whet.tools.preview import propose_changes  # noqa: PLC0415 - most sessions ask no such tool

    return await asyncio.to_thread(propose_changes, ctx, arguments)


def read_arguments(name: str, parameters: tuple[Parameter, ...], raw: dict[str, Any]) -> dict[str, Any]:
    """Convert the arguments of a call to the function's types. Raises one BadInput that names every fault.

    null for an optional argument counts as omitted.
    """
    parameters_by_name = {parameter.name: parameter for parameter in parameters}
    unknown = (key for key in raw if key not in parameters_by_name)
    faults = [f"there is no argument {key!r}{suggest(key, parameters_by_name)}" for key in unknown]
    values: dict[str, Any] = {}
    for parameter in parameters:
        value = raw.get(parameter.name, _REQUIRED)
        if value is _REQUIRED or (value is None and not parameter.is_required):
            if parameter.is_required:
                expected = _describe_expected(parameter.schema)
                faults.append(f"argument '{parameter.name}' is missing ({expected})")
            continue
        try:
            values[parameter.name] = _convert(value, parameter.annotation, parameter.schema)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            expected = _describe_expected(parameter.schema)
            faults.append(f"argument '{parameter.name}' must be {expected}: {_describe_error(error, value)}")
    if faults:
        takes = ", ".join(parameters_by_name) or "none"
        raise BadInput(f"{name}: {'; '.join(faults)}. Its arguments: {takes}", hint="call it again, mended")
    return values


def object_schema(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the JSON schema of an object with these fields and no others."""
    fields = list(parameters)
    schema: dict[str, Any] = {"type": "object", "properties": {field.name: field.schema for field in fields}}
    if required := [field.name for field in fields if field.is_required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _nearest(word: str, candidates: Iterable[str]) -> str:
    """Return the name in `candidates` that `word` probably meant, or an empty string."""
    names = list(candidates)
    for name in names:
        if len(name) > 2 and (name in word or (len(word) > 2 and word in name)):
            return name
    import difflib  # noqa: PLC0415 - .5 ms that only a wrong name needs

    close = difflib.get_close_matches(word, names, n=1)
    return close[0] if close else ""


def suggest(word: str, candidates: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a question that names the nearest one, if any."""
    name = _nearest(word, candidates)
    return f", did you mean {name}?" if name else ""


def _handler(
    function: Callable[..., Any], name: str, parameters: tuple[Parameter, ...], pool: ToolPool | None
) -> Handler:
    if inspect.iscoroutinefunction(function):
        call = function
    elif pool is not None:
        call = _on_thread(function, pool)
    else:
        raise TypeError(f"tool {name} is synchronous and names no pool")
    takes_context = _takes_context(function)

    async def run(ctx: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        values = read_arguments(name, parameters, arguments)
        return _as_output(await (call(ctx, **values) if takes_context else call(**values)))

    return run


def _as_output(value: Any) -> ToolOutput:
    if isinstance(value, ToolOutput):
        return value
    return ToolOutput(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _on_thread(function: Callable[..., Any], pool: ToolPool) -> Callable[..., Awaitable[Any]]:
    is_stoppable = "stop" in _read_signature(function)[0]

    async def call(*context: ToolContext, **arguments: Any) -> Any:
        stop = threading.Event()
        if is_stoppable:
            arguments["stop"] = stop
        try:
            return await pool.run(function, *context, **arguments)
        finally:
            stop.set()

    return call


def _parameters(function: Callable[..., Any], tool_name: str) -> tuple[Parameter, ...]:
    by_name, hints = _read_signature(function)
    parameters: list[Parameter] = []
    for name in list(by_name)[_takes_context(function) :]:
        if hints.get(name) is threading.Event:
            continue
        if name not in hints:
            raise TypeError(f"tool {tool_name}: parameter {name} has no type")
        if by_name[name].kind not in _BY_NAME:
            raise TypeError(f"tool {tool_name}: parameter {name} can't be given by its name")
        default = by_name[name].default
        parameters.append(Parameter(name, hints[name], _schema(hints[name], default), default))
    return tuple(parameters)


def _takes_context(function: Callable[..., Any]) -> bool:
    by_name, hints = _read_signature(function)
    return hints.get(next(iter(by_name), "")) is ToolContext


def _read_signature(function: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    """Return a function's parameters and types. Methods are read once: each session makes its tools anew."""
    if isinstance(function, MethodType):
        return _read_method(function.__func__)
    return inspect.signature(function).parameters, _hints(function)


@lru_cache(512)
def _read_method(method: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    return inspect.signature(MethodType(method, method)).parameters, _hints(method)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    local: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the name is not set yet
            local[name] = cell.cell_contents
    try:
        return get_type_hints(function, localns=local, include_extras=True)
    except NameError as error:
        text = f"tool {function.__name__}: {error}; its types must be names of its module"
        raise TypeError(text) from error


def _description(function: Callable[..., Any], name: str) -> str:
    paragraph = (inspect.getdoc(function) or "").partition("\n\n")[0]
    if not paragraph:
        raise TypeError(f"tool {name} has no docstring to describe it")
    return " ".join(paragraph.split())


def _schema(annotation: Any, default: Any = _REQUIRED) -> dict[str, Any]:
    schema = _annotated_schema(annotation) if get_origin(annotation) is Annotated else _bare(annotation)
    untold: tuple[Any, ...] = (_REQUIRED, None, "", False, (), [], 1, *schema.get("enum", ())[:1])
    if default is True or default not in untold:
        schema["default"] = default
    return schema


def _annotated_schema(annotation: Any) -> dict[str, Any]:
    inner, *notes = get_args(annotation)
    schema = _bare(inner)
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, msgspec.Meta):
            least = None if inner is int and note.ge in (0, 1) and note.le is None else note.ge
            limits = {"description": note.description, "minimum": least, "maximum": note.le}
            schema.update({key: value for key, value in limits.items() if value is not None})
    return schema


def _bare(annotation: Any) -> dict[str, Any]:
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    if annotation is Any:
        return {}
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotated_schema(annotation)
    if origin is Literal:
        return {"type": _SCALARS[type(args[0])], "enum": list(args)}
    if origin in (Union, UnionType):
        return _union([arg for arg in args if arg is not NoneType])
    if annotation in (list, tuple) or origin in (list, tuple):
        return {"type": "array", "items": _schema(args[0])} if args else {"type": "array"}
    if annotation is dict or origin is dict:
        return {"type": "object"}
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return object_schema(_fields(annotation))
    raise TypeError(f"a tool's argument can't be of type {annotation!r}")


def _union(members: list[Any]) -> dict[str, Any]:
    schemas = [_schema(member) for member in members]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _fields(struct: type[msgspec.Struct]) -> Iterable[Parameter]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        default = _REQUIRED if field.required else field.default
        if default is msgspec.NODEFAULT:
            default = None
        hint = hints[field.name]
        yield Parameter(field.encode_name, hint, _schema(hint, default), default)


def _convert(value: Any, annotation: Any, schema: dict[str, Any]) -> Any:
    schema_type = schema.get("type")
    if schema_type in ("array", "object") and isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except NOT_JSON:
            raise msgspec.ValidationError("the text is not JSON") from None
    elif schema_type == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return from_values(value, annotation, strict=False)


def _describe_expected(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array" and "type" in schema.get("items", {}):
        return f"a list, each item {_WORDS[schema['items']['type']]}"
    return _WORDS.get(schema.get("type", ""), "as its schema says")


def _describe_error(error: msgspec.ValidationError | UnicodeEncodeError, value: Any) -> str:
    value_text = text if len(text := repr(value)) <= 60 else text[:57] + "..."
    detail = str(error).replace("`", "'")
    return f"got {value_text} ({detail[0].lower()}{detail[1:]})"
