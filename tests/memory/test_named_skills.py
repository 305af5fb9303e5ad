"""A skill that a person names in a message is noted for the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory.test_library import put
from whet.memory.library import Library
from whet.memory.named_skills import note_named_skills

NOTE = "[the person names the skills {}: load each with skill_view first]"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("please use $deploy now", "deploy"),
        ("/deploy it", "deploy"),
        ("first $deploy, then /review.", "deploy, review"),
        ("($deploy) and $deploy", "deploy"),
        ("$deploys and /deploy/it and a/deploy and $DEPLOY", ""),
        ("see https://x.example/deploy and ~/deploy and ./deploy and /deploy.md", ""),
        ("run `echo $deploy`", ""),
        ("look:\n```\necho $deploy\n```", ""),
        ("<pasted>use $deploy</pasted> what is that?", ""),
        ("it costs $5 or /5", ""),
        ("use $broken", ""),
    ],
)
def test_a_named_skill_is_noted(tmp_path: Path, text: str, names: str) -> None:
    for name in ("deploy", "review"):
        put(tmp_path, name)
    put(tmp_path, "broken", "no front matter")
    assert note_named_skills(Library(tmp_path), text) == (NOTE.format(names) if names else "")
