"""Stands before every learned write: is there evidence, from whom, is the text itself harmless.

It judges one claim against the messages of one session and refuses with a reason that lets the model try
again. It writes nothing, and knows neither files nor the ledger.
"""

from __future__ import annotations

from whet.memory.claim import Claim, Verdict
from whet.memory.requests import Refused
from whet.memory.scan import scan
from whet.memory.transcript import Transcript


def judge(claim: Claim, transcript: Transcript, *, foreground: bool) -> Verdict:
    """Give the verdict on a claim. Raises Refused."""
    if finding := scan(claim.text):
        raise Refused(f"Not kept: {finding}")
    quotes = claim.quotes
    if not quotes and foreground:
        quotes = transcript.own_words()
    if not quotes:
        raise Refused("There is no evidence", hint="Give verbatim quotes from the session.")
    found = [transcript.locate(quote) for quote in quotes]
    places = tuple(place for place in found if place is not None)
    if not places:
        raise Refused("No quote stands in the session", hint="Quote word for word.")
    trusted = any(place.trust in ("user", "observed") for place in places)
    return Verdict("user" if trusted else "untrusted", places, not trusted)
