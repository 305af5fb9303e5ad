"""Describe an HTTP API as a table of operations; route requests and write the OpenAPI document from it.

An operation has a method and path, the roles that may call it, and the types of its body and answers, from
which schemas are generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF = "#/components/schemas/{name}"
Methods = Mapping[str, "Operation"]
JSON_OBJECT = dict[str, Any]


class Media(msgspec.Struct, frozen=True):
    """An answer of a media type other than JSON."""

    content_type: str


EVENT_STREAM = Media("text/event-stream")


class RequestParameter(msgspec.Struct, frozen=True):
    """A parameter in the query, a header or the path. It is optional except in the path. A parameter of the
    path is a string unless it is declared."""

    name: str
    value_type: Any = str
    location: Literal["query", "header", "path"] = "query"
    description: str = ""


class Operation(msgspec.Struct, frozen=True):
    """One call.

    - `roles`: the token roles that may call it; (): any token; None: no token is needed
    - `body`: the type of its body, or None
    - `answers`: the type of the answer for each status, or a tuple if the client chooses the content type
    - `failures`: statuses of errors that only this operation has
    - `rechecks_token`: its own transaction checks the caller's token, so before it a cached check is enough
    """

    method: str
    path: str
    handler: Callable[..., Any]
    roles: tuple[str, ...] | None = ()
    body: Any = None
    needs_body: bool = True
    answers: Mapping[int, Any] = msgspec.field(default_factory=lambda: {200: JSON_OBJECT})
    parameters: tuple[RequestParameter, ...] = ()
    failures: tuple[int, ...] = ()
    rechecks_token: bool = False

    @property
    def summary(self) -> str:
        """A one-line summary: the first sentence of the handler's docstring."""
        sentence = " ".join((self.handler.__doc__ or "").split()).partition(". ")[0]
        return sentence.removesuffix(".")

    @property
    def is_stream(self) -> bool:
        """Whether every answer is a stream of events."""
        return all(answer == EVENT_STREAM for answer in self.answers.values())


class Routes:
    """Finds the operations of a raw path by a table look-up.

    Only the second segment of a path may be a parameter. An encoded slash does not divide segments.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._exact: dict[bytes, dict[str, Operation]] = {}
        self._by_parts: dict[tuple[bytes, ...], dict[str, Operation]] = {}
        for operation in operations:
            methods = self._methods_of(operation.path)
            methods[operation.method] = operation
            if operation.method == "GET" and not operation.is_stream:
                methods["HEAD"] = operation
        self._first = frozenset(path.split(b"/", 2)[1] for path in self._exact)

    def find(self, path: bytes) -> tuple[Methods, bytes] | None:
        """Return a path's operations by method, and the value of its parameter (b"" without one). Returns
        None for an unknown path."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, b""
        parts = path.split(b"/")
        if len(parts) < 3 or parts[0]:
            return None
        methods = self._by_parts.get((parts[1], *parts[3:]))
        return None if methods is None else (methods, parts[2])

    def covers(self, path: bytes) -> bool:
        """Return whether this table answers a path, if only with 404."""
        return path.split(b"/", 2)[1] in self._first if path.startswith(b"/") else True

    def _methods_of(self, path: str) -> dict[str, Operation]:
        if "{" not in path:
            return self._exact.setdefault(path.encode(), {})
        parts = path.split("/")
        if len(parts) < 3 or not _PARAMETER.fullmatch(parts[2]) or len(_PARAMETER.findall(path)) != 1:
            raise ValueError(f"{path}: only the second segment may be a parameter")
        return self._by_parts.setdefault((parts[1].encode(), *(p.encode() for p in parts[3:])), {})


def build_document(
    info: Mapping[str, str],
    operations: Sequence[Operation],
    error: type,
    *,
    failures: Sequence[int] = (),
    named: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document.

    `error` is the type of every error's body. `failures` are the error statuses of all operations (empty:
    `default`). `named` are further types, such as the events of streams.
    """
    named = named or {}
    types = [error, *named.values(), *(shape for operation in operations for shape in _types_of(operation))]
    json_schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    # keyed by identity: the operations keep the types alive
    schemas = dict(zip(map(id, types), json_schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        errors = {str(status): "refused, and why" for status in (*operation.failures, *failures)} or {
            "default": "refused, and why"
        }
        calls = paths.setdefault(_PARAMETER.sub(r"{\1}", operation.path), {})
        calls[operation.method.lower()] = _describe(operation, schemas, _content(schemas, error), errors)
    return {
        "openapi": "3.1.0",
        "info": dict(info),
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, **{name: schemas[id(shape)] for name, shape in named.items()}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(
    operation: Operation, schemas: Mapping[int, Any], error: Any, errors: Mapping[str, str]
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": "the answer", "content": _content(schemas, *_alternatives(types))}
        for status, types in operation.answers.items()
    }
    for status, text in errors.items():
        responses.setdefault(status, {"description": text, "content": error})
    entry: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    names = [parameter.name for parameter in operation.parameters]
    in_path = (
        RequestParameter(name, location="path")
        for name in _PARAMETER.findall(operation.path)
        if name not in names
    )
    parameters = (*in_path, *operation.parameters)
    if parameters:
        entry["parameters"] = [_describe_parameter(parameter, schemas) for parameter in parameters]
    if operation.body is not None:
        entry["requestBody"] = {
            "required": operation.needs_body,
            "content": _content(schemas, operation.body),
        }
    if operation.roles is None:
        entry["security"] = []
    return entry


def _describe_parameter(parameter: RequestParameter, schemas: Mapping[int, Any]) -> dict[str, Any]:
    shape = schemas.get(id(parameter.value_type), {"type": "string"})
    entry = {
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.location == "path",
        "schema": shape,
    }
    return {**entry, "description": parameter.description} if parameter.description else entry


def _content(schemas: Mapping[int, Any], *types: Any) -> dict[str, Any]:
    return {
        shape.content_type if isinstance(shape, Media) else "application/json": {
            "schema": {"type": "string"} if isinstance(shape, Media) else schemas[id(shape)]
        }
        for shape in types
    }


def _types_of(operation: Operation) -> Iterable[Any]:
    answer_types = (shape for status in operation.answers.values() for shape in _alternatives(status))
    parameters = (parameter.value_type for parameter in operation.parameters)
    return (
        shape
        for shape in (operation.body, *answer_types, *parameters)
        if shape is not None and type(shape) is not Media
    )


def _alternatives(value: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
