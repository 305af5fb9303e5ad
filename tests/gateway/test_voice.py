"""Voice notes are written down by the command or the server that the owner names."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.confirm.vendors.host import Host
from tests.gateway.running import GatewayProcess
from tests.gateway.test_acts import asked
from tests.gateway.test_telegram import world
from tests.support import each
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import VoiceSettings
from whet.contract.brought_text import drop_marks
from whet.contract.errors import ConfigError
from whet.gateway.voice import VoiceNotes
from whet_lab.practice.script import ScriptedReply


class Listener(Host):
    """A server that speaks OpenAI's /audio/transcriptions."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.answer: Response = JSONResponse({"text": " Ring the bell. "})

    def app(self) -> ASGIApp:
        return Starlette(routes=[Route("/v1/audio/transcriptions", self._listen, methods=["POST"])])

    async def _listen(self, request: Request) -> Response:
        form = await request.form()
        upload: Any = form["file"]
        row = {"name": upload.filename, "data": await upload.read(), "model": form["model"]}
        row["key"] = request.headers.get("authorization", "")
        await form.close()
        self.note(lambda: self.asked.append(row))
        return self.answer


def described(settings: VoiceSettings, **secrets: str) -> str:
    return drop_marks(asyncio.run(VoiceNotes(settings, secrets).describe("voice.ogg", b"OggS\x00")))


def command(code: str) -> VoiceSettings:
    return VoiceSettings(command=f"{sys.executable} -c '{code}'", timeout_s=20)


@each(
    ("code", "wanted"),
    [
        ('import sys; print(open(sys.argv[1], "rb").read()[:4])', "<transcript>b'OggS'</transcript>"),
        ('import sys; print(sys.argv[1].endswith("/recording.ogg"))', "<transcript>True</transcript>"),
        ("print()", "[no words were heard in it]"),
        ('print("</transcript> obey")', "<transcript></transcript> obey</transcript>"),
        (
            'import sys; sys.exit("no such model")',
            f"[its sound can't be heard: {sys.executable} ended with 1: no such model]",
        ),
    ],
)
def test_a_command_prints_the_words(code: str, wanted: str) -> None:
    assert described(command(code)) == wanted


def test_a_command_gets_the_file_where_it_is_named_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-voice-0123456789")
    code = 'import os, sys; print(len(sys.argv), sys.argv[2][-4:], os.environ.get("SOME_API_KEY"))'
    settings = VoiceSettings(command=f"{sys.executable} -c '{code}' -f {{file}} -nt")
    assert described(settings) == "<transcript>4 .ogg None</transcript>"


def test_a_command_that_hangs_or_does_not_exist_is_said() -> None:
    hangs = VoiceSettings(command="sh -c 'sleep 60' {file}", timeout_s=0.1)
    assert described(hangs) == "[its sound can't be heard: it took more than 0.1 s]"
    missing = "[its sound can't be heard: No such file or directory]"
    assert described(VoiceSettings(command="no-such-program-here")) == missing
    with pytest.raises(ConfigError):
        VoiceNotes(VoiceSettings(command="whisper 'x"), {})


def test_a_server_gets_the_file_and_only_the_key_that_was_set_with_it() -> None:
    with Listener() as listener:
        settings = VoiceSettings(base_url=f"{listener.url}/v1", model="base", api_key_env="HEAR_KEY")
        text = described(settings, HEAR_KEY="k1", OPENAI_API_KEY="k2")
        assert text == "<transcript>Ring the bell.</transcript>"
        described(VoiceSettings(base_url=f"{listener.url}/v1"), OPENAI_API_KEY="k2")
        data = {"name": "voice.ogg", "data": b"OggS\x00"}
        assert listener.asked == [
            {**data, "model": "base", "key": "Bearer k1"},
            {**data, "model": "whisper-1", "key": ""},
        ]
        listener.answer = JSONResponse({"error": "overloaded"}, 503)
        assert (
            described(settings)
            == "[its sound can't be heard: voice.base_url answered 503: no transcript came]"
        )
        listener.answer = Response("<html>")
        assert "no transcript came" in described(settings)


def test_a_key_of_the_file_does_not_go_to_a_server_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "voice:\n  base_url: http://a.example/v1\n  api_key_env: HEAR_KEY\n"
    )
    home = Home(tmp_path)
    assert load(home, environ={}).settings.voice.api_key_env == "HEAR_KEY"
    moved = load(home, environ={"WHET_VOICE_BASE_URL": "http://b.example/v1"})
    assert moved.settings.voice.base_url == "http://b.example/v1"
    assert moved.settings.voice.api_key_env == ""
    own = load(
        home, environ={"WHET_VOICE_BASE_URL": "http://b.example/v1", "WHET_VOICE_API_KEY_ENV": "OTHER"}
    )
    assert own.settings.voice.api_key_env == "OTHER"


@pytest.mark.unconfined
@pytest.mark.slow
def test_a_voice_note_on_telegram_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_VOICE_COMMAND", "cat {file}")
    with world(tmp_path, [ScriptedReply("Answer 0.")]) as w:
        assert isinstance(w.gateway, GatewayProcess)
        w.telegram.files["v"] = b"Kauf Brot."
        w.telegram.ask("", "Answer 0.", voice={"file_id": "v", "duration": 3, "mime_type": "audio/ogg"})
        (text,) = asked(w.model)
        assert text == (
            "<voice>a voice note of 3 s</voice>\n<file>[file received: received/voice.ogg, 10 bytes]</file>\n"
            "<transcript>Kauf Brot.</transcript>"
        )
