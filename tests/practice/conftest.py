"""Servers and vendor clients that close themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.late import Late
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer
from whet_lab.practice.strict import Options

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = Late("anthropic"), Late("openai")

Serve = Callable[..., PracticeServer]


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(stack):
    """Start a server with these replies (none: the responder)."""

    def start(*replies: ScriptedReply, seed: int = 0, **options: Any) -> PracticeServer:
        server = PracticeServer(script=replies or None, seed=seed, options=Options(**options))
        return stack.enter_context(server)

    return start


# Making a client takes 50 ms of certificates; one of each vendor serves all tests.
@pytest.fixture(scope="session")
def openai_client():
    http = openai.DefaultHttpxClient()
    with openai.OpenAI(api_key="sk-practice", max_retries=0, timeout=30, http_client=http) as client:
        yield client


@pytest.fixture(scope="session")
def claude_client():
    http = anthropic.DefaultHttpxClient()
    with anthropic.Anthropic(api_key="sk-practice", max_retries=0, timeout=30, http_client=http) as client:
        yield client


@pytest.fixture
def chat(openai_client):
    return lambda server: openai_client.with_options(base_url=server.base_url)


@pytest.fixture
def claude(claude_client):
    return lambda server: claude_client.with_options(base_url=server.url)
