"""One answer, read from bytes as they come: status, headers, body pieces, its end. No I/O and no clock.

httptools does the parsing. What is held is bounded: a head, and whatever comes without any body in it, has at
most 100 KB; the connection stops reading while more than enough of the body waits to be taken.
"""

from __future__ import annotations

from math import isfinite

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from whet.http1.failure import HttpFailed

MOST_HEAD_BYTES = 100 * 1024
MOST_HEADERS = 256


class ResponseReader:
    """Takes bytes by `feed` and the end of the connection by `end`; after a failure it takes nothing more.

    `is_whole`: the answer has ended as it said it would. `can_follow`: another request may go over the same
    connection. `waiting_bytes`: how much of the body was not taken yet.
    """

    def __init__(self) -> None:
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self.has_head: bool = False
        self.is_whole: bool = False
        self.can_follow: bool = False
        self.waiting_bytes: int = 0
        self._pieces: list[bytes] = []
        self._idle_bytes = 0
        self._ends_with_connection = False
        self._header_count = 0
        self._refusal = ""
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Line ends without CR, folded headers, a length beside chunks: servers send them, and the answer is
        # all that is read from a connection until the next request leaves.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_headers=True, lenient_chunked_length=True
        )

    def feed(self, data: bytes | memoryview) -> None:
        """Take what came. Raises HttpFailed where it is no HTTP, or has no end."""
        if self._parser is None or self.is_whole:
            self.can_follow = False  # it spoke on its own
            return
        before = self.waiting_bytes
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self.is_whole:  # the answer is there; what follows it is not ours
                self.can_follow = False
                return
            self._parser = None
            reason = self._refusal or _plain(error)
            raise HttpFailed("answer", f"the answer is no HTTP: {reason}") from error
        if self.is_whole:
            return
        self._idle_bytes = 0 if self.waiting_bytes != before else self._idle_bytes + len(data)
        if self._idle_bytes > MOST_HEAD_BYTES:
            self._parser = None
            raise HttpFailed("answer", "the answer's headers have no end")

    def end(self) -> None:
        """Say that nothing more comes. Raises HttpFailed where the answer was cut."""
        self.can_follow = False
        self._parser = None
        if self.is_whole:
            return
        if not self.has_head:
            raise HttpFailed("read", "the server hung up without an answer")
        if not self._ends_with_connection:
            raise HttpFailed("read", "the answer was cut off")
        self.is_whole = True

    def take(self) -> bytes:
        """Give what has come of the body since the last time, in one piece."""
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces, self.waiting_bytes = [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Let go of the parser, which holds this object."""
        self._parser = None

    # httptools calls these while it is fed.

    def on_message_begin(self) -> None:
        """A second answer to one request is not read."""
        if self.is_whole:
            raise ValueError("a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; of one that is repeated the last. Trailers are not kept."""
        if self.has_head:
            return
        self._header_count += 1
        if self._header_count > MOST_HEADERS:
            self._refuse("too many headers")
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Take the head, or pass over an interim one."""
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse("another version of HTTP")
        if self.status == 101 or self.status < 100:
            self._refuse("a status that nobody asked for")
        if self.status < 200:
            return
        self.has_head = True
        coding = self.headers.get("transfer-encoding", "").lower()
        if coding not in ("", "chunked"):
            self._refuse("an unknown transfer-encoding")
        has_length = "content-length" in self.headers
        self._ends_with_connection = not coding and not has_length
        # Both at once is how an answer is smuggled behind another: it is read, and nothing after it.
        self.can_follow = self._parser.should_keep_alive() and not (coding and has_length)

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(piece)
        self.waiting_bytes += len(piece)

    def on_message_complete(self) -> None:
        """The answer is whole, or only an interim one was."""
        if self.status < 200:
            self.headers.clear()
            return
        self.is_whole = True

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        raise ValueError(reason)


def _plain(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return text[:100] if text.isprintable() else type(error).__name__


def retry_after_s(value: str, now_s: float) -> float | None:
    """Read a Retry-After header, seconds or a date, as seconds from now; None for what is neither."""
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 5 ms of CPU; few servers send a date

        try:
            seconds = max(parsedate_to_datetime(value).timestamp() - now_s, 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if isfinite(seconds) and seconds >= 0 else None
