"""Record which parts of a request a person revealed, and assess the risk of its commands."""

from __future__ import annotations

from whet_confirm import decide, requests
from whet_confirm.records import Caller, ConfirmRequest
from whet_confirm.risk import RiskReading
from whet_confirm.service import LARGE_BYTES, ConfirmService


async def reveal(service: ConfirmService, request_id: str, caller: Caller) -> None:
    """Record that a person reveals the hidden parts of a request, before they are shown."""
    await service.change(lambda tx: decide.record_reveal(tx, request_id, caller))


def last_revealed_digest(service: ConfirmService, request_id: str, caller: Caller) -> str:
    """Return the digest of the version that the caller revealed last, or an empty string."""
    return service.database.read_now(lambda db: requests.revealed_digest(db, request_id, caller.name))


def assess_risk(service: ConfirmService, request: ConfirmRequest) -> RiskReading | None:
    """Return the risk reading of a request's commands, or None if the service has no reader or there are no
    commands."""
    if service.read_risk is None or len(request.details_json) > LARGE_BYTES:
        return None
    return service.read_risk(requests.decode_details(request.details_json))
