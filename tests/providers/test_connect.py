"""From settings to a provider: servers, formats, keys, and hints where something is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from whet.config.schema import FallbackSettings, ModelSettings
from whet.contract.errors import ConfigError
from whet.providers import catalog
from whet.providers.backoff import Backoff
from whet.providers.catalog import SERVERS, describe_model, families
from whet.providers.connect import ConnectOptions, ServerProvider, connect, connect_one
from whet.providers.fallback import FallbackProvider


def one(secrets: dict[str, str] | None = None, **settings: object) -> ServerProvider:
    return connect_one(ModelSettings(**settings), secrets or {})  # type: ignore[arg-type] - test settings


def test_every_known_server_connects_with_its_key_and_a_model():
    for name, server in SERVERS.items():
        provider = one({key: "secret-value" for key in server.keys}, provider=name)
        assert provider.info.provider == name
        assert provider.wiring.http.base_url == server.base_url
        assert bool(provider.info.model) == bool(server.model)
        assert server.local or server.keys


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"provider": "openai"}, "/responses"),
        ({"provider": "openai", "base_url": "http://proxy/v1"}, "/chat/completions"),
        ({"provider": "openai", "format": "chat_completions"}, "/chat/completions"),
        ({"provider": "anthropic"}, "/messages"),
        ({"provider": "mine", "base_url": "http://x/v1", "format": "anthropic_messages"}, "/messages"),
        ({"base_url": "http://x/v1"}, "/chat/completions"),
    ],
)
def test_the_format_follows_the_server(settings, path):
    provider = one({"OPENAI_API_KEY": "k" * 9, "ANTHROPIC_API_KEY": "k" * 9}, **settings)
    assert provider.wiring.codec.path == path


def test_a_missing_key_says_what_to_set():
    with pytest.raises(ConfigError) as caught:
        one(provider="gemini")
    assert "GEMINI_API_KEY or GOOGLE_API_KEY" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        one({"OPENAI_API_KEY": "x" * 9}, provider="openai", api_key_env="MY_KEY")
    assert "MY_KEY" in caught.value.hint


def test_nothing_set_unknown_names_and_bad_urls_say_what_to_do():
    with pytest.raises(ConfigError, match="no model provider"):
        one()
    with pytest.raises(ConfigError, match="'opnai' is not known") as caught:
        one(provider="opnai")
    assert "openai" in caught.value.hint
    for url in ("localhost:11434", "ftp://x/v1", "http://"):
        with pytest.raises(ConfigError, match="base_url"):
            one(provider="ollama", base_url=url)
    with pytest.raises(ConfigError, match="no model is named"):
        one(provider="ollama").open("s", [], "s")


def test_the_name_of_an_unnamed_server_is_its_host():
    assert one(base_url="http://box.local:9/v1", model="m").info.provider == "box.local"


def test_the_fallback_takes_what_it_does_not_set_from_the_first():
    settings = ModelSettings(provider="mine", base_url="http://a/v1", model="m", window_tokens=5)
    assert isinstance(connect(settings, FallbackSettings(), {}), ServerProvider)
    both = connect(settings, FallbackSettings(model="n"), {})
    assert isinstance(both, FallbackProvider)
    assert both.second.info.provider == "mine" and both.second.info.window_tokens != 5
    other = connect(settings, FallbackSettings(provider="ollama", model="n"), {})
    assert isinstance(other, FallbackProvider) and other.second.info.provider == "ollama"
    with pytest.raises(ConfigError, match="no key for openai"):
        connect(settings, FallbackSettings(provider="openai", model="n"), {})


def test_models_are_matched_by_their_longest_family():
    assert describe_model("openai", "gpt-5.4-mini-2026-03-17").input_usd_per_mtok == 0.75
    assert describe_model("anthropic", "claude-haiku-4-5-20251001").window_tokens == 200_000
    assert describe_model("openrouter", "anthropic/claude-sonnet-4.6").window_tokens == 1_000_000
    unknown = describe_model("mine", "nobody-knows")
    assert unknown.window_tokens == 128_000 and unknown.input_usd_per_mtok is None


def test_prices_hold_only_at_the_vendors_own_server():
    assert describe_model("openrouter", "openai/gpt-5.4").input_usd_per_mtok is None
    assert describe_model("groq", "openai/gpt-oss-120b").output_usd_per_mtok is None
    assert describe_model("ollama", "gpt-oss:20b").output_usd_per_mtok == 0.0


def test_a_text_kept_by_the_server_has_prices_of_its_own():
    info = describe_model("anthropic", "claude-haiku-4-5")
    assert (info.input_usd_per_mtok, info.output_usd_per_mtok) == (1, 5)
    assert (info.cache_read_usd_per_mtok, info.cache_write_usd_per_mtok) == (0.1, 1.25)


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("localhost", True), ("127.0.0.1", True), ("127.0.0.9", True), ("[::1]", True), ("box.local", False)],
)
def test_a_server_on_this_machine_is_known_by_its_address(host, is_here):
    assert one(base_url=f"http://{host}:9/v1", model="m").wiring.backoff.is_local is is_here


def test_an_answers_length_has_a_bound_where_the_settings_say_none():
    for given, asked in ((0, b'"max_tokens":32000,'), (64_000, b'"max_tokens":64000,')):
        settings = {"model": "claude-haiku-4-5", "max_output_tokens": given}
        wiring = one({"ANTHROPIC_API_KEY": "k" * 9}, provider="anthropic", **settings).wiring
        assert asked in wiring.codec.head("s", [], wiring.options)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-opus-latest", 4_096),
        ("claude-3-5-haiku-20241022", 8_192),
        ("claude-3.5-sonnet", 8_192),
        ("claude-3-7-sonnet-20250219", 32_000),
        ("claude-sonnet-4-20250514", 32_000),
        ("claude-opus-4-1", 32_000),
    ],
)
def test_older_models_are_asked_for_no_more_than_they_answer(model: str, tokens: int):
    wiring = one({"ANTHROPIC_API_KEY": "k" * 9}, provider="anthropic", model=model).wiring
    assert b'"max_tokens":%d,' % tokens in wiring.codec.head("s", [], wiring.options)


def test_a_call_that_is_not_tried_again_has_no_patience():
    def backoff(most: int) -> Backoff:
        settings = ModelSettings(provider="ollama", model="m", max_retries=most)
        return connect_one(settings, {}, options=ConnectOptions(30.0)).wiring.backoff

    assert backoff(1).patience_s == 30.0 and backoff(0).patience_s == 0.0


@pytest.mark.parametrize("patience_s", [0.0, 30.0])
def test_of_two_servers_only_the_last_is_waited_for(patience_s: float):
    settings, options = ModelSettings(provider="ollama", model="m"), ConnectOptions(patience_s)
    alone = connect(settings, FallbackSettings(), {}, options=options)
    assert isinstance(alone, ServerProvider) and alone.wiring.backoff.patience_s == patience_s
    both = connect(settings, FallbackSettings(model="n"), {}, options=options)
    assert isinstance(both, FallbackProvider)
    first, second = both.first, both.second
    assert isinstance(first, ServerProvider) and first.wiring.backoff.patience_s == 0.0
    assert isinstance(second, ServerProvider) and second.wiring.backoff.patience_s == patience_s
    other = one(base_url="http://b/v1", model="o")
    assert connect(settings, FallbackSettings(), {}, others=lambda _: other) is other


def test_a_homes_own_prices_hold_from_their_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "own_prices", {})
    path = tmp_path / "prices.csv"
    path.write_text(
        "as_of,model,input_usd,output_usd,cache_read_usd,cache_write_usd\n"
        "2026-01-01,openrouter/x/big,1,2,,\n2026-06-01,openrouter/x/big,3,4,0.3,\n2027-01-01,openrouter/x,9,9,9,9\n"
        "\n2026-11-22, openrouter/x ,5,6,0,0\n2026-11-23,openrouter/x,7,7,7,7\n"
        "2026-01-01,openrouter/x,8,8,8,8\n"
    )
    catalog.learn_prices(path, "2026-11-22")
    info = catalog.describe_model("openrouter", "x/big-2")
    assert (info.input_usd_per_mtok, info.output_usd_per_mtok, info.cache_read_usd_per_mtok) == (3, 4, 0.3)
    assert info.cache_write_usd_per_mtok is None
    small = catalog.describe_model("openrouter", "x/small")
    assert (small.input_usd_per_mtok, small.output_usd_per_mtok, small.cache_write_usd_per_mtok) == (5, 6, 0)
    assert catalog.describe_model("openrouter", "y/small").input_usd_per_mtok is None
    head = path.read_text("utf-8").splitlines()[0]
    wrong = ("1,-0.5,,", "1,2,3", "1,2,3,4,5", "one,2,3,4")
    for table in (
        "nonsense\n",
        "",
        f"{head}\n1.11.2026,openrouter/x,1,2,,\n",
        *(f"{head}\n2026-01-01,openrouter/x/big,{row}\n" for row in wrong),
    ):
        path.write_text(table)
        with pytest.raises(ConfigError, match="not a price table"):
            catalog.learn_prices(path, "2026-11-22")
    path.write_bytes(f"{head}\n# caf".encode() + b"\xe9\n")
    with pytest.raises(ConfigError, match=r"prices.csv line 2 is not UTF-8"):
        catalog.learn_prices(path, "2026-11-22")


def test_settings_win_over_the_catalog():
    info = describe_model("openai", "gpt-5.4", window_tokens=9, max_output_tokens=3)
    assert (info.window_tokens, info.max_output_tokens) == (9, 3)


def test_the_table_of_families_is_whole_and_its_prices_are_in_order():
    for name, family in families().items():
        assert name == name.lower() and family.max_output_tokens < family.window_tokens >= 128_000, name
        prompt, output, cache_read, cache_write = family.prices
        assert (prompt is None) == (output is None), name
        if prompt is not None and output is not None:
            assert 0 < prompt < output, name
        if prompt is not None and cache_read is not None:
            assert cache_write is not None and 0 < cache_read < prompt <= cache_write, name
    assert families()["claude-haiku-4-5"].prices == (1, 5, 0.1, 1.25)


def test_servers_on_this_machine_need_no_key_and_cost_nothing():
    here = {name for name, server in SERVERS.items() if "//localhost:" in server.base_url}
    assert here == {name for name, server in SERVERS.items() if server.local} and len(here) == 5
    for name in here:
        info = one(provider=name, model="gpt-5.4").info
        assert (info.input_usd_per_mtok, info.cache_write_usd_per_mtok) == (0.0, 0.0)
    assert not [name for name, server in SERVERS.items() if server.local == bool(server.keys)]


@pytest.mark.parametrize("wire", ["chat_completions", "responses", "anthropic_messages"])
def test_fields_of_the_owners_are_sent_to_the_model_that_they_are_for(wire: str) -> None:
    extra = {"fast": {"provider": {"order": ["azure"]}, "max_tokens": 5}, "other": {"seed": 1}}
    settings: dict[str, Any] = {
        "base_url": "http://x/v1",
        "format": wire,
        "aliases": {"fast": "small"},
        "extra": extra,
    }
    wiring = one(**settings, model="small").wiring
    head = wiring.codec.head("", (), wiring.options)
    body = msgspec.json.decode(head[: head.rindex(b',"')] + b"}")
    assert body["provider"] == {"order": ["azure"]} and body["max_tokens"] == 5 and "seed" not in body
    assert one(**settings, model="third").wiring.options.extra == {}
    settings["extra"] = {"small": {"stream": False, "messages": []}}
    with pytest.raises(ConfigError, match=r"model\.extra can't set messages, stream for small"):
        one(**settings, model="small")
