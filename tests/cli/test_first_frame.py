"""The empty input line that the chat draws first, before its modules are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Tty, flags
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow


def test_the_input_line_is_drawn_first_and_keys_typed_meanwhile_count(tmp_path: Path) -> None:
    with PracticeServer() as server:
        environ = {
            "WHET_HOME": str(tmp_path / "home"),
            "PYTHONPROFILEIMPORTTIME": "1",
        }  # printed to the terminal
        with Tty(["chat", *flags(server)], tmp_path, environ=environ) as tty:
            before = tty.wait_for("› ")
            tty.type("hello there\r", "prompt_toolkit.application")
            assert "prompt_toolkit" not in before and "whet.app.build" not in before
            tty.wait_for("1 step")


def test_an_error_takes_the_place_of_the_input_line(tmp_path: Path) -> None:
    with PracticeServer() as server:
        under = ["sh", "-c", '"$@"; stty -a; echo ended', "sh"]
        arguments = ["chat", *flags(server), "--workspace", str(tmp_path / "none")]
        environ = {"WHET_HOME": str(tmp_path / "home")}
        with Tty(arguments, tmp_path, environ=environ, under=under) as tty:
            tty.wait_for("› ", "is not a folder")
            settings = tty.wait_for("ended")
            assert tty.drawn.index("\x1b[J") < tty.drawn.index("is not a folder")
            assert " echo " in settings and " icanon " in settings


def test_a_folder_beside_the_home_with_the_same_beginning_is_not_shown_as_below_it(tmp_path: Path) -> None:
    home, folder = tmp_path / "ann", tmp_path / "annex"
    home.mkdir()
    folder.mkdir()
    environ = {"HOME": str(home), "WHET_HOME": str(tmp_path / "whet")}
    with (
        PracticeServer() as server,
        Tty(["chat", *flags(server)], folder, columns=200, environ=environ) as tty,
    ):
        shown = tty.wait_for("Shift-Tab", f"practice-echo · {folder}")
        assert "~ex" not in shown


@pytest.mark.slow
def test_a_folder_with_a_hidden_character_is_shown_with_its_code(tmp_path: Path) -> None:
    folder = tmp_path / "w\u202excod"
    folder.mkdir()
    environ = {"HOME": str(tmp_path), "WHET_HOME": str(tmp_path / "whet")}
    with (
        PracticeServer() as server,
        Tty(["chat", *flags(server)], folder, columns=200, environ=environ) as tty,
    ):
        tty.wait_for("Shift-Tab", "practice-echo · ~/w<U+202E>xcod")
        assert "\u202e" not in tty.drawn
