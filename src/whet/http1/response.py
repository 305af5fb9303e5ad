"""Parse one answer from bytes as they arrive, with httptools. No I/O and no clock.

Memory is bounded: a head, and any data without body content, is limited to 100 KB; the connection pauses
reading while much of the body waits to be read.
"""

from __future__ import annotations

from math import isfinite

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from whet.http1.failure import HttpFailed

MAX_HEAD_BYTES = 100 * 1024
MAX_HEADERS = 256


class ResponseReader:
    """Parses one answer. `feed` takes received bytes and does nothing after a failure; `end` handles the end
    of the connection.

    `is_whole`: the answer is complete. `can_follow`: the connection may be used for another request.
    `waiting_bytes`: how many bytes of the body have arrived and not been read. `ends_with_connection`: only
    the end of the connection marks the end of the body.
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
        self.ends_with_connection: bool = False
        self._header_count = 0
        self._refusal = ""
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Real servers send line ends without CR, folded headers, and a length in addition to chunks. This is
        # safe, because nothing but this answer is read from the connection until the next request is sent.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_headers=True, lenient_chunked_length=True
        )

    def feed(self, data: bytes | memoryview) -> None:
        """Parse received bytes. Raises HttpFailed if they are not HTTP, or the head has no end."""
        if self._parser is None or self.is_whole:
            self.can_follow = False  # the server sent data without a request
            return
        before = self.waiting_bytes
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self.is_whole:  # the answer is complete; data after it is ignored
                self.can_follow = False
                return
            self._parser = None
            reason = self._refusal or _error_text(error)
            raise HttpFailed("answer", f"the answer is not HTTP: {reason}") from error
        if self.is_whole:
            return
        self._idle_bytes = 0 if self.waiting_bytes != before else self._idle_bytes + len(data)
        if self._idle_bytes > MAX_HEAD_BYTES:
            self._parser = None
            raise HttpFailed("answer", "the answer's headers have no end")

    def end(self) -> None:
        """Handle the end of the connection. Raises HttpFailed if the answer was cut off."""
        self.can_follow = False
        self._parser = None
        if self.is_whole:
            return
        if not self.has_head:
            raise HttpFailed("read", "the server hung up without an answer")
        if not self.ends_with_connection:
            raise HttpFailed("read", "the answer was cut off")
        self.is_whole = True

    def take(self) -> bytes:
        """Return the body bytes received since the last call, in one piece."""
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces, self.waiting_bytes = [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Release the parser, which references this object."""
        self._parser = None

    # Called by httptools during `feed`.

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self.is_whole:
            raise ValueError("a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; if it is repeated, the last value. Trailers are ignored."""
        if self.has_head:
            return
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._refuse("too many headers")
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Process the head, or skip an interim one."""
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
        self.ends_with_connection = not coding and not has_length
        # Both at once is used to smuggle one answer behind another: read this answer and nothing after it.
        self.can_follow = self._parser.should_keep_alive() and not (coding and has_length)

    def on_body(self, piece: bytes) -> None:
        """Store a piece of the body."""
        self._pieces.append(piece)
        self.waiting_bytes += len(piece)

    def on_message_complete(self) -> None:
        """Handle the end of the answer, or of an interim one."""
        if self.status < 200:
            self.headers.clear()
            return
        self.is_whole = True

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        raise ValueError(reason)


def _error_text(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return text[:100] if text.isprintable() else type(error).__name__


def retry_after_s(value: str, now_s: float) -> float | None:
    """Parse a Retry-After header, seconds or a date, to seconds from now, or return None if it is neither."""
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 5 ms of CPU; few servers send a date

        try:
            seconds = max(parsedate_to_datetime(value).timestamp() - now_s, 0.0)
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if isfinite(seconds) and seconds >= 0 else None
