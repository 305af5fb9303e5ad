"""Words that are common in questions and say nothing about their subject.

English only: in other languages the frequency of a word in the store serves the same purpose (see
`ranking.py`).
"""

from __future__ import annotations

_WORDS = (
    "a about after all am an and any are as at be because been before being but by can could d did do "
    "does doing done don down for from had has have having he her here hers him his how i if in into is "
    "it its just ll m may me might more most my no not now of off on once only or our ours out over own "
    "re s same she should so some such t than that the their theirs them then there these they this those "
    "through to too under until up us ve very was we were what when where which while who whom whose why "
    "will with would you your yours"
)
STOP_WORDS = frozenset(_WORDS.split())
