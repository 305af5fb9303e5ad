"""Guards around every test: a home of its own, no keys, no network beyond loopback."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import importlib
import inspect
import ipaddress
import itertools
import logging
import math
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.families import mark_rest_slow
from tests.support import FixedClock, InLoop
from tests.templates import copy_new_databases
from whet import log
from whet.clock import use_zone
from whet.rewind.database import RecordFile
from whet.store.database import StateDatabase
from whet_confirm.database import ConfirmDatabase

# Collecting makes a million objects that stay; to look through them over and over costs as much as importing.
gc.disable()
# No test reads or writes a person's own keyring, nor does a program that it starts.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
# What pytest makes of the asserts is kept for the next run, also where the environment wants no bytecode.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The width of the terminal that the suite was started in is not what a test is about.
os.environ.pop("COLUMNS", None)
os.environ.pop("LINES", None)
# An HTTP client reads the trusted certificates when it is made: one instead of the system's 140 saves 20 ms.
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEMS_CERTIFICATES = next(filter(None, map(os.environ.get, _BUNDLES)), "")
for _name in (*_BUNDLES, "SSL_CERT_DIR"):
    os.environ.pop(_name, None)
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

# What is written here is never read after the machine lost its power: no test waits for the disk.
os.fsync = os.fstat  # type: ignore[assignment]

_homes = itertools.count()

# Examples are the same in each run and may take their time; the soak's are new ones. Hypothesis would make
# some of the constants of whatever modules are loaded, and read all of those first: 5 s of a first run.
settings.load_profile("ci")
providers._get_local_constants = lambda: providers._local_constants  # type: ignore[assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("exit_timeout", "seconds until a test that hangs ends its process; 0: never", default="0")


class Watchdog:
    """Ends a process whose test hangs and can't be stopped, and prints the stacks of all threads.

    Starting and joining its thread takes as long as half of a small test: it starts anew once a minute only.
    """

    def __init__(self, limit_s: float, stderr_fd: int) -> None:
        self._limit_s = limit_s
        self._stderr_fd = stderr_fd
        self._started_s = -math.inf

    def pytest_runtest_setup(self) -> None:
        if time.monotonic() - self._started_s > 60:
            self._started_s = time.monotonic()
            faulthandler.dump_traceback_later(60 + self._limit_s, exit=True, file=self._stderr_fd)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        if nextitem is None:
            faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    """Watch over the tests, and say so where the output of a test is not kept."""
    if limit_s := float(config.getini("exit_timeout")):
        capture = config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            config.pluginmanager.register(Watchdog(limit_s, os.dup(2)))


# Started in the background or under nohup, the suite has these ignored, and so has every process of a test.
def pytest_runtest_setup() -> None:
    """Let the processes of a test hear their signals, whatever ignored them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


# The marks of the tests that `make test` leaves out.
_LONG = ("slow", "soak", "live")
_MODULE_MARKS = re.compile(r"^pytestmark = (?:\[[^]]*\]|.*)", re.MULTILINE)
_MARK = re.compile(r"\bmark\.(\w+)")


def _left_out(config: pytest.Config) -> set[str]:
    """Return the long marks that the command's `-m` excludes, if it is a plain list of exclusions."""
    words = [part.split() for part in config.option.markexpr.split(" and ")]
    is_plain = all(len(pair) == 2 and pair[0] == "not" for pair in words)
    return {pair[1] for pair in words} & {*_LONG} if is_plain else set()


