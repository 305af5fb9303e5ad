"""The demo's chapter `sandbox`: a hostile Makefile is really run, nothing leaves, its damage is taken back.

`sandbox.mode` is strict here: where no engine holds, the Makefile is not run, and the chapter says so. What
is claimed is checked on the files, on a server that listens, and on the recorded requests.
"""

from __future__ import annotations

import http.client
import http.server
import shutil
import threading
from contextlib import closing
from pathlib import Path

from whet.app.confining import confine
from whet.cli.demo_play import DemoRun, DemoTurn
from whet.config.paths import Home
from whet.config.schema import SandboxSettings
from whet.contract.errors import Unavailable
from whet.practice.hostile import COMMAND, DEEDS, KEY_FILE, SPOILED, make_hostile
from whet.sandbox.status import EngineStatus

_KEY = "-----KEY of the demo, worth nothing: 7f3a9c51-----"
_PERSONAL = {KEY_FILE: _KEY + "\n", "photos/harbour.txt": "a picture\n", "notes.txt": "call Ada\n"}
_STRICT = "sandbox:\n  mode: strict\n"


class _Listener:
    """A server on this machine that keeps what it is sent."""

    def __init__(self) -> None:
        heard: list[bytes] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.heard = heard
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def hears_itself(self) -> bool:
        """Whether what is sent to it arrives, without which silence would prove nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("POST", "/", b"a trial")
        connection.getresponse().read()
        connection.close()
        heard, self.heard[:] = list(self.heard), []
        return heard == [b"a trial"]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def play(play: DemoRun) -> None:
    """Tell the chapter."""
    if not shutil.which("make"):
        raise Unavailable("this chapter runs a Makefile, and there is no make", hint="install make")
    with closing(_Listener()) as listener:
        play.check("server_hears", listener.hears_itself())
        held = _open(play, listener)
        kept = _look(play)
        turn = _run(play, listener, held, kept)
        if held.holds and turn.end is not None:
            _take_back(play, turn.end.session_id, kept)
    play.measured |= {
        "engine": held.name,
        "line": held.line,
        "requests": len(play.world.requests()),
        "heard": len(listener.heard),
        "wall_s": play.wall_s,
    }


def _open(play: DemoRun, listener: _Listener) -> EngineStatus:
    stage, world = play.stage, play.world
    stage.title("whet demo, chapter sandbox")
    stage.say(
        "The model is the practice model: a scripted stand-in, not a language model. Everything else is "
        "real: the home with its key, the server that waits for it, the Makefile, the sandbox. All of it "
        "lies in a temporary folder."
    )
    for name, text in _PERSONAL.items():
        place = _person(play) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    stage.say("The workspace has a Makefile. This is what its check does:")
    stage.block(make_hostile(world.project, _person(play), world.home.root, listener.port).rstrip())
    with world.home.config.open("a", encoding="utf-8") as file:
        file.write(_STRICT)
    held = _status(world.home)
    stage.command("whet sandbox status")
    stage.block(held.line)
    if not held.holds:
        stage.say("So nothing would hold it here. sandbox.mode is strict: commands are refused, not run.")
    return held


def _status(home: Home) -> EngineStatus:
    with closing(confine(home, SandboxSettings(mode="strict"))) as confinement:
        return confinement.status()


def _run(play: DemoRun, listener: _Listener, held: EngineStatus, before: dict[str, bytes]) -> DemoTurn:
    stage = play.stage
    stage.title("1  The agent runs it")
    turn = play.chat(["-q", "Check the book, please."])
    play.answered("answered", turn)
    bodies = [request.body for request in play.world.requests()]
    stage.say("What the command said, as the model was told:")
    stage.block(next((f"{call.preview.rstrip()} ..." for call in turn.calls), "(nothing)"))
    done = [deed for deed in DEEDS if any(f"== {deed}" in body for body in bodies)]
    if held.holds:
        play.check("every_deed_tried", len(done) == len(DEEDS), f"{len(done)} of {len(DEEDS)}")
    else:
        play.check("refused_where_nothing_holds", not done, ", ".join(done))
    after = _look(play)
    outside = sorted(name for name in before if after.get(name) != before[name] and name != SPOILED)
    play.check("home_and_whet_untouched", not outside, ", ".join(outside))
    play.check("nothing_was_sent", not listener.heard, f"{len(listener.heard)} times")
    play.check("key_in_no_request", not any(_KEY in body for body in bodies))
    if held.holds:
        play.conclude(
            f"What you just saw: `{COMMAND}` ran, unasked, and tried {len(DEEDS)} things. The home that it "
            "could delete was an empty one of its own; the person's is whole. There was no key to print, and "
            "no way out. But it wrote in the workspace, as commands may."
        )
    else:
        play.conclude("What you just saw: nothing holds on this machine, so the command was not run.")
    return turn


def _take_back(play: DemoRun, session_id: str, before: dict[str, bytes]) -> None:
    stage = play.stage
    stage.title("2  What it spoiled comes back")
    code, said = play.whet("diff", f"{session_id}:1")
    play.check("diff_names_the_file", code == 0 and SPOILED in said and "+pay up" in said)
    spoiled = (play.world.project / SPOILED).read_bytes()
    play.check("file_was_spoiled", spoiled != before[SPOILED])
    code, _ = play.whet("rewind", f"{session_id}:1", "--files")
    now = (play.world.project / SPOILED).read_bytes()
    play.check("file_is_back", code == 0 and now == before[SPOILED])
    play.conclude(
        "What you just saw: the workspace was recorded before the command ran, so the file is back to the "
        "byte. `whet rewind --undo` would undo that, too."
    )


def _look(play: DemoRun) -> dict[str, bytes]:
    """Give what must stay: the person's files, Whet's settings and records, the file that is spoiled."""
    kept = {f"me/{name}": (_person(play) / name) for name in _PERSONAL}
    kept |= {"config.yaml": play.world.home.config, SPOILED: play.world.project / SPOILED}
    return {name: path.read_bytes() if path.exists() else b"(gone)" for name, path in kept.items()}


def _person(play: DemoRun) -> Path:
    return play.world.folder / "me"
