"""The practice model's task of surveying weather stations, one file per step, and recalling code words.

The survey can be of any length; the next station is read from the newest call in the request. A code word
is answered only from the request: if the message with it has left the window, the model first calls
`recall`.
"""

from __future__ import annotations

import re

import msgspec

from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import ToolUse, fill_arguments

MATCH = re.compile(r"survey (?:all )?the (\d+) stations", re.I)
QUESTION = re.compile(r"code words? (?:has|have|of) stations? ([\d, and]+)", re.I)

_STATION = re.compile(r"stations/station-(\d+)\.txt")


def station_path(station: int) -> str:
    """Return the path of a station's file."""
    return f"stations/station-{station:04d}.txt"


def station_page(station: int, word: str = "") -> str:
    """Return the content of a station's file. `word` is its code word, or empty."""
    weather = ("clear", "cloudy", "rain", "fog", "wind")[station % 5]
    lines = [
        f"station {station:04d}",
        f"weather: {weather}, {station * 7 % 31 - 5} degrees",
        f"pressure: {980 + station % 50} hPa",
    ]
    if word:
        lines.append(f"code word of station {station:04d}: {word}")
    return "\n".join([*lines, "instruments checked, no repair needed, next visit in spring"]) + "\n"


def proceed(request: PracticeRequest, start: int) -> ScriptedReply:
    """Read the next station of the survey that message `start` asks for."""
    match = MATCH.search(request.messages[start].text)
    count = int(match[1]) if match else 0
    calls = [
        (int(path_match[1]), item)
        for item in request.completed_calls
        if (path_match := _STATION.search(str(item.arguments)))
    ]
    if calls and (calls[-1][1].is_denied or f"station {calls[-1][0]:04d}" not in calls[-1][1].result):
        return ScriptedReply(f"I stopped at station {calls[-1][0]}: {calls[-1][1].result.strip()[:200]}")
    last = calls[-1][0] if calls else 0
    if last >= count:
        return ScriptedReply(f"All {count} stations are surveyed.")
    return ToolUse(request).use("read_file", path=station_path(last + 1))


def answer(request: PracticeRequest, start: int) -> ScriptedReply:
    """Answer message `start`, which asks for code words."""
    match = QUESTION.search(request.messages[start].text)
    stations = [int(number) for number in re.findall(r"\d+", match[1] if match else "")]
    transcript = "\n".join(message.text for message in request.messages)
    words = {n: re.search(rf"code word of station {n:04d}: (\S+)", transcript) for n in stations}
    missing = [n for n in stations if words[n] is None]
    if missing and not any(item.index > start and item.name == "recall" for item in request.completed_calls):
        return _recall(request, missing)
    return ScriptedReply(
        "\n".join(f"Station {n}: {match[1] if (match := words[n]) else 'not found'}" for n in stations)
    )


def _recall(request: PracticeRequest, stations: list[int]) -> ScriptedReply:
    offer = request.offers.get("recall")
    if offer is None:
        return ScriptedReply("I no longer see that, and there is no tool `recall` to bring it back.")
    calls = [
        PracticeCall(
            "recall",
            msgspec.json.encode(fill_arguments(offer, {"query": f"code word of station {n:04d}"})).decode(),
        )
        for n in stations
    ]
    return ScriptedReply("That has left my window; I bring it back.", tool_calls=tuple(calls))