def _is_left_out(file: Path, left_out: set[str]) -> bool:
    """Return whether the module's own marks leave out all of its tests."""
    marks = _MODULE_MARKS.findall(file.read_text())
    return any(left_out & {*_MARK.findall(line)} for line in marks)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose tests are all left out, unless the command names files."""
    left_out, name = _left_out(config), collection_path.name
    if not left_out or not name.startswith("test_") or any(".py" in argument for argument in config.args):
        return None
    return True if name.endswith(".py") and _is_left_out(collection_path, left_out) else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make no items of a test that is left out with all its rows."""
    own: list[pytest.Mark] = getattr(obj, "pytestmark", []) if inspect.isfunction(obj) else []
    return [] if {mark.name for mark in own} & _left_out(collector.config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send from a worker only the reports that decide a test's outcome: each takes as long as a small test.
    The start of a test, and a setup or teardown that passed, are sent only if the run asks for durations."""
    if "PYTEST_XDIST_WORKER" not in os.environ or item.config.getoption("durations"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Begin a whole run's collecting at another file in each worker: pytest rewrites a file's asserts for the
    first that reads it, and all of them in each worker where they go through the files side by side."""
    worker, config = os.environ.get("PYTEST_XDIST_WORKER"), collector.config
    if worker and collector.nodeid == "tests" and config.args == config.getini("testpaths"):
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        files = sorted(Path(__file__).parent.rglob("test_*.py"))
        for file in files[int(worker.removeprefix("gw")) :: workers]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # said when it is collected
                importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            arguments = {
                name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
            }
            for name, value in arguments.items():
                if isinstance(value, InLoop):
                    arguments[name] = await stack.enter_async_context(value.manager)
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


@pytest.hookimpl(trylast=True)  # when the fixtures are gone
def pytest_runtest_teardown() -> None:
    """Forget what a test had masked, or the next one's texts lose words; the time zone of its settings; and
    where a command that ran in this process began to log, or the next one's records go to that file and
    `caplog` sees none."""
    log.forget_secrets()
    use_zone("")
    for logger in map(logging.getLogger, log.PACKAGES):
        for handler in [*logger.handlers]:
            logger.removeHandler(handler)
            handler.close()
        logger.propagate = True


@pytest.hookimpl(trylast=True)  # after the order was shuffled
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a folder's tests together: its SDKs, servers and clusters are needed in few processes then."""
    places: dict[str, int] = {}
    items.sort(key=lambda item: places.setdefault("/".join(item.nodeid.split("/")[:2]), len(places)))


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")  # before `-m` chooses
def pytest_mark_families(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the rows of a family that are like others to the slow suite."""
    mark_rest_slow(items, is_whole=not any("::" in argument for argument in config.args))


def pytest_collection_finish() -> None:
    """Set aside what collecting made, and let the collector look after what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # there without pytest-xdist too
def pytest_xdist_auto_num_workers() -> int:
    """Half as many workers again as cores: a test waits for processes and disks half of its time."""
    return len(os.sched_getaffinity(0)) * 3 // 2


@pytest.fixture(autouse=True, scope="session")
def made_databases(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make each kind of database once a process."""
    copy_new_databases(tmp_path_factory.mktemp("made"), StateDatabase, ConfirmDatabase, RecordFile)


@pytest.fixture(autouse=True, scope="module")
def unconfined_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the servers that a module marked `unconfined` starts run commands without the sandbox."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("unconfined"):
            patch.setenv("WHET_SANDBOX_MODE", "off")
        yield


@pytest.fixture(autouse=True)
def home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """WHET_HOME in the test's own folder, and no variable that could reach a paid service. For a test that
    asks for no folder none is made, which half of a small test's time went to."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_PROXY", "_proxy")) or name.startswith("WHET_"):
            monkeypatch.delenv(name)
    is_with_folder = "tmp_path" in request.fixturenames
    above = request.getfixturevalue("tmp_path") if is_with_folder else tmp_path_factory.getbasetemp()
    folder: Path = above / ("whet-home" if is_with_folder else f"whet-home-{next(_homes)}")
    monkeypatch.setenv("WHET_HOME", str(folder))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("WHET_REVIEW_WORKER", "off")  # a test that wants reviews says so
    monkeypatch.setenv("WHET_LSP_ENABLED", "false")  # this machine's language servers are nobody's subject
    if request.node.get_closest_marker("live"):
        monkeypatch.setenv("SSL_CERT_FILE", SYSTEMS_CERTIFICATES)
    if request.node.get_closest_marker("unconfined"):
        monkeypatch.setenv("WHET_SANDBOX_MODE", "off")
    return folder


@pytest.fixture(autouse=True, scope="session")
def only_loopback() -> Iterator[None]:
    """Refuse every connection that leaves this machine, so that no test can spend or leak."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0])  # type: ignore[index]
            if host != "localhost" and not ipaddress.ip_address(host.split("%")[0]).is_loopback:
                raise OSError(f"a test tried to reach {host}")
        return connect(self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture
def clock() -> FixedClock:
    """Time that stands still."""
    return FixedClock()
