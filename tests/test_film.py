"""The README's film: screens become one SVG without a script; who wants no motion sees the last one."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def film() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "film.py"))


def test_a_line_keeps_its_colours_columns_and_signs(film: dict[str, Any]) -> None:
    drawn = film["line_of"]("  \x1b[1;32mok\x1b[0m  \x1b[38;5;196m<日>\x1b[39m plain")
    texts = ET.fromstring(f"<g>{drawn}</g>").findall("text")
    assert [text.text for text in texts] == ["ok", "<日>", "plain"]
    assert [round(float(text.attrib["x"]) / film["WIDTH"]) for text in texts] == [2, 6, 11]
    assert [text.attrib.get("fill") for text in texts] == ["#7ee787", "#ff0000", None]
    assert texts[0].attrib["font-weight"] == "bold" and "font-weight" not in texts[1].attrib


def test_a_ground_is_drawn_and_goes_on_to_the_right_edge(film: dict[str, Any]) -> None:
    drawn = film["line_of"]("a \x1b[48;5;22m+b", 20)
    boxes = [box.attrib for box in ET.fromstring(f"<g>{drawn}</g>").findall("rect")]
    assert [box["fill"] for box in boxes] == ["#005f00"] * 2
    assert [round(float(box["x"]) / film["WIDTH"]) for box in boxes] == [2, 4]
    assert film["line_of"]("", 20) == ""


def test_a_picture_of_a_phone_is_stored_once(film: dict[str, Any], tmp_path: Path) -> None:
    frames = [
        film["Frame"](at_s, (text,), None, "data:image/webp;base64,AAAA")
        for at_s, text in ((0, "a"), (1, "b"))
    ]
    film["write_film"](tmp_path / "a.svg", frames, (40, 20), title="A")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert svg.count("AAAA") == 1 and svg.count("<use") == 4


def test_long_waits_are_cut_and_nothing_comes_at_the_same_moment(film: dict[str, Any]) -> None:
    frames = [film["Frame"](at_s, ("x",), None) for at_s in (0.0, 0.001, 60.0)]
    times, length = film["starts"](frames)
    assert times == [0.0, film["SHORTEST_S"], film["SHORTEST_S"] + film["LONGEST_STILL_S"]]
    assert length == times[-1] + film["LAST_S"]


def test_a_film_is_one_file_with_each_line_drawn_once(film: dict[str, Any], tmp_path: Path) -> None:
    frames = [film["Frame"](at_s, ("$ whet", text), (0, 1)) for at_s, text in ((0, ""), (1, "hello & <b>"))]
    film["write_film"](tmp_path / "a.svg", frames, (20, 2), title="A & B")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    root = ET.fromstring(svg)
    assert len(root.findall(f"{SVG}defs/{SVG}g")) == 2
    assert root.findtext(f"{SVG}title") == "A & B"
    assert "prefers-reduced-motion" in svg and "<script" not in svg and "url(" not in svg
    assert svg.count("http") == 1, "but for the namespace it names no address"


def test_the_recording_of_the_readme_shows_the_edit_the_question_and_the_sandbox() -> None:
    svg = (DOCS / "images" / "first-edit.svg").read_text("utf-8")
    shown = "".join(ET.fromstring(svg).itertext())
    for words in (
        "uv tool install",
        "whet 0.",
        "wants to change",
        "Yes, once: only this change",
        "+1 −1",
        "the sandbox lets no command",
        "OK",
    ):
        assert words in shown, words
    assert shown.count("Traceback") == 1, "the failing test's, and none of ours"
    assert (DOCS / "images" / "first-edit.svg").stat().st_size < 200_000
