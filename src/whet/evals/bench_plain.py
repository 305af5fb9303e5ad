"""Plain BM25 over single messages: what a search must beat. Written for clarity; it knows nothing of ours.

k1 1.2, b 0.75, lower-cased runs of letters and digits, and a short list of English stop words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest

_K1, _B = 1.2, 0.75
_WORDS = (
    "a an and are as at be been by can could did do does for from had has have he her his how i if in is it "
    "its me my of on or our she should so that the their them they this to was we were what when where which "
    "who whom why will with would you your"
)
_STOP = frozenset(_WORDS.split())


class PlainBm25:
    """An index of texts by their place in the list."""

    def __init__(self, texts: Sequence[str]) -> None:
        documents = [_tokens(text) for text in texts]
        self._lengths = [len(tokens) for tokens in documents]
        self._mean = sum(self._lengths) / max(len(documents), 1) or 1.0
        self._where: dict[str, list[tuple[int, int]]] = {}
        for place, tokens in enumerate(documents):
            for token, count in Counter(tokens).items():
                self._where.setdefault(token, []).append((place, count))

    def best(self, query: str, limit: int) -> list[int]:
        """Give the places of the best texts, best first."""
        scores: Counter[int] = Counter()
        for token in dict.fromkeys(_tokens(query)):
            found = self._where.get(token, [])
            idf = math.log(1 + (len(self._lengths) - len(found) + 0.5) / (len(found) + 0.5))
            for place, count in found:
                norm = 1 - _B + _B * self._lengths[place] / self._mean
                scores[place] += idf * count * (_K1 + 1) / (count + _K1 * norm)  # pyright: ignore[reportArgumentType] a Counter takes floats
        return nlargest(limit, scores, key=lambda place: (scores[place], -place))


def _tokens(text: str) -> list[str]:
    return [token for token in re.findall(r"[^\W_]+", text.lower()) if token not in _STOP]
