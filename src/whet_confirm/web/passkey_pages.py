"""The page where approvers enrol their passkeys."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request as Http
from starlette.responses import RedirectResponse, Response

from whet.contract.errors import ConfigError
from whet.web.guard import LOCAL_NAMES
from whet.web.sessions import Visit
from whet_confirm import factors, passkeys
from whet_confirm.ledger import Tx
from whet_confirm.passkeys import MAX_PROOF_CHARS, PasskeyOrigin
from whet_confirm.web.site import AccountPages


class PasskeyPages(AccountPages):
    """Shows a person's passkeys and adds new ones."""

    async def show(self, request: Http, visit: Visit) -> Response:
        """Show the person's passkeys, and the button to add one."""
        return await self._answer(request, visit)

    async def enrol(self, request: Http, visit: Visit) -> Response:
        """Store a new passkey.

        A person who has a second factor must enter its code. A person who has a passkey must have one.
        """
        caller, form = self._accounts.find_caller(visit.account.key), request.state.form
        if caller is None or caller.is_open or not caller.may("approve"):
            return await self._answer(request, visit, "Only people who approve have passkeys.", 403)
        text, code = form.get("passkey", "")[:MAX_PROOF_CHARS], form.get("code", "")[:32]
        site, csrf = request_origin(request), visit.session.csrf
        problem = await asyncio.to_thread(_import_problem)
        if not problem:
            problem = await self._service.change(
                lambda tx: (
                    _proof_problem(tx, caller.name, code) or passkeys.enrol(tx, caller.name, text, csrf, site)
                )
            )
        if problem:
            return await self._answer(request, visit, f"Nothing was kept: {problem}.", 403)
        return RedirectResponse("/passkeys", 303)

    async def _answer(self, request: Http, visit: Visit, problem: str = "", status: int = 200) -> Response:
        name = visit.account.name
        passkey_ids = self._service.database.read_now(lambda db: passkeys.passkey_ids(db, name))
        has_code = self._service.database.read_now(lambda db: name in factors.enrolled_names(db))
        problem = problem or await asyncio.to_thread(_import_problem)
        url = request.url
        site = PasskeyOrigin(f"{url.scheme}://{url.netloc}")
        options = ""
        if not problem or status != 200:
            enrolment = passkeys.enrolment_options(name, visit.session.csrf, site, passkey_ids)
            options = msgspec.json.encode(enrolment).decode()
        values = {"known": passkey_ids, "has_code": has_code, "options": options, "problem": problem}
        return self._pages.answer("passkeys.html", status, visit=visit, **values)


def request_origin(request: Http) -> PasskeyOrigin:
    """Return the origin that a passkey may sign for: the page's own, otherwise an empty one.

    A passkey for this machine is valid on every port, so another program's page could ask it for a
    signature.
    """
    site = PasskeyOrigin(request.headers.get("origin", ""))
    server = request.scope.get("server")
    if site.host in LOCAL_NAMES and server and site.port != server[1]:
        return PasskeyOrigin("")
    return site


def _import_problem() -> str:
    try:
        passkeys.import_webauthn()
    except ConfigError as error:
        return f"{error.message}: {error.hint}"
    return ""


def _proof_problem(tx: Tx, name: str, code: str) -> str:
    """Return why this person may not add a passkey, or an empty string. A stolen token must not be enough."""
    if name in factors.enrolled_names(tx.connection):
        return factors.use_code(tx, name, code, "").problem
    if passkeys.passkey_ids(tx.connection, name):
        return "a further passkey takes a second factor: whet confirm token enrol"
    return ""
