"""What a deny rule for files means: by which names it is written, and which names of a file it covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.contract.errors import ToolDenied
from whet.contract.texts import paths_in_uri
from whet.sandbox.path_rules import read_path_rules

_RULE = "read_file(secrets/*)"


@pytest.mark.parametrize(
    ("rule", "path", "reads", "writes"),
    [
        ("read_file(secrets/*)", "secrets/a/b", True, True),
        ("search_files(secrets/*)", "secrets/a", True, True),
        ("read(secrets)", "secrets/a", True, True),
        ("read(./secrets/)", "secrets/a", True, True),
        ("read(*.pem)", "a/b/c.pem", True, True),
        ("*_file(x)", "x", True, True),
        ("write_file(*.lock)", "a.lock", False, True),
        ("patch(*.lock)", "a/b.lock", False, True),
        ("write(docs)", "docs/a.md", False, True),
        ("read(caf\u00e9.txt)", "cafe\u0301.txt", True, True),
        ("write_file(*.lock)", "a.py", False, False),
        ("read_file", "a.py", False, False),
        ("terminal(cat secrets/*)", "secrets/a", False, False),
        ("mcp__files__read(x)", "x", False, False),
    ],
)
def test_a_rule_by_a_tools_name_is_read_as_what_it_plainly_means(
    tmp_path: Path, rule: str, path: str, reads: bool, writes: bool
) -> None:
    rules = read_path_rules([rule])
    for named in (path, f"./{path}", str(tmp_path / path)):
        assert (rules.find(named, tmp_path, writes=False) != "") is reads
        assert (rules.find(named, tmp_path, writes=True) != "") is writes


@pytest.mark.timeout(20)  # it went round for ever
@pytest.mark.parametrize("start", ["/", "//", "///"])
def test_slashes_at_the_beginning_of_a_path_change_nothing(tmp_path: Path, start: str) -> None:
    rules = read_path_rules([_RULE, f"read({tmp_path}/key)"])
    for below, closes in (("secrets/a", True), ("key", True), ("plain", False)):
        assert (rules.find(f"{start}{str(tmp_path)[1:]}/{below}", tmp_path, writes=False) != "") is closes
    assert rules.find(start, tmp_path, writes=True) == ""


@pytest.mark.parametrize(
    "uri",
    [
        "file://{top}/secrets/a", "FILE://localhost{top}/secret%73/a", "repo://secrets/a",
        "vscode://x{top}/secrets/a", "zed:///agent/file?path={top}/secrets/a",
        "zed:///agent/file?line=3&path=secrets/a", "zed:///agent/file?path={top}/secrets%2Fa#L3",
        "zed:///agent#file={top}/secrets/a", "any+thing:x?{top}/secrets/a",
        "x:y?u=file%3A%2F%2F{top}/secrets/a", "x:y?u=z%3A%2F%2Fq%3Fpath%3D{top}/secrets/a",
        "jar:file://{top}/secrets/a", "secrets/a?line=3", "{top}/secrets/a#L3",
        'x:y?q={{"path":"secrets/a"}}', 'x:y?q={{"open":[{{"line":3,"file":"{top}/secrets/a"}}]}}',
        "x:y?q=%7B%22path%22%3A%22secrets%5C%2Fa%22%7D", 'x:y?q={{"secrets/a":true}}',
        "x:y?q={{'path':'secrets/a',}}", 'x:y?q={{"u":"file://{top}/secrets/a"}}', 'x:y#["secrets/a"]',
        "x:y?q=path='secrets/a'", "x:y?q=%22secrets%2Fa%22", '{{"command":"open","path":"secrets/a"}}',
        "x:y?q=[b,secrets/a]", "x:y?files=b,secrets/a",
        'https://example.org/?q={{"path":"{top}/secrets/a"}}', "https://example.org/?open={top}/secrets/a",
        "https://example.org{top}/secrets/a",
    ],
)  # fmt: skip
def test_a_uri_names_the_file_that_a_rule_protects(tmp_path: Path, uri: str) -> None:
    rules = read_path_rules([_RULE])
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/a").touch()
    named = paths_in_uri(uri.format(top=tmp_path))
    assert any(rules.find(path, tmp_path, writes=False) for path in named)
    for other in (
        "https://secrets/a",
        'https://x.org/?q={"path":"secrets/a"}',
        "never open 'secrets/a' again",
    ):
        assert not any(rules.find(path, tmp_path, writes=False) for path in paths_in_uri(other)), other


def test_a_rule_whose_files_can_not_all_be_found_stops_the_command(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a", "b", "deep/c", "deep/key.pem"):
        (tmp_path / name).write_text("")
    rules = read_path_rules(["read(*.pem)", "write(deep)"])
    assert rules.list_files(tmp_path, max_entries=5) == ((tmp_path / "deep/key.pem",), (tmp_path / "deep",))
    with pytest.raises(ToolDenied, match=r"read\(\*\.pem\) can't be held"):
        rules.list_files(tmp_path, max_entries=4)
