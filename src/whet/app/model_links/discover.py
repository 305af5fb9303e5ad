"""Find a model for a first run: keys in the environment, then servers on this machine, then practice.

Nothing leaves the machine: keys are only looked up, and only servers on loopback are asked for their models,
all at once and for at most half a second. The person is asked through two callables; this module does not
know the terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from urllib.parse import urlsplit

import msgspec

from whet.config.edit import set_value
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import ConfigError
from whet.contract.texts import NOT_JSON, from_foreign_json
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.providers.catalog import SERVERS

PROBE_LIMIT_S = 0.5
_MAX_ANSWER_BYTES = 512 * 1024
_NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts")


class ModelChoice(msgspec.Struct, frozen=True):
    """A model that could be used: the values for config.yaml, and why it is offered. An empty `model` means
    the provider's default."""

    provider: str
    model: str
    reason: str

    @property
    def line(self) -> str:
        """The choice in one line for a person."""
        return f"{self.provider}{' · ' + self.model if self.model else ''}  ({self.reason})"


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def needs_model(settings: Settings) -> bool:
    """Return whether no model server is configured yet."""
    return not settings.model.provider and not settings.model.base_url


def discover(secrets: Mapping[str, str]) -> list[ModelChoice]:
    """List the models that could answer, the best first. Takes at most half a second.

    Runs an event loop, so it can't be called inside one.
    """
    local = {name: server.base_url for name, server in SERVERS.items() if server.local and name != "practice"}
    return [*list_by_keys(secrets), *asyncio.run(list_by_servers(local)), practice_choice()]


def list_by_keys(secrets: Mapping[str, str]) -> list[ModelChoice]:
    """List the providers whose key is in `secrets` (environment and .env)."""
    choices: list[ModelChoice] = []
    for name, server in SERVERS.items():
        variable = next((key for key in server.keys if secrets.get(key)), "")
        if variable:
            choices.append(ModelChoice(name, server.model, f"{variable} is set"))
    return choices


def practice_choice() -> ModelChoice:
    """Return the practice model, which is always available."""
    return ModelChoice(
        "practice", SERVERS["practice"].model, "a scripted stand-in to try things out, no key needed"
    )


async def list_by_servers(
    base_urls: Mapping[str, str], *, limit_s: float = PROBE_LIMIT_S
) -> list[ModelChoice]:
    """Ask local servers (name: base URL) for their models, all at once, within `limit_s` in total."""
    probes = {name: asyncio.create_task(_probe(name, url)) for name, url in base_urls.items()}
    if not probes:
        return []
    await asyncio.wait(probes.values(), timeout=limit_s)
    for task in probes.values():
        task.cancel()
    answers = await asyncio.gather(*probes.values(), return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, ModelChoice)]


async def _probe(name: str, base_url: str) -> ModelChoice | None:
    client = HttpClient(Limits(), uses_proxy=False)
    request = Request("GET", f"{base_url}/models", {"accept": "application/json"})
    models: list[str] | None = None
    body = b""
    try:
        async with client.exchange(request) as answer, aclosing(answer.chunks()) as chunks:
            # Some servers keep the connection open after a body of unknown length.
            while answer.status == 200 and models is None and len(body) < _MAX_ANSWER_BYTES:
                body += await anext(chunks)
                models = _parse_models(body)
    except (HttpFailed, StopAsyncIteration):
        return None
    finally:
        await client.aclose()
    if models is None:
        return None
    able = [model for model in models if not any(word in model.lower() for word in _NOT_FOR_CHAT)]
    model = able[0] if able else SERVERS[name].model
    return ModelChoice(name, model, f"answers on {urlsplit(base_url).netloc}")


def _parse_models(body: bytes) -> list[str] | None:
    """Return the names in a list of models, or None if the body is not complete."""
    try:
        return [model.id for model in from_foreign_json(body, _Models).data]
    except NOT_JSON:
        return None


def ask_person(
    choices: Sequence[ModelChoice], say: Callable[[str], None], read_line: Callable[[str], str]
) -> ModelChoice:
    """Offer `choices` and return the one that the person picks; an empty line picks the first. Raises
    EOFError if the input ends."""
    say("No model is set yet. Found on this machine:")
    for number, choice in enumerate(choices, start=1):
        say(f"  {number}  {choice.line}")
    if [choice.provider for choice in choices] == ["practice"]:
        say("For a real model: `whet model login openrouter`, or set a key such as ANTHROPIC_API_KEY.")
    several = len(choices) > 1
    question = f"Which one? [1-{len(choices)}, Enter = 1] " if several else "Use it? [Enter = yes] "
    while True:
        answer = read_line(question).strip()
        if not answer:
            return choices[0]
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(choices):
            return choices[int(answer) - 1]
        matches = [choice for choice in choices if choice.provider == answer.lower()]
        if matches:
            return matches[0]
        if not several and answer.lower() in ("y", "yes"):
            return choices[0]
        other = "Press Enter to use it, or Ctrl-C and set another with `whet config set model.provider NAME`."
        say(f"Please type a number from 1 to {len(choices)}." if several else other)


def save_choice(home: Home, choice: ModelChoice) -> None:
    """Write the choice to config.yaml; it is on disk on return. Raises ConfigError."""
    set_value(home, "model.provider", choice.provider)
    if choice.model:
        set_value(home, "model.model", choice.model)


def choose_model(
    home: Home, secrets: Mapping[str, str], say: Callable[[str], None], read_line: Callable[[str], str] | None
) -> ModelChoice:
    """Find a model, ask the person and save the choice. If `read_line` is None, no one is at a terminal, and
    ConfigError says what to set."""
    if read_line is None:
        raise no_model_error(list_by_keys(secrets))
    choice = ask_person(discover(secrets), say, read_line)
    save_choice(home, choice)
    say(f"Saved to {home.config}; `whet model set NAME` changes the model.")
    return choice


def no_model_error(choices: Sequence[ModelChoice]) -> ConfigError:
    """Return the error for a run without a model and without a terminal."""
    if choices:
        first = choices[0]
        return ConfigError(
            f"no model is set; {first.reason}, so: whet config set model.provider {first.provider}",
            hint=f"for one run: --provider {first.provider}",
        )
    return ConfigError(
        "no model is set: set OPENAI_API_KEY, ANTHROPIC_API_KEY or another key, and model.provider",
        hint="whet config set model.provider NAME, or --provider NAME --model NAME --base-url URL",
    )
