"""Which proxy the environment names, and which hosts it leaves out."""

from __future__ import annotations

import os
import sys

import pytest

from whet.config.secrets import find_proxy


def _unset_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("scheme", "host", "proxy"),
    [
        ("https", "api.example.com", "http://proxy.test:3128"),
        ("http", "api.example.com", "http://any.test:1"),
        ("https", "192.168.7.9", ""),
        ("https", "192.169.7.9", "http://proxy.test:3128"),
        ("https", "[fd00::7]", ""),
        ("https", "deep.inside.example.org", ""),
        ("https", "localhost", ""),
        ("http", "127.0.0.1", ""),
        ("http", "[::1]", ""),
        ("http", "::1", ""),
        ("http", "0:0:0:0:0:0:0:1", ""),
        ("http", "[::ffff:127.0.0.1]", ""),
        ("http", "localhost.", ""),
        ("http", "127.1", ""),
        ("http", "127.example.com", "http://any.test:1"),
        ("http", "127.0.0.1.example.com", "http://any.test:1"),
    ],
)
def test_a_proxy_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, scheme: str, host: str, proxy: str
) -> None:
    monkeypatch.setenv("https_proxy", "proxy.test:3128")
    monkeypatch.setenv("all_proxy", "http://any.test:1")
    monkeypatch.setenv("no_proxy", "localhost, 192.168.0.0/16,fd00::/8,inside.example.org,not/a/network")
    assert find_proxy(scheme, host) == proxy


def test_without_a_setting_the_way_is_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    _unset_proxies(monkeypatch)
    assert find_proxy("https", "api.example.com") == ""


def test_a_proxy_for_one_scheme_is_not_taken_for_another_and_one_for_all_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _unset_proxies(monkeypatch)
    monkeypatch.setenv("HTTP_PROXY", "proxy.lan:3128")
    assert find_proxy("http", "example.com") == "http://proxy.lan:3128"
    assert find_proxy("https", "example.com") == ""
    monkeypatch.setenv("ALL_PROXY", "socks5://p:1")
    assert find_proxy("https", "example.com") == "socks5://p:1"


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="the system has settings of its own")
def test_what_goes_round_no_proxy_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _unset_proxies(monkeypatch)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setitem(sys.modules, "urllib.request", None)  # to import it fails
    assert find_proxy("https", "api.example.com") == ""
