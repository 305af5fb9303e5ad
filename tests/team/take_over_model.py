"""A model of a take-over, small enough that all interleavings of its steps are tried.

Workers share one session with one call. The first has the session and has not started the call; each of the
others takes the session over once its lease has run out. A start is a transaction on its way: sent, fenced
(it holds the claim's row until its end), stored on the primary but held back by a replica that is slow, and
committed. At any step a worker may be stopped for any time and the answer to a start may be lost. One
failover may come, which keeps or loses what the primary has not answered yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

Work = Literal["read", "claim", "decide", "wait", "ask", "run", "done"]
Start = Literal["", "sent", "fenced", "held", "committed", "failed"]


class Protocol(NamedTuple):
    """What the workers and the database do; each flag off is a version that had a fault."""

    claims_first: bool = True
    """The session is read in the claim's transaction, not before."""
    has_fence: bool = True
    """A start is refused if another worker has claimed the session."""
    has_own_numbers: bool = True
    """Whether a start was committed is told by a number that no failover gives out twice."""


class Worker(NamedTuple):
    work: Work
    knows: bool = False
    """Whether it has read that the call was started."""
    start: Start = ""


class World(NamedTuple):
    workers: tuple[Worker, ...]
    owner: int = 0
    is_started: bool = False
    runs: int = 0
    failed_over: bool = False

    def but(self, index: int, worker: Worker) -> World:
        return self._replace(workers=(*self.workers[:index], worker, *self.workers[index + 1 :]))


def begin(protocol: Protocol, workers: int) -> World:
    """Return the world in which the first worker is about to start the call."""
    others: Work = "claim" if protocol.claims_first else "read"
    return World((Worker("decide"), *(Worker(others) for _ in range(workers - 1))))


def next_worlds(world: World, protocol: Protocol) -> Iterator[World]:
    """Yield every world that one step leads to."""
    if not world.failed_over:
        yield from _fail_over(world)
    for index in range(len(world.workers)):
        yield from _client_steps(world, index, protocol)
        yield from _server_steps(world, index, protocol)


def _client_steps(world: World, index: int, protocol: Protocol) -> Iterator[World]:
    worker = world.workers[index]
    if worker.work == "read":
        yield world.but(index, Worker("claim", world.is_started))
    elif worker.work == "claim" and not _is_locked(world):
        knows = world.is_started if protocol.claims_first else worker.knows
        yield world.but(index, Worker("decide", knows))._replace(owner=index)
    elif worker.work == "decide":
        yield world.but(index, Worker("done") if worker.knows else Worker("wait", start="sent"))
    elif worker.work == "wait":
        yield world.but(index, worker._replace(work="ask"))  # the connection is lost
        if worker.start in ("committed", "failed"):
            yield world.but(index, Worker("run" if worker.start == "committed" else "done"))
    elif worker.work == "ask":
        yield from _answers(world, index, protocol)
    elif worker.work == "run":
        yield world.but(index, Worker("done"))._replace(runs=world.runs + 1)


def _answers(world: World, index: int, protocol: Protocol) -> Iterator[World]:
    """Yield the answers about a start whose own answer was lost; asking waits for one that is on its way."""
    start = world.workers[index].start
    if start == "committed":
        yield world.but(index, Worker("run"))
    elif start in ("sent", "failed"):  # one that arrives later is refused
        yield world.but(index, Worker("wait", start="sent"))
        if world.failed_over and not protocol.has_own_numbers:
            yield world.but(index, Worker("run"))  # another's transaction had that number


def _server_steps(world: World, index: int, protocol: Protocol) -> Iterator[World]:
    worker = world.workers[index]
    if worker.start == "sent":
        is_held = world.owner == index or not protocol.has_fence
        yield world.but(index, worker._replace(start="fenced" if is_held else "failed"))
    elif worker.start == "fenced":
        yield world.but(index, worker._replace(start="held"))
    elif worker.start == "held":
        yield world.but(index, worker._replace(start="committed"))._replace(is_started=True)


def _is_locked(world: World) -> bool:
    return any(worker.start in ("fenced", "held") for worker in world.workers)


def _fail_over(world: World) -> Iterator[World]:
    """Yield what the replica may have: all that was answered, and perhaps what was only stored."""
    for is_kept in (True, False):
        workers: list[Worker] = []
        is_started = world.is_started
        for worker in world.workers:
            start = worker.start
            if start == "held" and is_kept:
                start, is_started = "committed", True
            elif start in ("sent", "fenced", "held"):
                start = "failed"
            workers.append(worker._replace(work="ask" if worker.work == "wait" else worker.work, start=start))
        yield world._replace(workers=tuple(workers), is_started=is_started, failed_over=True)


def explore(protocol: Protocol, workers: int = 3) -> tuple[int, list[World]]:
    """Try every order of steps; return how many worlds there are, and those where the call ran twice."""
    first = begin(protocol, workers)
    seen, waiting = {first}, [first]
    twice: list[World] = []
    while waiting:
        world = waiting.pop()
        if world.runs > 1:
            twice.append(world)
            continue
        for following in next_worlds(world, protocol):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return len(seen), twice
