"""Keys go home: no mix of layers, addresses and second models sends a key to a server that it is not for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from benchmarks.keys import OWN, SECRETS, Case, count_foreign, generate, models_of, settings_of

from tests.support import each
from whet.app.model_links.models import Dialer
from whet.config.key_hosts import KEY_SERVERS, is_loopback, is_same_server, may_send
from whet.config.load import LoadedSettings, load
from whet.config.paths import Home
from whet.contract.errors import AuthRejected, ConfigError, ProviderError, WhetError
from whet.providers.catalog import SERVERS
from whet.providers.connect import connect_one
from whet.vendors.http import VendorHttp
from whet_confirm.client import ConfirmClient

KEYS = {name: f"value-of-{name}" for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MY_KEY")}


def loaded(folder: Path, text: str, flags: dict[str, str] | None = None, **environ: str) -> LoadedSettings:
    home = Home(folder)
    home.config.write_text(text, "utf-8")
    return load(home, flags or {}, environ=environ)


def sends(loaded_settings: LoadedSettings, section: str = "model") -> list[str]:
    model = dict(models_of(loaded_settings.settings))[section]
    return [key.name for key in connect_one(model, KEYS).wiring.keys.keys if key.value]


@pytest.mark.slow
def test_300_generated_configurations_send_no_key_to_a_foreign_host(tmp_path):
    count, keys, foreign = count_foreign(7, 300, tmp_path)
    assert count == 300 and keys > 200 and foreign == []


@pytest.mark.soak
def test_10_000_generated_configurations_send_no_key_to_a_foreign_host(tmp_path):
    _, keys, foreign = count_foreign(11, 10_000, tmp_path)
    assert keys > 1_000 and foreign == []


def test_an_address_on_the_command_line_is_an_unnamed_chat_completions_server_without_a_key(tmp_path):
    loaded_settings = loaded(
        tmp_path,
        "model:\n  provider: anthropic\n  format: anthropic_messages\n  api_key_env: MY_KEY\n",
        {"model.base_url": "http://box.example/v1", "model.model": "qwen3"},
    )
    provider = connect_one(loaded_settings.settings.model, KEYS)
    assert provider.wiring.codec.path == "/chat/completions" and provider.info.provider == "box.example"
    assert sends(loaded_settings) == []
    assert "no key is sent to box.example:80: MY_KEY" in loaded_settings.warnings[0]
    assert "model.api_key_env, both in config.yaml" in loaded_settings.warnings[0]
    assert loaded_settings.origins["model.provider"] == "flag --base-url"
    assert [origin.value for origin in loaded_settings.overridden["model.provider"]] == ["anthropic", ""]


ANTHROPIC, FAR = "model:\n  provider: anthropic\n", "model:\n  base_url: http://far/v1\n"
ITS_OWN = "https://API.anthropic.com:443"


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        (ANTHROPIC, {}, ["ANTHROPIC_API_KEY"]),
        (f"{ANTHROPIC}  base_url: http://far/v1\n", {}, []),
        (f"{ANTHROPIC}  base_url: http://far\n  api_key_env: ANTHROPIC_API_KEY\n", {}, ["ANTHROPIC_API_KEY"]),
        ("", {"model.provider": "anthropic", "model.base_url": "http://far/v1"}, []),
        ("", {"model.base_url": "http://far/v1", "model.api_key_env": "OPENAI_API_KEY"}, []),
        ("", {"model.base_url": "http://far/v1", "model.api_key_env": "MY_KEY"}, ["MY_KEY"]),
        (FAR, {"model.api_key_env": "MY_KEY"}, ["MY_KEY"]),
        (FAR, {"model.api_key_env": "OPENAI_API_KEY"}, []),
        (f"{FAR}  api_key_env: MY_KEY\n", {"model.provider": "anthropic"}, ["ANTHROPIC_API_KEY"]),
        ("", {"model.provider": "anthropic", "model.base_url": ITS_OWN}, ["ANTHROPIC_API_KEY"]),
    ],
)
def test_a_key_goes_where_its_own_words_send_it(tmp_path, text, flags, expected):
    assert sends(loaded(tmp_path, text, flags)) == expected


def test_a_variable_of_the_environment_takes_no_key_along(tmp_path):
    paired = "model:\n  base_url: http://near/v1\n  api_key_env: MY_KEY\n"
    loaded_settings = loaded(tmp_path, paired, WHET_MODEL_BASE_URL="http://far/v1")
    assert sends(loaded_settings) == [] and "MY_KEY belongs to another server" in loaded_settings.warnings[0]


@pytest.mark.parametrize("section", ["fallback", "review", "judge"])
def test_a_second_model_at_another_address_inherits_neither_provider_nor_key(tmp_path, section):
    first = "model:\n  provider: mine\n  base_url: http://near/v1\n  api_key_env: MY_KEY\n"
    assert sends(loaded(tmp_path, f"{first}{section}:\n  model: b\n"), section) == ["MY_KEY"]
    elsewhere = f"{first}{section}:\n  model: b\n  base_url: http://far/v1\n"
    assert sends(loaded(tmp_path, elsewhere), section) == []
    vendor = f"model:\n  provider: anthropic\n{section}:\n  model: b\n  base_url: http://far/v1\n"
    assert sends(loaded(tmp_path, vendor), section) == []
    foreign = f"{first}{section}:\n  model: b\n  api_key_env: OPENAI_API_KEY\n"
    assert sends(loaded(tmp_path, foreign), section) == ["MY_KEY"]


def test_a_second_models_key_does_not_follow_the_first_to_another_address(tmp_path):
    text = "model:\n  base_url: http://near/v1\nfallback:\n  model: b\n  api_key_env: MY_KEY\n"
    assert sends(loaded(tmp_path, text), "fallback") == ["MY_KEY"]
    assert sends(loaded(tmp_path, text, {"model.base_url": "http://far/v1"}), "fallback") == []


@each(
    "url",
    [
        "https://api.anthropic.com@evil.example/v1",
        "https://api.anthropic.com:443@evil.example/v1",
        "https://api.anthropic.com.evil.example/v1",
        "https://x.api.anthropic.com/v1",
        "https://evil-api.anthropic.com/v1",
        "https://api.anthropic.com:8443/v1",
        "http://api.anthropic.com/v1",
        "https://api.anthropic.com%2eevil.example/v1",
        "https://\u0430pi.anthropic.com/v1",
        "https://\uff41pi.anthropic.com/v1",
        "https://evil.example/api.anthropic.com",
        "https://api.anthropic.com\t.evil.example/v1",
        "//api.anthropic.com/v1",
        "",
    ],
)
def test_what_only_looks_like_the_providers_address_is_another(url):
    assert not may_send("ANTHROPIC_API_KEY", url) and not may_send("ANTHROPIC_API_KEY_2", url)
    assert may_send("ANTHROPIC_API_KEY", "https://user:pw@API.Anthropic.com:443/anything?x#y")
    assert may_send("SOMEBODYS_KEY", url)


def test_every_known_server_is_bound_to_its_own_address():
    assert list(SERVERS) == list(KEY_SERVERS)
    for server in SERVERS.values():
        assert all(may_send(key, server.base_url) for key in server.keys)


def test_platform_tokens_go_to_the_platforms_own_hosts():
    assert is_same_server("https://files.slack.com/x", "https://slack.com/api")
    assert is_same_server("wss://wss-primary.slack.com/link", "https://slack.com/api")
    for url in (
        "https://drive.example/x",
        "http://files.slack.com/x",
        "https://slack.com.evil.example/",
        "x",
    ):
        assert not is_same_server(url, "https://slack.com/api")
    assert is_loopback("http://127.8.0.1:6000") and is_loopback("http://[::1]:1")
    assert not is_loopback("http://localhost@evil.example") and not is_loopback("http://127.0.0.1.evil")


class _Catcher(BaseHTTPRequestHandler):
    caught: list[str]
    go_to = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.caught.append(f"{self.headers} {self.path}")
        self.send_response(307 if self.go_to else 401)
        if self.go_to:
            self.send_header("location", self.go_to)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def catcher() -> Iterator[tuple[str, type[_Catcher]]]:
    kind = type("Catcher", (_Catcher,), {"caught": list[str]()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    thread.join()
    server.server_close()


def _ask(loaded_settings: LoadedSettings) -> list[ProviderError]:
    async def all_models() -> list[ProviderError]:
        dialer = Dialer(loaded_settings.settings, SECRETS)
        failed: list[ProviderError] = []
        for _, model in models_of(loaded_settings.settings):
            try:
                provider = dialer.connect_alone(model)
            except ConfigError:
                continue
            try:
                await provider.list_models()
            except ProviderError as error:
                failed.append(error)
            await provider.aclose()
        return failed

    return asyncio.run(all_models())


@pytest.mark.slow
def test_a_real_server_at_a_foreign_address_catches_no_key_that_was_not_named_for_it(tmp_path, catcher):
    """Every address of a generated case is a listener's; only a pairing may bring it a provider's key."""
    url, kind = catcher
    for case in generate(3, 60):
        layers = [
            {k: url if k.endswith("base_url") else v for k, v in layer.items()} for layer in case.layers
        ]
        if any(v in SERVERS and not v.startswith("ollama") for k, v in layers[0].items() if "provider" in k):
            layers[0] = {k: v for k, v in layers[0].items() if not k.endswith("api_key_env")}
        for layer in layers:
            for section in ("model", "fallback", "review", "judge"):  # nothing may go out of this machine
                if not layer.get(f"{section}.base_url"):
                    layer.pop(f"{section}.provider", None)
        named = {v for layer in layers for k, v in layer.items() if k.endswith("api_key_env")}
        try:
            settings = settings_of(Case(*layers), tmp_path)
        except ConfigError:
            continue
        kind.caught.clear()
        _ask(LoadedSettings(settings, {}))
        allowed = {v for v in layers[0].values() if v in SECRETS} | (named & set(OWN)) | {"MY_KEY"}
        allowed |= {"OPENAI_API_KEY"} if any("," in v for v in named) else set()
        for text in kind.caught:
            leaked = [n for n in SECRETS if f"value-of-{n}\n" in text.replace("\r", "") and n not in allowed]
            assert not [n for n in leaked if n.removesuffix("_2") not in allowed], (layers, leaked)


def test_a_redirect_is_not_followed_and_a_refusal_without_a_key_says_how_to_pair(tmp_path, catcher):
    url, kind = catcher
    text = f"model:\n  base_url: {url}\n  api_key_env: MY_KEY\n"
    kind.go_to = url.replace("127.0.0.1", "localhost") + "/elsewhere"
    _ask(loaded(tmp_path, text))
    assert len(kind.caught) == 1 and "value-of-MY_KEY" in kind.caught[0]
    kind.go_to = ""
    (refused,) = _ask(loaded(tmp_path, "model:\n  provider: anthropic\n", {"model.base_url": url}))
    assert isinstance(refused, AuthRejected) and "no key was sent to 127.0.0.1" in refused.hint
    assert "value-of" not in kind.caught[-1]


def test_a_rejected_key_is_named_by_its_variable_and_account(tmp_path, catcher):
    url, _ = catcher
    text = f"model:\n  provider: own\n  base_url: {url}\n  api_key_env: MY_KEY\n"
    (refused,) = _ask(loaded(tmp_path, text))
    assert isinstance(refused, AuthRejected) and "MY_KEY;" in refused.hint
    (refused,) = _ask(loaded(tmp_path, text + "  account: work\n  accounts:\n    own: {work: MY_KEY}\n"))
    assert isinstance(refused, AuthRejected) and "MY_KEY of account 'work'" in refused.hint
    assert "value-of" not in refused.hint


async def test_a_platforms_token_does_not_go_to_another_host_with_a_file(catcher):
    url, kind = catcher
    kind.go_to = url  # an answer that is no refusal; it is not followed
    vendor = VendorHttp("Slack", url, {"authorization": "Bearer xoxb-secret"})
    for place in (url, url.replace("127.0.0.1", "localhost")):
        await vendor.client.get(f"{place}/file", headers={"authorization": "Bearer xoxb-secret"})
    await vendor.aclose()
    assert ["xoxb-secret" in text for text in kind.caught] == [True, False]


def test_the_confirmation_token_of_this_home_stays_on_this_machine(tmp_path, monkeypatch, catcher):
    monkeypatch.setenv("WHET_HOME", str(tmp_path))
    monkeypatch.delenv("CONFIRMATION_TOKEN", raising=False)
    (tmp_path / "confirm").mkdir()
    (tmp_path / "confirm" / "submit.token").write_text("home-token")
    url, kind = catcher

    async def ask(client: ConfirmClient) -> str:
        async with client:
            with contextlib.suppress(WhetError):
                await client.status("x")
        return kind.caught.pop() if kind.caught else ""

    assert "home-token" in asyncio.run(ask(ConfirmClient(url)))
    port, resolve = url.rpartition(":")[2], socket.getaddrinfo
    monkeypatch.setattr(  # every name leads to this machine
        socket, "getaddrinfo", lambda host, port, *a, **k: resolve("127.0.0.1", port, *a, **k)
    )
    for host in ("whet.example", "127.0.0.1.example", "localhost@evil.example"):
        sent = asyncio.run(ask(ConfirmClient(f"http://{host}:{port}")))
        assert sent and "home-token" not in sent
