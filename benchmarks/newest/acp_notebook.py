"""Runs in the environment of JupyterLab's ACP client: `acp_notebook.py COMMAND PROMPT` asks an agent once.

Jupyter AI's client and JupyterLab's chat document are the real ones; a person who allows calls stands in for
the page's buttons. It prints the chat's messages and imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import shlex
import sys
from types import SimpleNamespace
from typing import Any


def of(name: str) -> Any:
    return importlib.import_module(name)


class Persona:
    """What the client needs of the page's persona; it ignores what would be shown beside the chat."""

    id = "whet"

    def __init__(self, chat: Any) -> None:
        self.chat = chat
        self.log = logging.getLogger("persona")
        self.parent = SimpleNamespace(root_dir=os.getcwd())

    def get_chat_dir(self) -> str:
        """Return the folder of the session."""
        return os.getcwd()

    def get_mcp_settings(self) -> None:
        """Return no servers."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: None


def make_client(base: Any) -> Any:
    """Return the client's class with a person in it who allows each call once."""

    class Allowing(base):
        async def request_permission(self, options: Any, session_id: str, tool_call: Any, **more: Any) -> Any:
            loop = asyncio.get_running_loop()
            option = next(option for option in options if option.kind == "allow_once")

            def press() -> None:
                call_id, chosen = tool_call.tool_call_id, option.option_id
                if not self._permission_manager.resolve(session_id, call_id, chosen):
                    loop.call_later(0.05, press)

            loop.call_later(0.05, press)
            return await super().request_permission(options, session_id, tool_call, **more)

    return Allowing


async def main() -> None:
    """Start the agent, open a session for a chat, and send the prompt."""
    program, *arguments = shlex.split(sys.argv[1])
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, *arguments, stdin=pipe, stdout=pipe)
    client_class = make_client(of("jupyter_ai_acp_client.default_acp_client").JaiAcpClient)
    client = client_class(agent_subprocess=process, event_loop=asyncio.get_running_loop())
    chat = of("jupyterlab_chat.ychat").YChat()
    session = await client.create_session(Persona(chat))
    await client.prompt_and_reply(session.session_id, sys.argv[2])
    print("\n".join(message.body for message in chat.get_messages()))
    process.terminate()


asyncio.run(main())
