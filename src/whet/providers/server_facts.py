"""Ask a model server for the models that it serves and, if it is local, for the model's actual window.

Ollama, llama.cpp, vLLM and LM Studio each report the window in a different field, and a model's nominal
window differs from the one that it was loaded with. If anything fails, the window is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from whet.contract.errors import ProviderError
from whet.contract.protocols import ModelInfo
from whet.contract.texts import from_foreign_json
from whet.providers import failures
from whet.providers.http import Http

_UNKNOWN = (
    ProviderError,
    msgspec.DecodeError,
    UnicodeError,
    LookupError,
    TypeError,
    AttributeError,
    StopIteration,
)


class _Probe(msgspec.Struct, frozen=True):
    """A request for the window. `path` is below the server's root; `uses_post`: the model is named in a POST
    body. `read` returns the window from the answer and the model's name."""

    path: str
    read: Callable[[Any, str], Any]
    uses_post: bool = False


def _ollama_loaded_window(answer: Any, model: str) -> Any:
    names = {model, f"{model}:latest"}
    rows = (row for row in answer["models"] if row.get("name") in names or row.get("model") in names)
    return next(rows)["context_length"]


def _ollama_nominal_window(answer: Any, model: str) -> Any:
    match = re.search(r"num_ctx\s+(\d+)", answer.get("parameters") or "")
    if match:
        return int(match[1])
    facts = answer["model_info"]
    return next(value for name, value in facts.items() if name.endswith(".context_length"))


def _find_field(answer: Any, model: str, field: str) -> Any:
    return next(row for row in answer["data"] if row.get("id") == model)[field]


_PROBES: dict[str, tuple[_Probe, ...]] = {
    "ollama": (
        _Probe("/api/ps", _ollama_loaded_window),
        _Probe("/api/show", _ollama_nominal_window, uses_post=True),
    ),
    "llamacpp": (_Probe("/props", lambda answer, _: answer["default_generation_settings"]["n_ctx"]),),
    "vllm": (_Probe("/v1/models", lambda answer, model: _find_field(answer, model, "max_model_len")),),
    "lmstudio": (
        _Probe("/api/v0/models", lambda answer, model: _find_field(answer, model, "loaded_context_length")),
        _Probe("/api/v0/models", lambda answer, model: _find_field(answer, model, "max_context_length")),
    ),
}


async def ask_window(http: Http, info: ModelInfo, headers: Mapping[str, str]) -> int | None:
    """Ask the server for the window of `info.model` in tokens. Returns None if it is not known."""
    root = http.base_url.removesuffix("/v1")
    for probe in _PROBES.get(info.provider, ()):
        body = msgspec.json.encode({"model": info.model}) if probe.uses_post else None
        try:
            answer = from_foreign_json(await http.get(info, root + probe.path, headers, body=body), object)
            tokens = probe.read(answer, info.model)
        except _UNKNOWN:
            continue
        if isinstance(tokens, int) and tokens > 0:
            return tokens
    return None


class _Model(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Models(msgspec.Struct):
    data: list[_Model] | None = None
    models: list[_Model] | None = None


async def list_models(http: Http, info: ModelInfo, query: str, headers: Mapping[str, str]) -> list[str]:
    """Ask the server which models it serves, sorted. Raises ProviderError."""
    body = await http.get(info, http.base_url + query, headers)
    try:
        models = from_foreign_json(body, _Models)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise failures.unreadable_error(info, body, "no list of models") from error
    rows = models.data or models.models or ()
    return sorted({row.id or row.name for row in rows if row.id or row.name})
