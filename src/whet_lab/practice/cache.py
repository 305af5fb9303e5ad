"""Simulates a prefix cache: counts the tokens of a request that an earlier request already contained.

A request is a list of blocks (tools, system prompt, messages) in the vendor's order. The longest run of
leading blocks that was seen before counts as cached. Anthropic's caching by marks is simulated too: only
marked prefixes are written, and a mark looks back 20 blocks. Tokens are characters / 4. Only hashes and
lengths are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

_LIMIT = 200_000
_LOOK_BACK = 20


def tokens(size: int) -> int:
    """Estimate tokens from a size in characters (here: bytes of UTF-8)."""
    return (size + 3) // 4


class TokenTally(msgspec.Struct, frozen=True):
    """A request's prompt tokens: all, read from the cache, and written to it."""

    prompt: int
    read: int = 0
    written: int = 0


class PrefixCache:
    """The prefixes seen per model. Above 200,000 the older half is dropped."""

    def __init__(self) -> None:
        self._seen: dict[int, None] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._seen.clear()

    def count_automatic(self, model: str, blocks: Iterable[bytes]) -> TokenTally:
        """Count as OpenAI does: every prefix is stored, and the longest stored one counts as read."""
        prefixes, chain = self._seen, hash(model)
        total = cached = 0
        warm = True
        for block in blocks:
            total += len(block)
            chain = hash((chain, block))
            warm = warm and chain in prefixes
            if warm:
                cached = total
            else:
                prefixes[chain] = None
        self._forget()
        return TokenTally(tokens(total), tokens(cached))

    def count_marked(self, model: str, blocks: Sequence[tuple[bytes, bool]]) -> TokenTally:
        """Count as Anthropic does: the flag marks a block with a cache mark."""
        chain, total = hash((model, "marked")), 0
        prefixes: list[tuple[int, int]] = []
        marks: list[int] = []
        for index, (block, is_marked) in enumerate(blocks):
            total += len(block)
            chain = hash((chain, block))
            prefixes.append((chain, total))
            if is_marked:
                marks.append(index)
        if not marks:
            return TokenTally(tokens(total))
        cached_size = max(self._find_cached_size(prefixes, mark) for mark in marks)
        for mark in marks:
            self._seen[prefixes[mark][0]] = None
        self._forget()
        reach = prefixes[marks[-1]][1]
        return TokenTally(tokens(total), tokens(cached_size), tokens(reach) - tokens(cached_size))

    def _find_cached_size(self, prefixes: Sequence[tuple[int, int]], mark: int) -> int:
        for index in range(mark, max(-1, mark - _LOOK_BACK), -1):
            chain, size = prefixes[index]
            if chain in self._seen:
                return size
        return 0

    def _forget(self) -> None:
        if len(self._seen) > _LIMIT:
            self._seen = dict.fromkeys(list(self._seen)[-_LIMIT // 2 :])
