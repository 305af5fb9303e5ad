"""Tags: properties of tools, for code that has only the tool's name from a stored call.

The tags of Whet's own tools are a table here, so that looking them up does not import the tools. `declare`
adds a tool of another package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

Tag = Literal[
    # About its arguments.
    "path",  # `path` names a file, `diff` several
    "edits",  # the tool changes those files
    "whole",  # `content` becomes the whole file
    "command",  # `command` is text for a shell that begins in `workdir`
    "background",  # `action` and `id` control a process that keeps running
    "url",  # `url` is the address that it contacts
    "looks",  # the call changes nothing
    # About its result.
    "local",  # observed on this machine, so it is evidence
    "search",  # a list of hits, which may be empty
    "own",  # the assistant's own earlier text: its list of tasks, notes or skills
    "asks",  # the person's answer
    "untrusted",  # text that others wrote
    # About its purpose.
    "tasks",  # keeps the list of tasks
    "notes",  # writes the memory
    "skills",  # writes skills
    "loads-skills",  # shows a skill's whole text
    "delegates",  # has a helper do something
    "templates",  # makes and chooses the templates of new sessions
    # About who may use it, and where it comes from.
    "probe",  # a review may call it
    "owner",  # only in the owner's sessions, because it reads them
    "aside",  # its calls are left out of examples, because they are not the work itself
    "mcp",  # a tool of an MCP server
    "destructive",  # its server says that it may destroy something
    "sends",  # its server says that it changes something in the outside world
    "deferred",  # not listed to the model at the start: the model searches for it
]


BUILT_IN: Mapping[str, frozenset[Tag]] = MappingProxyType(
    {
        "read_file": frozenset(("path", "looks", "local", "probe")),
        "write_file": frozenset(("path", "edits", "whole", "local")),
        "patch": frozenset(("path", "edits", "local")),
        "search_files": frozenset(("path", "looks", "search", "local", "probe")),
        "terminal": frozenset(("command", "local")),
        "process": frozenset(("background", "local", "aside")),
        "web_fetch": frozenset(("url", "looks", "untrusted")),
        "web_search": frozenset(("looks", "untrusted")),
        "todo": frozenset(("tasks", "own", "aside")),
        "clarify": frozenset(("asks", "aside")),
        "memory": frozenset(("notes", "own", "aside")),
        "skills_list": frozenset(("looks", "search", "own", "probe", "aside")),
        "skill_view": frozenset(("looks", "own", "loads-skills", "probe", "aside")),
        "skill_manage": frozenset(("skills", "own", "aside")),
        "warm_session": frozenset(("templates", "own", "owner", "aside")),
        "session_search": frozenset(("looks", "search", "probe", "aside")),
        "recall": frozenset(("looks", "own", "aside")),
        "delegate_task": frozenset(("delegates", "aside")),
        "code_symbols": frozenset(("path", "looks", "search")),
    }
)
"""The tags of Whet's own tools, by name."""
DECLARED: dict[str, frozenset[str]] = {}


def declare(name: str, *tags: Tag) -> frozenset[str]:
    """Store the tags of the tool `name` for this process, and return them for its `Tool`.

    Raises ValueError for an unknown tag, and if the tool has other tags already.
    """
    tag_set = frozenset[str](tags)
    if unknown := sorted(tag_set - frozenset[str](get_args(Tag))):
        raise ValueError(f"{name}: {unknown} are not tags")
    if (BUILT_IN.get(name) or DECLARED.setdefault(name, tag_set)) != tag_set:
        raise ValueError(f"{name} is declared twice")
    return tag_set


def tags_of(name: str) -> frozenset[str]:
    """Return the tags of a tool, or an empty set if the tool is unknown."""
    return BUILT_IN.get(name) or DECLARED.get(name, frozenset())
