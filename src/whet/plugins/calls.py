"""Call a plugin's function with the keywords it accepts, on a thread, within a time limit, and name it in
errors.

Each synchronous call gets its own thread. A pool would be exhausted by hooks that wait for the model, and a
thread that hangs would delay the program's exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from whet.contract.errors import PluginError, WhetError
from whet.lanes import call_in_loop
from whet.log import mask
from whet.plugins.printing import by_plugin

log: logging.Logger = logging.getLogger("whet.plugins")


@contextmanager
def attribute_errors(plugin: str, hook: str) -> Generator[None]:
    """Convert any exception of a plugin's code into a PluginError that names the plugin, and log the
    traceback.

    Our own errors (ToolError, PluginError, ...), cancellation and Ctrl-C pass through.
    """
    try:
        yield
    except WhetError:
        raise
    except (Exception, SystemExit) as error:
        log.exception("the plugin %s failed in %s", plugin, hook)
        raise PluginError(reason_of(error), plugin=plugin, hook=hook) from error


def reason_of(error: BaseException) -> str:
    """Describe an exception in one line, with secrets masked."""
    if isinstance(error, SystemExit):
        return "it tried to end the program"
    text = " ".join(str(error).split())
    return mask(f"{type(error).__name__}: {text}" if text else type(error).__name__)[:300]


def accepted_keywords(function: Callable[..., object], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that `function` accepts; all of them if it accepts any or can't be inspected."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(keywords)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(keywords)
    names = {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    return {name: value for name, value in keywords.items() if name in names}


async def call(function: Callable[..., object], *arguments: object, **keywords: object) -> Any:
    """Call a synchronous function in a thread, an asynchronous one here, and return its result.

    If cancelled, the thread finishes on its own; it does not delay the program's exit.
    """
    bound = partial(function, *arguments, **keywords)
    with by_plugin():
        if is_async(function):
            return await _await_result(bound())
        return await _await_result(await _on_thread(bound))


async def within(limit_s: float, awaitable: Awaitable[Any]) -> Any:
    """Await `awaitable` for at most `limit_s`. Raises TimeoutError with a message."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await awaitable
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"no answer in {limit_s:g} s") from error
        raise


def is_async(function: Callable[..., object]) -> bool:
    """Return whether calling the function returns an awaitable."""
    bare: object = function.func if isinstance(function, partial) else function  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (any callable)
    return inspect.iscoroutinefunction(bare) or inspect.iscoroutinefunction(getattr(bare, "__call__", None))  # noqa: B004 an object's own __call__ may be async


async def _await_result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _on_thread(function: Callable[[], object]) -> object:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def complete(value: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value: object = None
        failure: BaseException | None = None
        try:
            value = context.run(function)
        except StopIteration as error:
            # A future rejects StopIteration and would never complete.
            failure = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            failure = error
        call_in_loop(loop, complete, value, failure)

    threading.Thread(target=run, name="plugin", daemon=True).start()
    return await future
