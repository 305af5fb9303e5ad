"""Read a document as text in a process of its own, within limits of memory, time and output.

Documents are untrusted, and a parser runs until it is done: a file of 400 bytes can keep a thread busy for
a minute or fill the machine's memory, and a thread can't be ended. The kernel ends this process instead.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from whet.contract.errors import ToolError

_CHILD_CODE = (
    "import json, sys; sys.path += json.loads(sys.argv[1]); "
    "from whet.tools.document_process import main; main(sys.argv[2:])"
)
_PACKAGES = str(Path(__file__).parents[2])
MAX_BYTES = 50_000_000
_POLL_S = 0.05
_CLOCK_S_PER_CPU_S = 4
_MAX_CHAR_BYTES = 12  # JSON escapes a character outside the BMP as two units of 6 bytes
_ANSWER_BYTES = 10_000


class ReadLimits(NamedTuple):
    """The most that reading one document may take: memory, and seconds of CPU."""

    memory_mb: int = 1_024
    seconds: int = 30


class DocumentText(NamedTuple):
    """A document's text, and whether it was cut."""

    text: str
    is_cut: bool


def read_document(
    stream: BinaryIO,
    max_chars: int,
    stopped: Callable[[], bool] = lambda: False,
    limits: ReadLimits | None = None,
) -> DocumentText | None:
    """Return a document's text, or None if the file is not a document.

    Blocks until the document is read, a limit is reached, or `stopped`. Raises ToolError.
    """
    limits = limits or ReadLimits()
    python = (sys.executable or "python3", "-I", "-S", "-W", "ignore", "-c", _CHILD_CODE)
    command = [*python, _encode_search_path(), *map(str, (max_chars, limits.memory_mb, limits.seconds))]
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as answer:
        stream.seek(0)
        while piece := stream.read(1 << 20):
            source.write(piece)
        source.seek(0)
        process = subprocess.Popen(
            command, stdin=source, stdout=answer, stderr=subprocess.DEVNULL, env={}, cwd="/"
        )
        try:
            while _wait_briefly(process):
                if stopped():
                    raise ToolError("reading the document was stopped")
        finally:
            process.kill()
            process.wait()
        answer.seek(0)
        return _parse_answer(answer.read(), process.returncode, limits)


def _wait_briefly(process: subprocess.Popen[bytes]) -> bool:
    """Wait for a moment. Returns whether the process still runs."""
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _parse_answer(answer: bytes, code: int, limits: ReadLimits) -> DocumentText | None:
    fields: object = None
    with contextlib.suppress(ValueError):
        fields = json.loads(answer) if code == 0 else None
    match fields:
        case {"kind": ""}:
            return None
        case {"text": str(text), "is_cut": bool(is_cut)}:
            return DocumentText(text, is_cut)
        case {"error": str(message), "hint": str(hint)}:
            raise ToolError(message, hint=hint)
        case _:
            raise ToolError(
                f"the document can't be read in {limits.seconds} s of CPU and {limits.memory_mb:,} MB",
                hint="convert it, or a part of it, to text with a shell command",
            )


def _encode_search_path() -> str:
    """Return as JSON the folders of the child's modules: Whet's own, and that of pypdf."""
    spec = importlib.util.find_spec("pypdf")
    origin = spec.origin if spec is not None else None
    return json.dumps([_PACKAGES, *([str(Path(origin).parents[1])] if origin else [])])


def main(arguments: list[str]) -> None:
    """Read the document from the standard input and write the answer as JSON to the standard output."""
    max_chars, memory_mb, seconds = map(int, arguments)
    _limit_process(max_chars, memory_mb, seconds)
    from whet.tools import documents  # noqa: PLC0415 - under the limits, like everything that it imports

    fields: dict[str, object]
    with os.fdopen(0, "rb") as stream:
        try:
            kind = documents.kind_of(stream.read(1024), stream)
            fields = {"kind": kind}
            if kind:
                text, is_cut = documents.text_of(kind, stream, max_chars)
                fields |= {"text": text, "is_cut": is_cut}
        except ToolError as error:
            fields = {"error": error.message, "hint": error.hint}
    sys.stdout.write(json.dumps(fields))
    sys.stdout.flush()
    os._exit(0)  # freeing a large document piece by piece takes time


def _limit_process(max_chars: int, memory_mb: int, seconds: int) -> None:
    """Have the kernel end this process at its limits. It may write its answer and no other file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.alarm(seconds * _CLOCK_S_PER_CPU_S)
    output_bytes = max_chars * _MAX_CHAR_BYTES + _ANSWER_BYTES
    limits = {
        resource.RLIMIT_AS: memory_mb << 20,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: output_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for number, most in limits.items():
        _, hard = resource.getrlimit(number)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))
