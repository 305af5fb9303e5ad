"""Collect the notices that the reader of an answer must see. A stream sends each at once, and all at its
end."""

from __future__ import annotations

from whet.contract.events import ApprovalAsked, ApprovalDecided, ConfirmationAsked, Notice
from whet.log import mask
from whet.serve.suspended_turn import ApiEvent

_SUBJECT_CHARS = 200


class AnswerNotices:
    """The notices of one answer, in the order of their events, with secrets masked."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._waiting: dict[str, tuple[int, str]] = {}

    @property
    def fields(self) -> dict[str, object]:
        """The answer's field with all notices, or an empty dict if there are none."""
        return {"notices": list(self._lines)} if self._lines else {}

    def add(self, event: ApiEvent) -> dict[str, object]:
        """Add the notice in an event, if there is one. Returns the field that a stream sends at once, or
        {}."""
        match event:
            case Notice(must_show=True):
                self._lines.append(mask(event.text))
                return {"notices": self._lines[-1:]}
            case ConfirmationAsked():
                begin = f"{event.action} waited for a human's decision"
                return self._add_wait(event.call_id, begin, event.text)
            case ApprovalAsked():
                subject = event.subject.partition("\n")[0][:_SUBJECT_CHARS]
                line = f"{event.tool} waits for the owner's answer: {subject}"
                return self._add_wait(event.call_id, f"{event.tool} waited for the owner's answer", line)
            case ApprovalDecided() if event.call_id in self._waiting:
                position, begin = self._waiting.pop(event.call_id)
                outcome = "allowed" if event.verdict == "allow" else "denied"
                self._lines[position] = f"{begin} and was {outcome}"
            case _:
                pass
        return {}

    def _add_wait(self, call_id: str, begin: str, line: str) -> dict[str, object]:
        """Add a line that is replaced when its call is decided. It replaces an earlier question about the
        call."""
        line = mask(line)
        if call_id in self._waiting:
            self._lines[self._waiting[call_id][0]] = line
        else:
            self._waiting[call_id] = len(self._lines), begin
            self._lines.append(line)
        return {"notices": [line]}
