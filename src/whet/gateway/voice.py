"""Transcribe voice notes and other recordings with the command or the server that the owner configured."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whet.channels.transfer import form
from whet.config.key_hosts import server_key_names
from whet.config.schema import VoiceSettings
from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import SendFailed
from whet.contract.errors import ConfigError, WhetError
from whet.log import mask
from whet.tools.shell import command_environment
from whet.vendors.http import VendorHttp, refused

_MAX_CHARS = 20_000
_NO_TRANSCRIBER = "[its sound can't be heard here, only the file is kept]"


class _Transcript(msgspec.Struct):
    text: str = ""


class VoiceNotes:
    """Transcribes recordings. `secrets` holds the server's key. Raises ConfigError if `voice.command` can't
    be parsed."""

    def __init__(self, settings: VoiceSettings, secrets: Mapping[str, str]) -> None:
        self._settings = settings
        self._key = next((secrets[name] for name in server_key_names(settings) if secrets.get(name)), "")
        try:
            self._words = shlex.split(settings.command)
        except ValueError as error:
            raise ConfigError(f"voice.command can't be read: {error}") from error

    async def describe(self, name: str, data: bytes) -> str:
        """Return the transcript of a recording for the model, or a text that says why there is none."""
        if not self._words and not self._settings.base_url:
            return _NO_TRANSCRIBER
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                text = await (self._run(name, data) if self._words else self._ask_server(name, data))
        except TimeoutError:
            return f"[its sound can't be heard: it took more than {self._settings.timeout_s:g} s]"
        except (SendFailed, WhetError, OSError) as error:
            return f"[its sound can't be heard: {_reason(error)}]"
        return wrap_in_tag("transcript", text[:_MAX_CHARS]) if text else "[no words were heard in it]"

    async def _run(self, name: str, data: bytes) -> str:
        """Run the command on a private copy of the recording, which the model's commands can't replace."""
        with tempfile.TemporaryDirectory(prefix="whet-voice-") as folder:
            path = str(Path(folder) / f"recording{Path(name).suffix[:10]}")
            await asyncio.to_thread(Path(path).write_bytes, data)
            words = [word.replace("{file}", path) for word in self._words]
            if words == self._words:
                words.append(path)
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=command_environment(os.environ),
                start_new_session=True,
            )
            try:
                out, err = await process.communicate()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise WhetError(f"{self._words[0]} ended with {process.returncode}: {lines[-1] if lines else ''}")
        return out.decode("utf-8", "replace").strip()

    async def _ask_server(self, name: str, data: bytes) -> str:
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        content, kind = form({"model": self._settings.model, "response_format": "json"}, "file", name, data)
        async with contextlib.aclosing(
            VendorHttp("voice.base_url", self._settings.base_url, headers)
        ) as http:
            answer = await http.raw(
                "POST", "/audio/transcriptions", content, {"content-type": kind}, self._settings.timeout_s
            )
        transcript = answer.read(_Transcript) if 200 <= answer.status < 300 else None
        if transcript is None:
            raise refused("voice.base_url", answer, "no transcript came")
        return transcript.text.strip()


def _reason(error: SendFailed | WhetError | OSError) -> str:
    if isinstance(error, SendFailed):
        return error.reason
    text = error.message if isinstance(error, WhetError) else str(error.strerror)
    return mask(" ".join(text.split()))[:300]
