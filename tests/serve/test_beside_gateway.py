"""The dashboard and the API in the gateway's own process, on its conversations."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.confirm.vendors.telegram import TOKEN
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.support import within
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow

WAIT_S = 30.0


def test_the_gateway_serves_them_too_and_ends_them_with_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with TelegramChat(per_chat_s=0.01) as telegram, PracticeServer(script=[ScriptedReply("Hello.")]) as model:
        (home / "gateway.toml").write_text(f'[[channel]]\nkind = "telegram"\nbase_url = "{telegram.url}"\n')
        (home / "config.yaml").write_text(
            f"model:\n  provider: practice\n  base_url: {model.base_url}\n  model: practice\n"
        )
        environ = {**os.environ, "WHET_HOME": str(home), "TELEGRAM_BOT_TOKEN": TOKEN}
        command = [sys.executable, "-m", "whet", "gateway", "run", "--web", "--web-port", "0"]
        process = subprocess.Popen(
            [*command, "--workspace", str(tmp_path)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        texts: list[str] = []
        while not texts or not texts[-1].startswith("dashboard: http"):
            texts.append(within(process.stdout.readline, f"the gateway; it said {texts}"))
            assert texts[-1], texts
        url = texts[-1].split()[-1]
        token = (home / "serve" / "owner.token").read_text().strip()
        with httpx2.Client(base_url=url, timeout=WAIT_S) as http:
            body = {"model": "whet", "messages": [{"role": "user", "content": "hi"}]}
            bearer = {"authorization": f"Bearer {token}"}
            answer = http.post("/v1/chat/completions", json=body, headers=bearer)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello.", answer.text
            signed_in = http.post("/login", data={"token": token}, headers={"origin": url})
            assert signed_in.status_code == 303
            assert answer.headers["x-whet-session"] in http.get("/").text
        process.send_signal(signal.SIGTERM)
        rest = within(process.stdout.read, "the gateway's end")
        assert process.wait(WAIT_S) == 0, rest
        process.stdout.close()
        assert "Traceback" not in rest
