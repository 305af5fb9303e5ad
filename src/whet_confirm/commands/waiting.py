"""The option for how long a held call waits for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from whet_confirm.names import SHORTEST_S

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def timeout_option(*, clamp: bool = False) -> Decorator:
    """Return the option --timeout. A value below the minimum is refused, or raised to it with `clamp`."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.IntRange(SHORTEST_S, clamp=clamp),
        default=300,
        show_default=True,
        help="Seconds to wait for a person.",
    )
