"""What somebody has seen of a request, and what the service's reader makes of it."""

from __future__ import annotations

from whet.confirm import decide, requests
from whet.confirm.records import Caller, ConfirmRequest
from whet.confirm.risk import RiskReading
from whet.confirm.service import LARGE_BYTES, ConfirmService


async def reveal(service: ConfirmService, request_id: str, who: Caller) -> None:
    """Note that somebody has the hidden parts of a request shown, before they are."""
    await service.change(lambda tx: decide.reveal(tx, request_id, who))


def revealed(service: ConfirmService, request_id: str, who: Caller) -> str:
    """Give the digest of what `who` had shown of a request last, "" for nothing."""
    return service.database.read_now(lambda db: requests.revealed_digest(db, request_id, who.name))


def reading(service: ConfirmService, request: ConfirmRequest) -> RiskReading | None:
    """Give what the service's reader makes of a request's commands; None without a reader, or commands."""
    if service.read_risk is None or len(request.details_json) > LARGE_BYTES:
        return None
    return service.read_risk(requests.details_of(request.details_json))
