"""Files that the agent's user may not read are left out of the record, and only they."""

from __future__ import annotations

from pathlib import Path

from tests.rewind.trees import back, open_workspace, step
from tests.rewind.unprivileged import only_root, run_as_nobody
from whet.rewind.states import why_left_out


@only_root
def test_a_file_of_somebody_else_is_left_out_and_the_others_come_back() -> None:
    def prepare(folder: Path) -> None:
        work = folder / "work"
        work.mkdir(mode=0o777)
        work.chmod(0o777)
        (work / "secret").write_text("root's")
        (work / "secret").chmod(0o600)

    def delete_and_take_back(folder: Path) -> None:
        workspace = open_workspace(folder)
        (folder / "work" / "own").write_text("mine")
        record = step(workspace, "rm own")
        known = workspace.find_known("secret")
        assert known is not None and why_left_out(known.state) == "unreadable"
        assert known.stamp is not None, "each step would read it again"
        assert back(workspace, record).failed == {}
        assert (folder / "work" / "own").read_text() == "mine"
        workspace.close()

    run_as_nobody(delete_and_take_back, prepare)
