"""Run each tool of a plugin once in a sandbox, with arguments made from its schema.

The sandbox has no network, and its only writable folder holds a copy of the plugin. No tool runs if the
system has no sandbox. The tools' effects on external services are not tested.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.config.paths import Home
from whet.config.schema import PluginSettings
from whet.contract.errors import BadInput, ToolError
from whet.contract.texts import NOT_JSON, as_object, from_json
from whet.contract.tools import Tool, ToolContext, ToolSpec
from whet.plugins.calls import within
from whet.plugins.load import PluginHost, load_plugins
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.policy import Opening

_LIMIT_S = 60.0
_TOOL_LIMIT_S = 10.0
_REPORT = "report.json"
_PAGE = "README.md"
_MAX_CHARS = 160
_MAX_DEEP = 5


def try_tools(home: Home, name: str, folder: Path | None) -> dict[str, str]:
    """Run each tool of a plugin. Returns "" for each tool that answered, otherwise a short reason.

    `folder` is the plugin's folder, None for an installed package. The result is empty if there is no
    sandbox.
    """
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as temp_folder:
        workspace = Path(temp_folder).resolve()
        if folder is not None:
            shutil.copytree(folder, workspace / "home" / "plugins" / folder.name, symlinks=True)
        (workspace / _PAGE).write_text("# A page to read\n")
        confinement = Confinement(ConfinementSettings("auto", home.root))
        try:
            if not confinement.status().holds:
                return {}
            readable = {*sys.path, sys.prefix, sys.base_prefix}
            confinement.add_openings(
                "doctor", [Opening("read", path) for path in readable if os.path.isdir(path)]
            )
            jail = confinement.jail(workspace, "doctor")
            return {} if jail is None else _run_in_jail(jail, workspace, name)
        except ToolError:
            return {}
        finally:
            confinement.close()


def _run_in_jail(jail: Jail, workspace: Path, name: str) -> dict[str, str]:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(workspace),
        "WHET_HOME": str(workspace / "home"),
    }
    command = [sys.executable, "-m", "whet.plugins.trial", str(workspace), name]
    code, output = jail.run(JailedCommand(command, jail.environment(environment), workspace), _LIMIT_S)
    try:
        return from_json((workspace / _REPORT).read_bytes(), dict[str, str])
    except (OSError, *NOT_JSON):
        last_line = output.strip().rpartition("\n")[2][:_MAX_CHARS]
        return {"": f"the run of its tools ended with code {code}. {last_line}"}


def sample(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """Make a simple value that a JSON schema allows, with only the required properties."""
    if depth > _MAX_DEEP:
        return None
    for keyword in ("default", "const"):
        if keyword in schema:
            return schema[keyword]
    for keyword in ("enum", "examples"):
        if values := _list_at(schema, keyword):
            return values[0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if values := _list_at(schema, keyword):
            return sample(as_object(values[0]), depth + 1)
    return _sample_of_type(schema, depth)


def _sample_of_type(schema: Mapping[str, Any], depth: int) -> Any:
    kinds = _list_at(schema, "type")
    match str(kinds[0] if kinds else schema.get("type")):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "array":
            return [sample(as_object(schema.get("items")), depth + 1)]
        case "object":
            properties = as_object(schema.get("properties"))
            return {
                str(property_name): sample(as_object(properties.get(property_name)), depth + 1)
                for property_name in _list_at(schema, "required")
            }
        case "null":
            return None
        case _:
            return _PAGE


def _list_at(schema: Mapping[str, Any], name: str) -> list[Any]:
    value: object = schema.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def arguments_for(spec: ToolSpec) -> dict[str, Any]:
    """Make arguments for a call of the tool."""
    return as_object(sample({"type": "object", **spec.parameters}))


async def run_once(tool: Tool, workspace: Path) -> str:
    """Call a tool once. Returns "" if it answered, otherwise the reason."""

    async def give_no_answer(_question: str, _choices: Sequence[str]) -> None:
        return None

    context = ToolContext("doctor", "turn", "call", workspace, lambda _text: None, give_no_answer)
    try:
        output = await within(_TOOL_LIMIT_S, tool.run(context, arguments_for(tool.spec)))
    except BadInput as error:
        return f"it refuses arguments made from its own schema: {error.message}"
    except ToolError as error:
        return f"it failed: {error.message}"
    except TimeoutError:
        return f"it did not end in {_TOOL_LIMIT_S:g} s"
    if not output.is_error:
        return ""
    return f"it {'crashed' if output.error_kind == 'crashed' else 'says'}: {' '.join(output.text.split())}"


def main(workspace: Path, name: str) -> None:
    """Run the tools of a plugin and write the outcomes to the report file."""
    host = PluginHost(workspace=workspace)
    with closing(
        load_plugins(Home(workspace / "home"), PluginSettings(enabled=(name,)), os.environ, host)
    ) as loaded:
        results = {tool.name: asyncio.run(run_once(tool, workspace))[:_MAX_CHARS] for tool in loaded.tools}
    (workspace / _REPORT).write_bytes(msgspec.json.encode(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
