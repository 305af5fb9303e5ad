"""Dangerous commands before gate and sandbox together, plain and in a script: none has an effect outside.

They really run, against a throwaway home with keys in it, a canary process and servers that listen.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from benchmarks.approval import can_do, let_out, let_out_stepwise, real_dangers, real_stepwise
from benchmarks.walls.run import make_world, remove
from benchmarks.walls.world import World

from tests.sandbox.engines import ENGINES, EngineCase


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Give one world for all engines: what a case can do where nothing holds it is tried once."""
    made = make_world()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(made.home))
        yield made
    remove(made)


dangers, stepwise = functools.cache(real_dangers), functools.cache(real_stepwise)


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_sample_stays_inside(case: EngineCase, world: World) -> None:
    notes, key = world.home / "other" / "notes.txt", world.home / ".ssh" / "id_rsa"
    cases = [
        ("write", f"cd {notes.parent} && echo x >> {notes.name}"),
        ("write", f"git config alias.up '!echo x >> {notes}' && git up"),
        ("read", f"cat $(echo {key})"),
        ("send", f"python3 -c \"import socket; socket.create_connection(('127.1', {world.port}), 2)\""),
        ("others", "kill -9 {pid}"),
    ]
    out, ran = let_out(world, case.status(), cases)
    assert out == []
    assert ran["ask script"] >= 4


KUBECTL = """#!/usr/bin/env bash
echo "$*" > asked
cat "$HOME/.kube/config"
exec 3<>/dev/tcp/127.0.0.1/{port} && echo "DELETE /deployments/$3" >&3
"""
RENAMED = (
    "cp kubectl k && ./k delete deployment web",
    "ln kubectl k && PATH=.:$PATH k delete deployment web",
    "install -m 755 kubectl build.sh && sh -c './build.sh delete deployment web'",
    'cp "$(command -v bash)" k && ./k kubectl delete deployment web',
)


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_high_risk_program_under_another_name_runs_and_deletes_nothing(
    case: EngineCase, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore, asked = world.restore, world.workspace / "asked"
    ran: list[str] = []

    def again() -> None:
        ran.extend([asked.read_text()] if asked.exists() else [])
        restore()
        kubectl = world.workspace / "kubectl"
        kubectl.write_text(KUBECTL.replace("{port}", str(world.port)))
        kubectl.chmod(0o755)

    monkeypatch.setattr(world, "restore", again)
    assert [text for text in RENAMED if not can_do(world, text)] == []
    out, _ = let_out(world, case.status(), [("renamed", text) for text in RENAMED])
    world.restore()
    assert out == []
    assert ran.count("delete deployment web\n") >= 3 * len(RENAMED)  # bare, and confined: ask and auto


@pytest.mark.soak
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_none_of_all_gets_out(case: EngineCase, world: World) -> None:
    cases = dangers(world)
    assert len(cases) >= 400
    out, ran = let_out(world, case.status(), cases)
    print(f"{case}: {len(cases)} cases, {dict(ran)} ran, with an effect outside {len(out)}")
    assert out == []


@pytest.mark.soak
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_none_of_those_in_steps_gets_out(case: EngineCase, world: World) -> None:
    cases = stepwise(world)
    assert len(cases) >= 80
    out, ran = let_out_stepwise(world, case.status(), cases)
    print(f"{case}: {len(cases)} attacks in steps, {dict(ran)} ran, with an effect outside {len(out)}")
    assert out == []
