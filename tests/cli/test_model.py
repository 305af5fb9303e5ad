"""`whet model` against a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.running import invoke
from whet.cli.checks import check_dialects
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError, ProviderError
from whet.providers import catalog
from whet_lab.practice.server import PracticeServer


def run(home: Path, *arguments: str, **env: str) -> Result:
    return invoke("model", *arguments, env=env)


def as_json(home: Path, *arguments: str, **env: str) -> Any:
    result = run(home, *arguments, "--json", **env)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Give the address of a model server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_show_says_which_and_why(home: Path) -> None:
    run(home, "set", "gpt-4.1", "--provider", "openai")
    output = run(home, "show", OPENAI_API_KEY="sk-0123456789012345678").output
    assert "gpt-4.1  (config.yaml line 3)" in output
    assert "window    1,047,576 tokens" in output
    assert "input $2, output $8" in output
    facts = as_json(home, "show", OPENAI_API_KEY="sk-0123456789012345678", WHET_MODEL_MODEL="gpt-x")
    assert facts["model"]["model"] == "gpt-x"
    assert facts["origins"]["model"] == "environment WHET_MODEL_MODEL"


def test_show_asks_a_local_server_for_its_window(home: Path) -> None:
    class Ollama(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"models":[{"name":"q3:latest","context_length":12345}]}'
            self.send_response(200 if self.path == "/api/ps" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    home.mkdir(parents=True, exist_ok=True)
    with serving(Ollama) as url:
        config = f"model:\n  provider: ollama\n  model: q3\n  base_url: {url}\n"
        (home / "config.yaml").write_text(config)
        shown = run(home, "show").output
        facts = as_json(home, "show")
    assert "window    12,345 tokens" in shown and facts["model"]["window_tokens"] == 12_345


def test_show_and_set_print_the_price_that_is_charged(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "own_prices", {})
    columns = "as_of,model,input_usd,output_usd,cache_read_usd,cache_write_usd"
    home.mkdir(parents=True, exist_ok=True)
    (home / "prices.csv").write_text(
        f"{columns}\n2026-01-01,openai/gpt-4.1,7,9,,\n2026-01-01,ollama/q,1,2,,\n"
    )
    key = {"OPENAI_API_KEY": "sk-0123456789012345678"}
    for name, provider, price in (("gpt-4.1", "openai", "$7, output $9"), ("q3", "ollama", "$1, output $2")):
        shown = f"input {price} per million tokens"
        assert shown in run(home, "set", name, "--provider", provider).output
        assert f"price     {shown}" in run(home, "show", **key).output


def test_without_a_model_the_error_says_what_to_set(home: Path) -> None:
    for command in ("show", "list"):
        error = run(home, command, GROQ_API_KEY="gsk").exception
        assert isinstance(error, ConfigError)
        assert "whet config set model.provider groq" in error.message


def test_list_asks_the_server_and_marks_the_current(home: Path) -> None:
    with PracticeServer() as server:
        env = {"WHET_MODEL_BASE_URL": server.base_url, "WHET_MODEL_PROVIDER": "practice"}
        names = as_json(home, "list", **env)["models"]
        assert names
        output = run(home, "list", WHET_MODEL_MODEL=names[0], **env).output
        assert f"* {names[0]}" in output.splitlines()
    error = run(home, "list", **env).exception
    assert isinstance(error, ProviderError)
    assert "Traceback" not in error.message


class PickyServer(BaseHTTPRequestHandler):
    """Refuses stream_options, and answers "ok"."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_refused = "stream_options" in body
        fields = {"content": "ok", "reasoning_content": "hm", "thinking_blocks": [{"type": "thinking"}]}
        delta = {"choices": [{"index": 0, "delta": fields, "finish_reason": "stop"}]}
        refusal = {"error": {"message": "Unrecognized request argument supplied: stream_options"}}
        text = json.dumps(refusal) if is_refused else f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n"
        self.send_response(400 if is_refused else 200)
        self.send_header("Content-Type", "application/json" if is_refused else "text/event-stream")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def test_probe_and_doctor_show_what_was_learned_of_a_server(home: Path) -> None:
    with serving(PickyServer) as url:
        env = {"WHET_MODEL_BASE_URL": url, "WHET_MODEL_MODEL": "picky"}
        output = run(home, "probe", **env).output
        assert "picky answers: ok" in output and "left_out stream_options (learned" in output
        assert "it sent: text, thinking_blocks, reasoning_content\n" in output.replace(
            "reasoning_content, thinking_blocks", "thinking_blocks, reasoning_content"
        )
        findings = [finding.text for finding in check_dialects(Home(home), datetime.now(UTC).date())]
        assert len(findings) == 1 and findings[0].startswith(f"{url} picky: left_out stream_options")
        memory = home / "model-servers.json"
        memory.write_text(memory.read_text().replace('"stream_options"', '"stream_options", "user"'))
        assert "left_out stream_options, user" in run(home, "probe", **env).output
        facts = as_json(home, "probe", "--forget", **env)
        assert [entry["dialect"]["left_out"] for entry in facts["learned"].values()] == [["stream_options"]]
        mine = {"dialect": {"left_out": ["stream_options"], "short_id": True}}
        memory.write_text(json.dumps({facts["entry"]: mine, "other": {"dialect": 3}}))
        output = run(home, "probe", **env).output
        assert "left_out stream_options (set by hand)" in output
        assert f"no effect: {facts['entry']}: there is no short_id" in output
        assert "no effect: other: " in output
        kept = json.loads(memory.read_text())
        memory.write_text(json.dumps({**kept, "old": {"day": datetime.now(UTC).date().isoformat()}}))
        assert "set by hand" in run(home, "probe", "--forget", **env).output
        assert json.loads(memory.read_text()) == kept
        doctor = list(check_dialects(Home(home), datetime.now(UTC).date() + timedelta(days=365)))
        assert [finding.state for finding in doctor] == ["ok", "warning", "warning"]


def test_an_alias_is_listed_and_set(home: Path) -> None:
    with PracticeServer() as server:
        env = {"WHET_MODEL_BASE_URL": server.base_url, "WHET_MODEL_PROVIDER": "practice"}
        env["WHET_MODEL_ALIASES"] = '{"big": "practice-large"}'
        assert run(home, "set", "big", **env).output.startswith("practice-large: window")
        assert "* big = practice-large" in run(home, "list", **env).output.splitlines()
        assert as_json(home, "list", **env)["aliases"] == {"big": "practice-large"}
        assert as_json(home, "show", **env)["model"]["model"] == "practice-large"


def test_set_saves_and_warns_about_the_environment(home: Path) -> None:
    result = run(home, "set", "some/model:free", WHET_MODEL_MODEL="other")
    assert "overrides it" in result.stderr
    assert load(Home(home), environ={}).settings.model.model == "some/model:free"
    error = run(home, "set", "x", "--provider", "openay").exception
    assert isinstance(error, ConfigError) and "openai" in error.hint


def test_a_model_without_a_name_is_refused(home: Path) -> None:
    error = run(home, "set", " ").exception
    assert isinstance(error, ConfigError) and "a model has a name" in error.message
    assert not (home / "config.yaml").exists()
