"""The gate asks about files with keys that any argument of another package's tool names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.approval.test_gate import Bench, Someone


def test_any_argument_of_a_foreign_tool_may_name_a_file_with_keys(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    for name in (".env", "id_rsa", "a.txt"):
        (bench.workspace / name).write_text("x")
    (bench.workspace / "link").symlink_to(".env")
    assert bench.decide("send_file", path="a.txt", caption="see .env").verdict == "allow"
    assert bench.decide("send_file", path="a.txt", more=["absent", "a.txt"]).verdict == "allow"
    calls: tuple[dict[str, Any], ...] = (
        {"path": ".env"},
        {"path": "a.txt", "more": ["a.txt", "id_rsa"]},
        {"path": "link"},
        {"uri": f"file://{bench.workspace}/.env"},
        {"files": [{"name": str(bench.workspace / ".env")}]},
        {"files": {".env": True}},
    )
    for arguments in calls:
        assert bench.decide("send_file", **arguments).verdict == "deny"
        assert bench.person.asked[-1].reasons == ("reads a file that usually holds secrets",)


def test_files_of_a_workspace_in_whets_home_count_by_their_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    bench.workspace = tmp_path / "home" / "work"
    bench.workspace.mkdir(parents=True)
    for path in ("a.txt", ".env", "../config.toml"):
        (bench.workspace / path).write_text("x")
    (bench.workspace / "link").symlink_to("../config.toml")
    verdicts = {name: bench.decide("send_file", path=name).verdict for name in ("a.txt", ".env", "link")}
    assert verdicts == {"a.txt": "allow", ".env": "deny", "link": "deny"}
    assert bench.decide("send_file", path=str(tmp_path / "home" / "config.toml")).verdict == "deny"
