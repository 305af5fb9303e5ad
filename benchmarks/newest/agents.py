"""Coding agents of others: `whet serve` is their model, and `whet confirm adopt` holds their calls."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx2

from benchmarks import clients
from benchmarks.clients import coding
from benchmarks.measure import clean_environment
from benchmarks.newest.install import Cache, NotInstalled, version_of
from benchmarks.newest.row import Cells, Trial
from benchmarks.serving import serving
from whet_lab.practice.server import PracticeServer

# The name of each for `whet confirm adopt`, and what it needs to trust a hook that no person has seen.
ADOPTED = {
    "@openai/codex": ("codex", ("--dangerously-bypass-hook-trust",)),
    "@anthropic-ai/claude-code": ("claude-code", ()),
    "opencode-ai": ("opencode", ()),
    "@mariozechner/pi-coding-agent": ("pi", ()),
    "@qwen-code/qwen-code": ("qwen-code", ()),
}
KILO = coding.CodingAgent(
    "@kilocode/cli", ("kilo", "run", "--auto"), ("kilo", "run", "--auto", "-c"), "Chat Completions"
)
AGENTS = (*coding.AGENTS, KILO)
COMPLETE = {KILO.package: (f"{KILO.package}@7.7.7", f"{KILO.package}-linux-x64@7.7.7")}
"""For an agent whose program is a package of its own: the newest version that was seen with both, for an
index that lacks the program of the newest one."""
_REASON = "use the staging machine"


class Confirming(NamedTuple):
    """A confirmation service that runs: its home, its address, and a client that decides."""

    home: Path
    url: str
    person: httpx2.Client


@contextlib.contextmanager
def confirming(home: Path) -> Iterator[Confirming]:
    """Start the confirmation service with a home of its own, and end it."""
    words = ["confirm", "serve", "--port", "0", "--web-port", "-1", "--rate-limit", "1000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *words],
        env=clean_environment(WHET_HOME=str(home)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    try:
        line = next(line for line in process.stdout if "http://127.0.0.1:" in line)
        url = next(word for word in line.split() if word.startswith("http://127.0.0.1:")).rstrip("/,;.")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        token = (home / "confirm" / "approve.token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=url, headers=headers, trust_env=False) as person:
            yield Confirming(home, url, person)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def deciding(service: Confirming, verdict: str) -> Iterator[None]:
    """Decide in the same way about each request that comes up meanwhile."""
    stop = threading.Event()

    def decide() -> None:
        while not stop.wait(0.1):
            pending = service.person.get("/confirm?status=pending").json()["requests"]
            for request in pending:
                service.person.post(f"/confirm/{request['id']}/{verdict}", json={"reason": _REASON})

    person = threading.Thread(target=decide, daemon=True)
    person.start()
    try:
        yield
    finally:
        stop.set()
        person.join()


def _try_agent(agent: coding.CodingAgent, cache: Cache, folder: Path) -> tuple[str, Cells]:
    modules = _install(agent.package, cache)
    bins = modules / "node_modules" / ".bin"
    path = f"{cache.node()}{os.pathsep}{os.environ['PATH']}"
    with (
        PracticeServer(responder=clients.reply) as model,
        serving(folder, model.base_url) as server,
        _named_path(path),
    ):
        cells = coding.try_agent(bins, agent, server.url, server.token)
        if agent.package not in ADOPTED:
            return version_of(modules, agent.package), cells | {"held": "— no hook is known"}
        with confirming(folder / "confirm-home") as service, tempfile.TemporaryDirectory() as other:
            environment = coding.make_environment(Path(other), server.url, server.token)
            cells["held"] = _try_adoption(agent, bins, environment, service)
    return version_of(modules, agent.package), cells


def _install(package: str, cache: Cache) -> Path:
    name = package.strip("@").replace("/", "-")
    try:
        return cache.npm(name, [package])
    except NotInstalled:
        if package not in COMPLETE:
            raise
        return cache.npm(f"{name}-complete", COMPLETE[package])


def _try_adoption(
    agent: coding.CodingAgent, bins: Path, environment: Mapping[str, str], service: Confirming
) -> str:
    """Return "yes" if a denied call did not run, the agent read why, and an approved one ran."""
    name, more = ADOPTED[agent.package]
    environment = {
        **environment,
        "WHET_HOME": str(service.home),
        "WHET_CONFIRM_URL": service.url,
    }
    adopted = subprocess.run(
        [sys.executable, "-m", "whet", "confirm", "adopt", name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if adopted.returncode:
        return f"no: adopt: {adopted.stderr.strip()[-200:]}"
    work = Path(environment["HOME"]) / "held"
    work.mkdir()
    words = [*agent.first[:-1], *more, agent.first[-1]] if agent.first[-1] == "-p" else [*agent.first, *more]
    with deciding(service, "deny"):
        denied = coding.run_agent(bins, environment, work, words, coding.PROMPT)
    with deciding(service, "approve"):
        approved = coding.run_agent(bins, environment, work, words, coding.PROMPT)
    if coding.SAID in denied or _REASON not in denied:
        return f"no: denied, and it printed {denied[-200:]}"
    return "yes" if coding.SAID in approved else f"no: approved, and it printed {approved[-200:]}"


@contextlib.contextmanager
def _named_path(path: str) -> Iterator[None]:
    """Set PATH, which the environments of the agents are made from."""
    before = os.environ["PATH"]
    os.environ["PATH"] = path
    try:
        yield
    finally:
        os.environ["PATH"] = before


TRIALS = [Trial("agent", agent.package, partial(_try_agent, agent)) for agent in AGENTS]
