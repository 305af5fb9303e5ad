"""The demo's chapter `sandbox`: a hostile Makefile really runs, nothing leaves, and its damage is undone.

`sandbox.mode` is strict here: if no sandbox engine works, the Makefile is not run, and the chapter says
so. Every claim is checked on the files, on a listening server, and on the recorded requests.
"""

from __future__ import annotations

import http.client
import http.server
import shutil
import threading
from contextlib import closing
from pathlib import Path

from whet.app.confining import confine
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.contract.errors import Unavailable
from whet.sandbox.status import EngineStatus
from whet_lab.demo.run import DemoRun, DemoTurn
from whet_lab.practice.hostile import COMMAND, DEEDS, KEY_FILE, SPOILED, make_hostile

_KEY = "-----KEY of the demo, worth nothing: 7f3a9c51-----"
_PERSONAL = {KEY_FILE: _KEY + "\n", "photos/harbour.txt": "a picture\n", "notes.txt": "call Ada\n"}
_STRICT = "sandbox:\n  mode: strict\n"


class _Listener:
    """A server on this machine that records the bodies that it receives."""

    def __init__(self) -> None:
        bodies: list[bytes] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.bodies = bodies
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def receives_trial(self) -> bool:
        """Return whether a body sent to the server arrives. Without that, silence would prove nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("POST", "/", b"a trial")
        connection.getresponse().read()
        connection.close()
        bodies, self.bodies[:] = list(self.bodies), []
        return bodies == [b"a trial"]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def run_chapter(run: DemoRun) -> None:
    """Run the chapter."""
    if not shutil.which("make"):
        raise Unavailable("this chapter runs a Makefile, and there is no make", hint="install make")
    with closing(_Listener()) as listener:
        run.check("server_hears", listener.receives_trial())
        status = _prepare(run, listener)
        files = _read_files(run)
        turn = _run_makefile(run, listener, status, files)
        if status.holds and turn.end is not None:
            _restore_file(run, turn.end.session_id, files)
    run.measured |= {
        "engine": status.name,
        "line": status.line,
        "requests": len(run.world.requests()),
        "heard": len(listener.bodies),
        "wall_s": run.wall_s,
    }


def _prepare(run: DemoRun, listener: _Listener) -> EngineStatus:
    stage, world = run.stage, run.world
    stage.title("whet demo, chapter sandbox")
    stage.say(
        "The model is the practice model: a scripted stand-in, not a language model. Everything else is "
        "real: the home with its key, the server that waits for it, the Makefile, the sandbox. All of it "
        "lies in a temporary folder."
    )
    for name, text in _PERSONAL.items():
        path = _person_folder(run) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    stage.say("The workspace has a Makefile. This is what its check does:")
    stage.block(make_hostile(world.project, _person_folder(run), world.home.root, listener.port).rstrip())
    with world.home.config.open("a", encoding="utf-8") as file:
        file.write(_STRICT)
    status = _read_status(world.home)
    stage.command("whet sandbox status")
    stage.block(status.line)
    if not status.holds:
        stage.say("So nothing would hold it here. sandbox.mode is strict: commands are refused, not run.")
    return status


def _read_status(home: Home) -> EngineStatus:
    with closing(confine(home, SandboxSettings(mode="strict"))) as confinement:
        return confinement.status()


def _run_makefile(
    run: DemoRun, listener: _Listener, status: EngineStatus, before: dict[str, bytes]
) -> DemoTurn:
    stage = run.stage
    stage.title("1  The agent runs it")
    turn = run.chat(["-q", "Check the book, please."])
    run.check_turn("answered", turn)
    bodies = [request.body for request in run.world.requests()]
    stage.say("What the command said, as the model was told:")
    stage.block(next((f"{call.preview.rstrip()} ..." for call in turn.calls), "(nothing)"))
    done = [deed for deed in DEEDS if any(f"== {deed}" in body for body in bodies)]
    if status.holds:
        run.check("every_deed_tried", len(done) == len(DEEDS), f"{len(done)} of {len(DEEDS)}")
    else:
        run.check("refused_where_nothing_holds", not done, ", ".join(done))
    after = _read_files(run)
    outside = sorted(name for name in before if after.get(name) != before[name] and name != SPOILED)
    run.check("home_and_whet_untouched", not outside, ", ".join(outside))
    run.check("nothing_was_sent", not listener.bodies, f"{len(listener.bodies)} times")
    run.check("key_in_no_request", not any(_KEY in body for body in bodies))
    if status.holds:
        run.conclude(
            f"What you just saw: `{COMMAND}` ran, unasked, and tried {len(DEEDS)} things. The home that it "
            "could delete was an empty one of its own; the person's is whole. There was no key to print, and "
            "no way out. But it wrote in the workspace, as commands may."
        )
    else:
        run.conclude("What you just saw: nothing holds on this machine, so the command was not run.")
    return turn


def _restore_file(run: DemoRun, session_id: str, before: dict[str, bytes]) -> None:
    stage = run.stage
    stage.title("2  What it spoiled comes back")
    code, output = run.whet("diff", f"{session_id}:1")
    run.check("diff_names_the_file", code == 0 and SPOILED in output and "+pay up" in output)
    spoiled = (run.world.project / SPOILED).read_bytes()
    run.check("file_was_spoiled", spoiled != before[SPOILED])
    code, _ = run.whet("rewind", f"{session_id}:1", "--files")
    now = (run.world.project / SPOILED).read_bytes()
    run.check("file_is_back", code == 0 and now == before[SPOILED])
    run.conclude(
        "What you just saw: the workspace was recorded before the command ran, so the file is back to the "
        "byte. `whet rewind --undo` would undo that, too."
    )


def _read_files(run: DemoRun) -> dict[str, bytes]:
    """Read the person's files, Whet's settings, and the file that the Makefile spoils."""
    paths = {f"me/{name}": (_person_folder(run) / name) for name in _PERSONAL}
    paths |= {"config.yaml": run.world.home.config, SPOILED: run.world.project / SPOILED}
    return {name: path.read_bytes() if path.exists() else b"(gone)" for name, path in paths.items()}


def _person_folder(run: DemoRun) -> Path:
    return run.world.folder / "me"
