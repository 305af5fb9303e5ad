"""A memory provider that mirrors learning to a file: one JSON line per change and per turn.

Every method is optional. Whet calls them after the change or the turn is stored, so that a crash can lose a
line here and nothing there; `metadata["ledger_id"]` says which lines are missing.
"""

import json
import threading


class MemoryMirror:
    name = "memory-mirror"

    def __init__(self, path):
        self._path = path
        self._lock = threading.Lock()
        self._turns = 0

    def on_memory_write(self, action, target, content, metadata):
        """`target` is memory, user or skill:NAME; `metadata` is the provenance, empty fields left out."""
        self._write({"event": action, "target": target, "content": content, "metadata": metadata})

    def sync_turn(self, user, assistant, session_id):
        """A turn has ended. Only its size is mirrored: what was said stays where it is."""
        self._turns += 1
        self._write({"event": "turn", "session_id": session_id, "chars": len(user) + len(assistant)})

    def prefetch(self, query, session_id=""):
        """Give text that may help with `query`, or ""; a mirror adds nothing to what Whet knows."""
        return ""

    def shutdown(self):
        """The program ends."""
        self._write({"event": "shutdown", "turns": self._turns})

    def _write(self, row):
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def register(ctx):
    ctx.register_memory_provider(MemoryMirror(ctx.home / "memory-mirror.jsonl"))
