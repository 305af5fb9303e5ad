"""A question on the command line: options before, after and among its words, and what shows no question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import flags, run
from whet_lab.practice.server import PracticeServer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "question"),
    [
        ([], ["fix the bug", "--json"], "fix the bug"),
        (["--json"], ["fix the bug"], "fix the bug"),
        (["--json"], ["hi"], "hi"),
        (["--yes", "--json"], ["fix", "the", "bug"], "fix the bug"),
        (["chat"], ["fix", "--json", "the", "bug"], "fix the bug"),
        (["-p", "fix the bug", "--json"], [], "fix the bug"),
        (["-p", "work", "--json"], ["hi"], "hi"),
        (["-q", "hi", "--json"], [], "hi"),
        (["--json", "-m", "practice-echo"], ["hi"], "hi"),
    ],
)
def test_words_beside_the_options_are_the_question(
    tmp_path: Path, before: list[str], after: list[str], question: str
) -> None:
    with PracticeServer() as server:
        code, out, err = run([*before, *flags(server), *after], tmp_path)
    assert code == 0, err
    assert json.loads(out)["text"].startswith(f"{question}\n")


@pytest.mark.slow
def test_resume_and_continue_go_on_with_a_session_in_the_words_after_them(tmp_path: Path) -> None:
    with PracticeServer() as server:
        _, out, _ = run([*flags(server), "--json", "hi"], tmp_path)
        session = json.loads(out)["session_id"]
        for option in (["--resume", session], ["-r", session], ["-c"], ["--continue"]):
            code, out, err = run([*flags(server), *option, "thanks", "--json"], tmp_path)
            assert code == 0 and json.loads(out)["session_id"] == session, err
        code, _, err = run([*flags(server), "--resume", "nope", "go on please"], tmp_path)
    assert code == 1 and "there is no session 'nope'" in err


def test_a_word_for_a_profile_says_how_to_ask_it_until_the_profile_is_there(tmp_path: Path) -> None:
    _, _, err = run(["-p", "hi"], tmp_path)
    assert err.startswith('note: -p begins the new profile hi; to ask: whet chat -q "hi"\n')
    run(["-p", "hi", "config", "set", "ui.markdown", "no"], tmp_path)
    _, _, err = run(["-p", "hi"], tmp_path)
    assert "new profile" not in err


def test_the_version_is_all_that_is_printed_whatever_follows(tmp_path: Path) -> None:
    code, out, err = run(["--version", "fix the bug"], tmp_path)
    assert (code, err) == (0, "") and out.startswith("whet ") and out.count("\n") == 1
