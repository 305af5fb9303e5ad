"""A person approves with a passkey: a virtual authenticator signs, and the audit checks the person."""

from __future__ import annotations

import json

import apsw
import pytest

from tests.browser.chromium import Page
from tests.browser.conftest import Daemon
from whet_confirm.audit import verify
from whet_confirm.keys import load_key

pytest.importorskip("webauthn")

_POLICY = """
[[rules]]
action = "deploy_*"
effect = "ask"
require_passkey = true
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    policy = home / "policy.toml"
    policy.write_text(_POLICY)
    daemon = Daemon(home, "--policy", str(policy), "--rate-limit", "1000")
    daemon.url = daemon.url.replace("127.0.0.1", "localhost")
    yield daemon
    daemon.stop()


def authenticator(page: Page) -> None:
    """Put a security key with a fingerprint reader into the browser."""
    page.call("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    page.call("WebAuthn.addVirtualAuthenticator", options=options)


def signed_in(page: Page, daemon: Daemon, path: str) -> None:
    page.open(daemon.url + path)
    page.click("#token")
    page.type(daemon.token())
    with page.loading():
        page.key("Enter")


def problems(daemon: Daemon, *changes: str) -> tuple[str, ...]:
    """Check a copy of the service's database, after changes to it."""
    copy = apsw.Connection(":memory:")
    source = apsw.Connection(str(daemon.home / "confirmations.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with copy.backup("main", source, "main") as backup:
        backup.step()
    source.close()
    for change in changes:
        copy.execute(change)
    own = load_key(daemon.home / "confirm" / "signing.key", may_make=False)
    report = verify(copy, {own.id: own})
    copy.close()
    return report.problems


@pytest.mark.slow
def test_a_passkey_signs_the_request_and_the_audit_checks_the_person(page, strict):
    authenticator(page)
    request_id = strict.submit(action="deploy_production", details={"version": "3.1"})
    bearer = {"authorization": f"Bearer {strict.token()}"}
    refused = strict.agent.post(f"/confirm/{request_id}/approve", json={}, headers=bearer)
    assert refused.status_code in (401, 403, 409) and "passkey" in refused.text
    signed_in(page, strict, f"/r/{request_id}")
    with page.loading():
        page.click("#approve")
    assert "you have none" in page.text()
    page.open(strict.url + "/passkeys")
    with page.loading():
        page.click("#add")
    assert page.eval("document.querySelectorAll('.passkeys li').length") == 1, page.text()
    page.open(f"{strict.url}/r/{request_id}")
    with page.loading():
        page.click("#approve")
    with page.loading():
        page.click("#approve")
    assert "Approved by owner" in page.text()
    assert strict.status(request_id)["status"] == "approved"
    assert problems(strict) == ()
    # A forged vote, with the chain made to fit or not, is not the person's.
    swapped = "UPDATE events SET data = json_set(data, '$.verdict', 'deny') WHERE kind = 'vote'"
    assert any("is not theirs" in text for text in problems(strict, swapped))
    stripped = "UPDATE events SET data = json_remove(data, '$.proof') WHERE kind = 'vote'"
    assert any("has no signature" in text for text in problems(strict, stripped))
    key = "UPDATE passkeys SET public_key = 'AAAA'"
    assert any("not the one in the log" in text for text in problems(strict, key))


@pytest.mark.slow
def test_a_signature_is_for_one_request_and_one_use(page, strict):
    authenticator(page)
    first = strict.submit(action="deploy_docs", details={"version": "1"})
    signed_in(page, strict, "/passkeys")
    known = page.eval("document.querySelectorAll('.passkeys li').length")
    if known:  # a further one takes a second factor: a stolen token adds none
        page.eval("document.querySelector('#passkey').value = '{}'")
        with page.loading():
            page.click("#add")
        assert "takes a second factor" in page.text()
    body = json.dumps(
        {"id": "AAAA", "response": {"clientDataJSON": "e30", "authenticatorData": "AA", "signature": "AA"}}
    )
    page.open(f"{strict.url}/r/{first}")
    form = page.eval("new URLSearchParams(new FormData(document.querySelector('form.decide'))).toString()")
    code = (
        f"fetch('/r/{first}/decide', {{method: 'POST', body: {form!r} + '&sure=yes&verdict=approve&passkey='"
        f" + encodeURIComponent({body!r}),"
        " headers: {'content-type': 'application/x-www-form-urlencoded'}})"
        ".then(r => r.text().then(t => [r.status, t]))"
    )
    status, text = page.eval(code)
    assert status == 403 and "not a passkey of yours" in text
    assert strict.status(first)["status"] == "pending"


@pytest.mark.slow
def test_nothing_of_webauthn_is_loaded_before_it_is_used():
    import subprocess
    import sys

    look = "import sys, whet_confirm.serve, whet_confirm.web.app; print('webauthn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_page_works_in_a_folder_of_its_own(tmp_path):
    from whet_confirm.passkeys import PasskeyOrigin, vote_challenge

    assert PasskeyOrigin("https://Confirm.Example:8443").host == "confirm.example"
    assert vote_challenge("approve", "a" * 64) != vote_challenge("deny", "a" * 64)
