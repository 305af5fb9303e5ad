"""What a command that lists something shows before anything was done: an empty state, and no error."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.running import run
from tests.cli.test_main import command_paths
from whet.cli.group import whet

NEED_MORE = {"model list": "no model is set"}


@pytest.mark.slow
def test_every_list_of_an_empty_home_is_an_empty_state(home: Path, tmp_path: Path) -> None:
    context = click.Context(whet, info_name="whet", **whet.context_settings)
    lists = {
        " ".join(path) for path in command_paths(whet, context) if path[-1] == "list" and path[0] != "confirm"
    }
    assert len(lists) > 12
    for words in sorted({*lists, "cost", "gateway outbox"}):
        code, out, error = run(words.split(), tmp_path)
        if problem := NEED_MORE.get(words):
            assert code == 1 and problem in error, (words, error)
        else:
            assert code == 0 and out.strip() and not error, (words, out, error)
