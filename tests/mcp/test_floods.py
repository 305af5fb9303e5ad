"""Servers that do too much: lists, questions and output without end, children left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_oneshot import is_alive
from tests.mcp.rig import bench, odd, until
from whet.config.paths import Home
from whet.contract.messages import ImagePart
from whet.mcp import exits, stdio
from whet.mcp.kept import read_stored
from whet.mcp.listing import size_chars
from whet.mcp.results import as_output
from whet.moving import pairing


async def test_ten_thousand_tools_are_cut_and_said_to_be(home: Path) -> None:
    server = odd("many")
    async with bench(home, {"odd": server}) as b:
        listing = b.servers.listings["odd"]
        assert len(listing.offered) == 256
        left_out = [tool.own_name for tool in listing.left_out]
        assert len(left_out) == 2_000 - 256 and "tool999" in left_out
        assert listing.left_out[-1].reason == "256 of its tools are offered; choose others with allow"
    kept = read_stored(Home(home), "odd", server)
    assert kept and len(kept.tools) == 2_000


async def test_tools_beyond_those_that_are_offered_can_be_chosen(home: Path) -> None:
    server = odd("many", allow=("tool99?",))
    async with bench(home, {"odd": server, "but": odd("many", deny=("tool1*",))}) as b:
        names = [tool.own_name for tool in b.servers.listings["odd"].offered]
        assert names == [f"tool{number}" for number in range(990, 1000)]
        denying = b.servers.listings["but"]
        assert (len(denying.offered), len(denying.left_out), denying.denied) == (256, 633, 1_111)


@pytest.mark.slow
async def test_tools_that_would_fill_the_window_are_left_out_until_chosen(home: Path) -> None:
    async with bench(home, {"odd": odd("large"), "few": odd("large", allow=("tool99",))}) as b:
        listing = b.servers.listings["odd"]
        offered = listing.offered
        assert 1 < len(offered) < 10 and sum(size_chars(one.spec) for one in offered) <= 160_000
        assert "choose some with allow" in listing.left_out[0].reason
        assert 100 < len(offered) + len(listing.left_out) < 150  # 4 MB of the list are read
        assert [one.own_name for one in b.servers.listings["few"].offered] == ["tool99"]


def test_an_image_is_what_its_bytes_say_and_what_is_none_reaches_no_model() -> None:
    """A model would refuse it in every request to come."""
    given = [("image/png", "AAAA"), ("image/jpg", "iVBORw0KGgo="), ("image/png", "!!"), ("", None)]
    blocks = [{"type": "image", "mimeType": kind, "data": data} for kind, data in given]
    output = as_output("odd", {"content": blocks}, {}, 9_000)
    assert output.images == (ImagePart("image/png", "iVBORw0KGgo="),)
    assert output.text.count("[an image, image/png: not shown, it is broken") == 2
    blob = {"uri": "x://a", "mimeType": "image/jpg", "blob": "iVBORw0KGgo="}
    assert as_output("odd", {"content": [{"type": "resource", "resource": blob}]}, {}, 9_000).images
    assert pairing.parse_image_url("data:image/png;base64,AAAA") is None


async def test_questions_without_end_are_told_once(home: Path) -> None:
    async with bench(home, {"odd": odd("asks_on")}) as b:
        assert (await b.call("mcp__odd__echo", text="hi")).text.endswith("you said: hi")
        assert b.told == ["MCP server odd asked to use your model; refused"]


async def test_stderr_without_end_is_read_and_dropped(home: Path) -> None:
    async with bench(home, {"odd": odd("endless_stderr")}) as b:
        assert (await b.call("mcp__odd__echo", text="hi")).text.endswith("you said: hi")
        connection = b.servers.remotes["odd"].connection
        assert connection
        transport = connection.transport
        await until(lambda: transport.explain() == "its last line on stderr: last words")


async def test_a_server_that_prints_without_end_is_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_GARBAGE", 5_000)
    async with bench(home, {"odd": odd("endless_stdout")}) as b:
        out = await b.call("mcp__odd__echo", text="hi")
        assert "lines that are not messages" in out.text and out.error_kind == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("has_pidfd", [True, False])
async def test_a_child_that_holds_the_output_open_is_ended_with_its_server(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    journal = tmp_path / "journal"
    if not has_pidfd:
        monkeypatch.setattr(exits, "SYSTEM_PIDFD", None)
    async with bench(home, {"odd": odd("leaves_child", journal)}) as b:
        out = await b.call("mcp__odd__echo", text="hi")
        assert "ended with exit code 0" in out.text
        child = int((tmp_path / "journal.child").read_text())
        await until(lambda: not is_alive(child))
