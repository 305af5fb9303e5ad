"""A benchmark runs the shipped settings or says what differs; a figure carries where it was measured."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.declared import DIFFERS
from benchmarks.provenance import benchmark_of, current_commit, is_changed_since, measured_paths
from benchmarks.shipped import SettingsDiffer, check
from benchmarks.table import MARK, PAGE, Row, Stored, format_page, read_stored


@pytest.mark.slow
def test_every_benchmark_runs_the_shipped_settings_or_declares_the_difference() -> None:
    from benchmarks.__main__ import BENCHMARKS, check_settings

    assert not set(DIFFERS) - set(BENCHMARKS)
    for name in BENCHMARKS:
        check_settings(name)


@pytest.mark.fast_rows("config =", "monkeypatch", "write_text")
@pytest.mark.parametrize(
    ("source", "setting"),
    [
        ("settings = ReviewSettings(share=1)\n", "review.share"),
        ("settings = ReviewSettings('off')\n", "review.writes"),
        ("start({'review.free_tokens': '1000000000'})\n", "review.free_tokens"),
        ("config = {'sandbox': {'mode': 'off'}}\n", "sandbox.mode"),
        ("env = {'WHET_APPROVAL_MODE': 'auto'}\n", "approval.mode"),
        ("os.environ.update(WHET_SANDBOX_MODE='off')\n", "sandbox.mode"),
        ("path.write_text('gateway:\\n  busy: queue\\n')\n", "gateway.busy"),
        (
            "text = f'model:\\n  base_url: {url}\\ngateway:\\n  flood_per_minute: {n}\\n'\n",
            "gateway.flood_per_minute",
        ),
        ("gateway = Process(home, flood_per_minute=1_000_000)\n", "gateway.flood_per_minute"),
        ("limits = MemorySettings(memory_chars=limit)\n", "memory.memory_chars"),
        ("from x import ReviewSettings as R\nsettings = R(share=1)\n", "review.share"),
        ("settings = replace(settings.review, share=1)\n", "review.share"),
        ("config = dict(sandbox=dict(mode='off'))\n", "sandbox.mode"),
        ("config['sandbox']['mode'] = 'off'\n", "sandbox.mode"),
        ("os.environ['WHET_SANDBOX_MODE'] = 'off'\n", "sandbox.mode"),
        ("monkeypatch.setenv('WHET_SANDBOX_MODE', 'off')\n", "sandbox.mode"),
        ("run('WHET_SANDBOX_MODE=off whet chat -q hi')\n", "sandbox.mode"),
        ("run(['whet', 'config', 'set', 'sandbox.mode', 'off'])\n", "sandbox.mode"),
        ("run('whet config set sandbox.mode off')\n", "sandbox.mode"),
        ("run(['whet', 'chat', '--yes', '-q', 'hi'])\n", "approval.mode"),
        ("run(['whet', 'chat', '--approvals', 'auto'])\n", "approval.mode"),
        ("run(f'whet chat --max-steps {steps}')\n", "agent.max_steps"),
        ("path.write_text('sandbox: {mode: off}')\n", "sandbox.mode"),
        ('path.write_text(\'{"sandbox": {"mode": "off"}}\')\n', "sandbox.mode"),
        ("path.write_text('[sandbox]\\nmode = \"off\"\\n')\n", "sandbox.mode"),
        ("text = '''\n    sandbox:\n      mode: off\n'''\n", "sandbox.mode"),
        ("text = '\\n'.join(['sandbox:', '  mode: off'])\n", "sandbox.mode"),
        ("from whet.review import budget\nbudget.FREE_TOKENS = 10**9\n", "budget.FREE_TOKENS"),
        ("monkeypatch.setattr(budget, 'FREE_TOKENS', 10**9)\n", "budget.FREE_TOKENS"),
    ],
)
def test_a_changed_setting_that_is_not_declared_is_refused(tmp_path: Path, source: str, setting: str) -> None:
    write_benchmark(tmp_path, source)
    with pytest.raises(SettingsDiffer, match=re.escape(setting)):
        check("planted", ("benchmarks.planted",), "", tmp_path)
    check("planted", ("benchmarks.planted",), f"`{setting}` changed", tmp_path)


def test_a_setting_changed_in_a_module_that_the_benchmark_starts_is_refused(tmp_path: Path) -> None:
    write_benchmark(tmp_path, "command = [python, '-m', f'benchmarks.loops.{name}', 'slow_loop']\n")
    (tmp_path / "benchmarks" / "loops").mkdir()
    (tmp_path / "benchmarks" / "loops" / "slow_loop.py").write_text("AgentSettings(max_steps=10_000)\n")
    with pytest.raises(SettingsDiffer, match=r"agent\.max_steps"):
        check("planted", ("benchmarks.planted",), "", tmp_path)


def test_the_shipped_values_and_the_model_are_no_difference(tmp_path: Path) -> None:
    write_benchmark(
        tmp_path,
        "model = ModelSettings(provider='practice', base_url=url)\n"
        "config = {'sandbox.mode': 'auto', 'review': {'on_recovery': 'true'}, 'model.model': 'practice'}\n"
        "host = Host(idle_after_s=limits.idle_after_s)\n",
    )
    check("planted", ("benchmarks.planted",), "four characters a token", tmp_path)


def test_a_declaration_of_a_setting_that_is_not_changed_is_refused(tmp_path: Path) -> None:
    write_benchmark(tmp_path, "settings = Settings()\n")
    with pytest.raises(SettingsDiffer, match=r"take it out of DIFFERS"):
        check("planted", ("benchmarks.planted",), "`sandbox.mode` off", tmp_path)


def test_a_row_older_than_the_code_it_measures_is_marked(tmp_path: Path) -> None:
    write_benchmark(tmp_path, "from benchmarks.part import work\n")
    (tmp_path / "benchmarks" / "part.py").write_text("work = 1\n")
    (tmp_path / "other.md").write_text("a page\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    measured = current_commit(tmp_path)
    (tmp_path / "other.md").write_text("changed\n")
    commit(tmp_path)
    paths = measured_paths("planted", run_planted, tmp_path)
    assert not is_changed_since(measured, paths, tmp_path)
    (tmp_path / "benchmarks" / "part.py").write_text("work = 2\n")
    assert current_commit(tmp_path).endswith("+")
    commit(tmp_path)
    assert is_changed_since(measured, paths, tmp_path)
    assert is_changed_since("0" * 40, paths, tmp_path)


@pytest.mark.slow
def test_every_benchmark_measures_code_of_the_program() -> None:
    from benchmarks.__main__ import BENCHMARKS

    paths = {name: measured_paths(name, run) for name, run in BENCHMARKS.items()}
    assert [name for name, texts in paths.items() if not any(path.startswith("src") for path in texts)] == []


def test_a_program_in_a_text_and_a_module_that_a_command_names_are_measured_too(tmp_path: Path) -> None:
    text = """_PROGRAM = '''
import asyncio
from benchmarks.first import work
'''
_COMMAND = "python -m benchmarks.second"
"""
    write_benchmark(tmp_path, text)
    for name in ("first", "second"):
        (tmp_path / "benchmarks" / f"{name}.py").write_text("work = 1\n")
    assert measured_paths("planted", run_planted, tmp_path)[:2] == (
        "benchmarks/first.py",
        "benchmarks/planted.py",
    )
    assert "benchmarks/second.py" in measured_paths("planted", run_planted, tmp_path)


def test_the_page_prints_what_differs_where_and_how_old_beside_each_figure() -> None:
    row = Row("x", "a thing", "≤ 1 ms", "0.5 ms", "-", True, "python -m benchmarks x")
    stored = Stored(row, "`sandbox.mode` off", "2 cores of Z", "2026-11-28", "abcd1234")
    line = next(line for line in format_page([stored], lambda _: True).splitlines() if "0.5 ms" in line)
    assert "`sandbox.mode` off" in line
    assert "2026-11-28, abcd1234, machine A" + MARK in line
    assert MARK not in format_page([stored], lambda _: False)
    assert "as shipped" in format_page([Stored(row, "", "m", "d", "c")], lambda _: False)


def test_each_kept_figure_has_commit_machine_day_and_the_declared_difference() -> None:
    kept = read_stored()
    assert len(kept) > 100
    for stored in kept:
        name = benchmark_of(stored.row.command)
        assert stored.machine and re.fullmatch(r"\d{4}-\d\d-\d\d", stored.when), stored.row.name
        assert re.fullmatch(r"[0-9a-f]{8,}\+?", stored.commit), stored.row.name
        assert stored.differs == DIFFERS.get(name, ""), stored.row.name


def test_the_page_of_results_is_made_from_the_kept_figures() -> None:
    written = PAGE.read_text("utf-8").replace(MARK, "")
    assert written == format_page(read_stored(), lambda _: False)


@pytest.mark.slow
def test_each_figure_whose_code_changed_since_is_marked_on_the_page() -> None:
    from benchmarks.__main__ import is_old

    assert PAGE.read_text("utf-8") == format_page(read_stored(), is_old), "run: python -m benchmarks --page"


@pytest.mark.slow
def test_a_benchmark_that_fails_or_misses_stops_no_other_and_each_is_kept_as_it_ends() -> None:
    from benchmarks.__main__ import run_all

    kept: list[str] = []
    kept_before_last: list[str] = []

    def fail(_runs: int, _full: bool) -> list[Row]:
        raise RuntimeError("no server")

    def end(_runs: int, _full: bool) -> list[Row]:
        kept_before_last.extend(kept)
        return [row_named("last", met=None)]

    benchmarks: dict[str, Callable[[int, bool], list[Row]]] = {
        "missed": lambda _runs, _full: [row_named("missed", met=False)],
        "failed": fail,
        "met": lambda _runs, _full: [row_named("met", met=True)],
        "last": end,
    }
    bad = run_all(benchmarks, 1, False, lambda rows: kept.extend(row.name for row in rows))
    assert bad == ["missed", "failed"]
    assert kept_before_last == ["missed", "met"]
    assert kept == ["missed", "met", "last"]


@pytest.mark.slow
def test_few_kills_of_a_gateway_decide_nothing_unless_a_message_is_lost() -> None:
    from benchmarks.gateway import judge_kills

    assert judge_kills(10, is_clean=True) is None
    assert judge_kills(10, is_clean=False) is False
    assert judge_kills(100, is_clean=True) is True


def test_a_session_is_continued_also_if_its_program_asks_more_than_the_person_did() -> None:
    from benchmarks.clients.coding import is_continued

    before = {"a": 3, "b": 1}
    assert is_continued(before, {"a": 4, "b": 1})
    assert is_continued(before, {"a": 5, "b": 1, "c": 1})
    assert not is_continued(before, {"a": 3, "b": 1, "c": 4})
    assert not is_continued(before, {"a": 4, "b": 2})
    assert not is_continued({}, {"c": 1})


def row_named(name: str, *, met: bool | None) -> Row:
    """Return a row of a benchmark."""
    return Row(name, "a thing", "-", "1 ms", "-", met, f"python -m benchmarks {name}")


def write_benchmark(root: Path, source: str) -> None:
    """Write a project that has one benchmark."""
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "planted.py").write_text(source)


def run_planted() -> None:
    """Stand for the benchmark's function, by its module's name."""


run_planted.__module__ = "benchmarks.planted"


def git(root: Path, *arguments: str) -> None:
    """Run git in a project."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    """Commit everything."""
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Change it")
