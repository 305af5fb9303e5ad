"""Questions about writes: whether each interface shows all of what would be written, for every kind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.asked import Shown, blind, in_chat, in_editor, in_terminal, on_page
from tests.editors.rig import Desk
from tests.serve.conftest import Api
from tests.writes import WRITES

from benchmarks.table import Row
from whet_lab.practice.server import PracticeServer


def run(runs: int, full: bool) -> list[Row]:
    """Drive the real interfaces through the same writes and count the questions that show them whole."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        os.environ.update(WHET_HOME=str(root / "home"), WHET_SANDBOX_MODE="off")
        found = _shown(root)
    blinds = {name: blind(shown) for name, shown in found.items()}
    whole = {name: len(WRITES) - len({one.split(":")[0] for one in lines}) for name, lines in blinds.items()}
    asked = len(WRITES) * len(found)
    return [
        Row(
            "questions-writes",
            "questions about writes that carry the diff or the text, whole",
            "100 %",
            f"{sum(whole.values())} of {asked}: "
            + ", ".join(f"{name} {count} of {len(WRITES)}" for name, count in whole.items()),
            "-",
            sum(whole.values()) == asked,
            "python -m benchmarks questions",
            details=[f"- {name}: {line}" for name, lines in blinds.items() for line in lines],
        )
    ]


def _shown(root: Path) -> dict[str, Shown]:
    found: dict[str, Shown] = {}
    for name, one_shot in (("terminal", False), ("one-shot", True)):
        work = root / name
        work.mkdir()
        found[name] = in_terminal(work, one_shot=one_shot)
    with PracticeServer() as server:
        desk = Desk(_made(root / "editor"), server)
        try:
            found["editor"] = in_editor(desk)
        finally:
            desk.close()
    found["chat platform"] = in_chat(_made(root / "chat"))
    with PracticeServer() as server:
        api = Api(_made(root / "page"), server, mode="ask", web=True)
        try:
            found["API"], found["page"] = on_page(api)
        finally:
            api.close()
    return found


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
