"""`tags_of` with the tags of every built-in tool, also in a process that offers none of them.

For what reads stored calls, of which only the tools' names are left.
"""

from whet.contract.tools import tags_of
from whet.tools import (  # noqa: F401  each declares the tags of its tools
    ask,
    delegate,
    files,
    patch,
    recall,
    remember,
    search,
    sessions,
    shell,
    skills,
    todo,
    warm,
    web,
)

__all__ = ["tags_of"]
