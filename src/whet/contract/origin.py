"""The provenance of a learned write: who made it, in which session, turn and call.

It is stored with every row of the ledger and passed to external memory providers as plain metadata.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

WriteOrigin: TypeAlias = Literal["foreground", "review", "user", "import"]


class Origin(msgspec.Struct, frozen=True):
    """The provenance of one write. `session_id` is the session that made the call. For a review,
    `parent_session_id` is the session that it reviews, `others` the ids of further sessions under review
    (separated by spaces, not stored), and `task_id` its job."""

    write_origin: WriteOrigin = "user"
    session_id: str = ""
    turn_id: str = ""
    tool_call_id: str = ""
    parent_session_id: str = ""
    execution_context: str = ""
    platform: str = ""
    tool_name: str = ""
    task_id: str = ""
    others: str = ""

    @property
    def evidence_session_ids(self) -> list[str]:
        """The sessions whose messages count as evidence: the reviewed ones, or the session's own."""
        if self.write_origin != "review":
            return [self.session_id]
        return [self.parent_session_id, *self.others.split()]

    def metadata(self) -> dict[str, str]:
        """Return the fields that are set, as external memories receive them."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
