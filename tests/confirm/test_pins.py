"""Which definition of each tool a gateway's people have accepted."""

from __future__ import annotations

from whet_confirm.gateway.pins import ToolPins


def test_a_tool_that_appears_after_the_first_run_is_held(tmp_path):
    pins = ToolPins(tmp_path / "pins.json")
    assert pins.find_change("a") is None  # nothing is known yet
    pins.observe({"tools": [{"name": "a", "description": "x"}]})
    pins.observe({"tools": [{"name": "b"}, 5, {"name": 7}]})
    assert pins.find_change("a") is None and pins.find_change("b") is None
    pins.observe({"tools": [{"name": "a", "description": "y"}]})  # it changes within the first run
    assert pins.find_change("a") is not None
    pins = ToolPins(tmp_path / "pins.json")
    pins.observe({"tools": [{"name": "a", "description": "x"}, {"name": "c"}]})
    change = pins.find_change("c")
    assert pins.find_change("a") is None and change is not None and change.before == ""
    pins.accept("c", change)
    assert ToolPins(tmp_path / "pins.json").find_change("c") is None
    assert pins.find_change("never listed") is not None
