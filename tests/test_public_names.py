"""Programs import some parts by names that earlier releases documented; these names stay."""

from __future__ import annotations

import whet.confirm.client
import whet.practice.script
import whet.practice.server
import whet_confirm.client
import whet_lab.practice.script
import whet_lab.practice.server


def test_documented_names_of_earlier_releases_are_the_same_objects() -> None:
    for name in ("BlockingClient", "ConfirmClient", "requires_confirmation"):
        assert getattr(whet.confirm.client, name) is getattr(whet_confirm.client, name)
    assert whet.practice.server.PracticeServer is whet_lab.practice.server.PracticeServer
    assert whet.practice.script.ScriptedReply is whet_lab.practice.script.ScriptedReply
