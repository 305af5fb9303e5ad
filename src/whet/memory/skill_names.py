"""Names a learned skill after words of its sources, because every prompt shows the names of skills.

A model's name is kept if the person typed its words in this order, or a call of the skill contains them.
Otherwise the name is made of the skill's first call, or else of the person's own sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.memory import typed
from whet.memory.folding import join_words
from whet.memory.taint import strip_talk
from whet.memory.transcript import Passage, QuotableTranscript

_PLAIN = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_MAX_WORDS = 3
_MAX_CHARS = 64


def find_name(name: str, passages: Sequence[Passage], transcript: QuotableTranscript) -> str:
    """Return the name under which a skill is kept."""
    own = (typed.drop_quotations(source.text) for source in transcript.sources if source.tier == "user")
    calls = [strip_talk(item.source) for item in passages if item.tier == "observed"]
    wanted = join_words(name)
    if any(wanted in join_words(text.replace("_", " ")) for text in (*own, *calls)):
        return name
    texts = (*calls, *(item.unit for item in passages if item.tier == "user"))
    names = (_name_by(text) for text in texts)
    return next((found for found in names if found), "steps")


def _name_by(text: str) -> str:
    """Return the first plain words of a call or a sentence, such as make-docs, or an empty string."""
    names = (word.rpartition("/")[2].strip(".,;:!?") for word in text.lower().split() if word[0] != "-")
    words = [name.partition(".")[0] for name in names]  # fire.sh without its ending
    plain = [word for word in words[:_MAX_WORDS] if _PLAIN.fullmatch(word)]
    return "-".join(plain)[:_MAX_CHARS].strip("-")
