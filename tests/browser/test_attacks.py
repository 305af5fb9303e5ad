"""What must not work on the page, tried in a real Chromium and with raw requests."""

from __future__ import annotations

import re
import socket
from typing import Any

import httpx2
import pytest

from tests.browser.conftest import Daemon, sign_in

XSS = (
    "<script>window.owned=1</script><img src=x onerror='window.owned=1'>\"'><svg/onload=window.owned=1>"
    "{{7*7}}${7*7}</pre></code></textarea></script>"
    "<a href='javascript:window.owned=1'>x</a>\u202e\u2066\u200b"
)


@pytest.mark.slow
def test_no_field_of_a_request_becomes_markup(page, daemon):
    request_id = daemon.submit(
        action=XSS[:150],
        description=XSS * 3,
        requester=XSS,
        session_key=XSS,
        details={
            XSS: XSS,
            "before": XSS,
            "after": XSS + "!",
            "patch": f"--- {XSS}\n+++ {XSS}\n+{XSS}",
            "n": [XSS],
        },
    )
    sign_in(page, daemon, f"/r/{request_id}")
    page.eval("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert page.eval("window.owned") is None
    markup = "#detail script, #detail img, #detail a[href^=javascript]"
    assert page.eval(f"document.querySelectorAll('{markup}').length") == 0
    text = page.text()
    assert "<script>window.owned=1</script>" in text and "{{7*7}}" in text
    assert "\u202e" not in text and "\u200b" not in text and "<U+202E>" in text
    page.eval("document.querySelector('#reason').focus()")
    page.type(XSS)
    with page.loading():
        page.click("#deny")
    for path in (f"/r/{request_id}", "/history?q=" + "%3Cscript%3Ewindow.owned%3D1%3C%2Fscript%3E", "/log"):
        page.open(daemon.url + path)
        assert page.eval("window.owned") is None
        assert page.eval("[...document.scripts].every(s => s.src.startsWith(location.origin))") is True
    assert [p for p in page.problems() if "Content Security" in p] == []


@pytest.mark.slow
def test_the_policy_stops_script_even_if_markup_got_through(page, daemon):
    sign_in(page, daemon)
    page.eval("document.body.append(Object.assign(document.createElement('div'), {className: 'probe'}))")
    refused = page.eval(
        "(() => { try { document.querySelector('.probe').innerHTML = '<b>x</b>'; return ''; }"
        " catch (error) { return error.name; } })()"
    )
    assert refused == "TypeError"  # Trusted Types
    handler = page.eval(
        "(() => { try { document.createElement('img').setAttribute('onerror', 'window.owned=1'); return ''; }"
        " catch (error) { return error.name; } })()"
    )
    assert handler == "TypeError"
    assert page.eval("window.owned") is None


@pytest.mark.slow
def test_another_site_can_neither_send_the_form_nor_read_nor_frame(page, daemon):
    request_id = daemon.submit(action="send_mail")
    sign_in(page, daemon, f"/r/{request_id}")
    csrf, digest = page.eval(
        "(() => { const f = new FormData(document.querySelector('form.decide'));"
        " return [f.get('csrf'), f.get('digest')]; })()"
    )
    # Another site that even knows the CSRF token: same address, another name.
    elsewhere = daemon.url.replace("127.0.0.1", "localhost")
    page.open(elsewhere + "/login")
    code = f"""(async () => {{
        const fields = {{csrf: {csrf!r}, digest: {digest!r}, verdict: 'approve', sure: 'yes'}};
        const body = new URLSearchParams(fields);
        const sent = {{method: 'POST', mode: 'no-cors', credentials: 'include', body}};
        try {{ await fetch('{daemon.url}/r/{request_id}/decide', sent); }} catch (error) {{ }}
        try {{ await (await fetch('{daemon.url}/', {{credentials: 'include'}})).text(); return 'read'; }}
        catch (error) {{ return 'refused'; }}
    }})()"""
    page.call("Page.setBypassCSP", enabled=True)
    page.open(elsewhere + "/login")
    assert page.eval(code) == "refused"
    assert daemon.status(request_id)["status"] == "pending"
    page.call("Page.setBypassCSP", enabled=False)


@pytest.mark.slow
def test_a_link_from_a_chat_arrives_signed_in(page, daemon):
    request_id = daemon.submit(action="send_mail")
    sign_in(page, daemon)
    page.open(daemon.url.replace("127.0.0.1", "localhost") + "/login")
    page.eval(f"location.href = '{daemon.url}/r/{request_id}'")
    page.until(
        f"location.host.startsWith('127') && document.querySelector('#detail')?.dataset.id === '{request_id}'"
    )


@pytest.mark.slow
def test_a_rebound_name_is_not_answered(page, daemon):
    port = daemon.url.rpartition(":")[2]
    page.open(f"http://evil.example:{port}/login")
    assert "does not answer under that host name" in page.text()
    hosts = (f"evil.example:{port}", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1", "a b")
    for host in hosts:
        status, _ = raw(daemon, f"GET /login HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        assert status in (400, 421), host
    for path in ("/", "/confirm", "/static/x", "/live"):
        status, _ = raw(daemon, f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        assert status in (403, 421), path
    two = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert raw(daemon, two)[0] in (400, 421)


class Person:
    """A signed-in session without a browser, to send what no browser would."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.origin = {"origin": daemon.url}
        self.client = httpx2.Client(base_url=daemon.url, timeout=30)
        answer = self.client.post("/login", data={"token": daemon.token()}, headers=self.origin)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie

    def form(self, request_id: str) -> dict[str, str]:
        text = self.client.get(f"/r/{request_id}").text
        form = text[text.index('<form class="decide"') :]
        return dict(re.findall(r'name="(csrf|digest)" value="([^"]+)"', form)[:2])

    def decide(self, request_id: str, fields: dict[str, Any], headers: dict[str, str] | None = None) -> int:
        sent = self.origin if headers is None else headers
        return self.client.post(f"/r/{request_id}/decide", data=fields, headers=sent).status_code


@pytest.fixture(scope="module")
def person(daemon):
    """Somebody signed in."""
    found = Person(daemon)
    yield found
    found.client.close()


@pytest.mark.slow
def test_forged_forms_decide_nothing(daemon, person):
    request_id, other = daemon.submit(action="send_mail"), daemon.submit(action="send_fax")
    good = {**person.form(request_id), "verdict": "approve"}
    assert person.decide(request_id, {**good, "csrf": "x" * 43}) == 403
    assert person.decide(request_id, {**good, "csrf": ""}) == 403
    assert person.decide(request_id, {k: v for k, v in good.items() if k != "csrf"}) == 403
    for headers in (
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "https://127.0.0.1"},
    ):
        assert person.decide(request_id, good, headers) == 403
    cross = {**person.origin, "sec-fetch-site": "cross-site"}
    assert person.decide(request_id, good, cross) == 403
    assert person.decide(request_id, good, {**person.origin, "sec-fetch-site": "same-site"}) == 403
    json_body = person.client.post(f"/r/{request_id}/decide", json=good, headers=person.origin)
    assert json_body.status_code == 415
    assert person.decide(request_id, {**good, "digest": "0" * 64}) == 409
    assert person.decide(request_id, {**good, "digest": person.form(other)["digest"]}) == 409
    assert person.decide(request_id, {**good, "digest": ""}) == 400
    assert person.decide(request_id, {**good, "verdict": "maybe"}) == 400
    assert person.decide(request_id, {**good, "reason": "x" * 70_000}) == 413
    twice = "&".join(f"{k}={v}" for k, v in good.items()) + "&verdict=deny"
    headers = {**person.origin, "content-type": "application/x-www-form-urlencoded"}
    assert person.client.post(f"/r/{request_id}/decide", content=twice, headers=headers).status_code == 400
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = person.client.request(method, f"/r/{request_id}/decide", params=good, headers=person.origin)
        assert answer.status_code in (404, 405)
    assert person.client.get(f"/r/{request_id}", params=good).status_code == 200
    assert daemon.status(request_id)["status"] == "pending"
    assert person.decide(request_id, good) == 303
    assert daemon.status(request_id)["status"] == "approved"


@pytest.mark.slow
def test_signing_in_is_guarded(daemon, person):
    with httpx2.Client(base_url=daemon.url, timeout=30) as client:
        assert client.get("/r/0000000000000000000000").status_code == 303
        assert client.get("/live").status_code == 403
        made_up = {"cookie": f"whet_confirm_{daemon.url.rpartition(':')[2]}={'x' * 43}"}
        assert client.get("/", headers=made_up).status_code == 303
        submit = client.post("/login", data={"token": daemon.token("submit")}, headers=person.origin)
        assert submit.status_code == 403 and "can only submit" in submit.text
        assert client.post("/login", data={"token": daemon.token()}).status_code == 403
        for target in (
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "javascript:alert(1)",
            "/%0d%0ax",
        ):
            query, data = {"next": target}, {"token": daemon.token()}
            answer = client.post("/login", params=query, data=data, headers=person.origin)
            assert answer.status_code == 303 and answer.headers["location"].startswith("/")
            assert not answer.headers["location"].startswith(("//", "/\\"))
        tries = [{"token": f"wct_{n}"} for n in range(12)]
        statuses = [client.post("/login", data=data, headers=person.origin).status_code for data in tries]
        assert statuses[0] == 403 and statuses[-1] == 429


@pytest.mark.slow
def test_signing_out_ends_the_session_also_for_a_copy_of_the_cookie(daemon):
    request_id = daemon.submit(action="send_mail")
    one = Person(daemon)
    copy = dict(one.client.cookies)
    csrf = one.form(request_id)["csrf"]
    with httpx2.Client(base_url=daemon.url, timeout=30, cookies=copy) as thief:
        assert thief.get("/").status_code == 200
        assert one.client.post("/logout", data={"csrf": csrf}, headers=one.origin).status_code == 303
        assert thief.get("/").status_code == 303
    one.client.close()


def raw(daemon: Daemon, text: str) -> tuple[int, bytes]:
    """Send bytes as they are; give the status and everything that came back."""
    host, _, port = daemon.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(text.encode("latin-1"))
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return int(answer.split(b" ", 2)[1]), answer
