"""Images by URL, documents, hosted tools, any model's name and older responses, in all three formats."""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from tests.serve.conftest import Api
from tests.tools.test_documents import pdf
from whet.contract.brought_text import drop_marks
from whet.lanes import ToolPool
from whet.serve.attachments import Attachments
from whet.serve.wire import ApiError
from whet.tools.page_source import WebLimits

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8BQDwAEgAF/pooBPQAAAABJRU5ErkJggg=="
)
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


class Pages(BaseHTTPRequestHandler):
    """Serves an image and a PDF, and counts the requests."""

    requests = 0

    def do_GET(self) -> None:
        Pages.requests += 1
        body = {"/a.png": PNG, "/a.pdf": pdf("Page of a PDF")}.get(self.path, b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def body_of(protocol: str, parts: list[Any] | str, **more: Any) -> dict[str, Any]:
    """Return a request with one message of these parts."""
    messages = [{"role": "user", "content": parts}]
    fields = {"input": messages} if protocol == "responses" else {"messages": messages}
    return {"model": "whet", **({"max_tokens": 99} if protocol == "messages" else {}), **fields, **more}


def file_part(protocol: str, content: bytes) -> dict[str, Any]:
    """Return a file as the format carries it."""
    data = base64.b64encode(content).decode()
    if protocol == "messages":
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
        return {"type": "document", "title": "a.pdf", "source": source}
    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    return {"type": "file", "file": file} if protocol == "chat" else {"type": "input_file", **file}


@pytest.mark.fast_rows("messages")
@pytest.mark.parametrize("protocol", PATHS)
def test_a_pdf_reaches_the_model_as_text(api: Api, http: httpx2.Client, protocol: str) -> None:
    answer = http.post(PATHS[protocol], json=body_of(protocol, [file_part(protocol, pdf("Due in May"))]))
    assert answer.status_code == 200, answer.text
    assert "[file a.pdf]" in str(api.model.requests[-1].json_body) and "Due in May" in str(
        api.model.requests[-1].json_body
    )


@pytest.mark.parametrize("protocol", PATHS)
def test_bytes_that_are_no_document_are_refused_by_the_part(http: httpx2.Client, protocol: str) -> None:
    answer = http.post(PATHS[protocol], json=body_of(protocol, [file_part(protocol, b"\x00\x01\x02\xff")]))
    assert answer.status_code == 400 and "not a PDF, office file or text" in answer.text


@pytest.mark.fast_rows("cp1252-chat", "utf-16-messages", "utf-8-sig-responses")
@pytest.mark.parametrize("protocol", PATHS)
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_text_is_read_as_files_are(api: Api, http: httpx2.Client, protocol: str, encoding: str) -> None:
    part = file_part(protocol, "Größe;1\nÄpfel;2\n".encode(encoding))
    answer = http.post(PATHS[protocol], json=body_of(protocol, [part]))
    assert answer.status_code == 200, answer.text
    sent = str(api.model.requests[-1].json_body)
    assert "Größe;1" in sent and "Äpfel;2" in sent and "\\ufeff" not in sent
    assert ("not UTF-8, read as Windows-1252" in sent or "Latin-1" in sent) == (encoding == "cp1252")


@pytest.mark.parametrize("protocol", PATHS)
def test_a_pdf_without_its_reader_is_refused_with_the_command_that_installs_it(
    http: httpx2.Client, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    answer = http.post(PATHS[protocol], json=body_of(protocol, [file_part(protocol, pdf("Due in July"))]))
    assert answer.status_code == 400
    assert "reading PDF needs pypdf (pip install 'whet-agent[documents]')" in answer.text


async def test_only_new_documents_are_parsed_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is set to a missing program, so that every new process fails."""
    pool = ToolPool()
    attachments = Attachments(pool, WebLimits())

    async def include(content: bytes) -> str:
        messages: list[Any] = [{"role": "user", "content": [file_part("chat", content)]}]
        await attachments.include(messages, "messages")
        return drop_marks(messages[0]["content"][0]["text"])

    first = await include(pdf("Due in May"))
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    assert "plain" in await include(b"plain")
    assert await include(pdf("Due in May")) == first
    with pytest.raises(FileNotFoundError):
        await include(pdf("Due in June"))
    pool.close()


@pytest.mark.parametrize("protocol", PATHS)
def test_an_address_of_this_machine_is_not_fetched(http: httpx2.Client, site: str, protocol: str) -> None:
    source = {"type": "image", "source": {"type": "url", "url": f"{site}/a.png"}}
    parts = {
        "chat": {"type": "image_url", "image_url": {"url": f"{site}/a.png"}},
        "responses": {"type": "input_image", "image_url": f"{site}/a.png"},
        "messages": source,
    }
    before = Pages.requests
    answer = http.post(PATHS[protocol], json=body_of(protocol, [parts[protocol]]))
    assert answer.status_code == 400 and "private" in answer.text
    assert Pages.requests == before


def test_images_and_files_behind_urls_are_put_into_the_messages(site: str) -> None:
    pool = ToolPool()
    attachments = Attachments(pool, WebLimits(allow_private=True))
    image = f"{site}/a.png"

    def messages() -> list[Any]:
        result = {
            "type": "tool_result",
            "content": [{"type": "image", "source": {"type": "url", "url": image}}],
        }
        parts = [
            {"type": "image_url", "image_url": {"url": image}},
            {"type": "input_image", "image_url": image},
            {"type": "input_file", "file_url": f"{site}/a.pdf"},
            result,
        ]
        return [{"role": "user", "content": parts}, {"role": "assistant", "content": "plain"}]

    async def include() -> list[Any]:
        before = Pages.requests
        lists = [messages(), messages()]
        for item in lists:
            await attachments.include(item, "messages")
        assert Pages.requests - before == 3, "the image is fetched once"
        with pytest.raises(ApiError, match="HTTP 404"):
            await attachments.include([{"type": "image_url", "image_url": f"{site}/none"}], "input")
        return lists[1]

    parts = asyncio.run(include())[0]["content"]
    pool.close()
    data = base64.b64encode(PNG).decode()
    assert [part.get("image_url") for part in parts[:2]] == [f"data:image/png;base64,{data}"] * 2
    assert parts[2]["type"] == "text" and "Page of a PDF" in parts[2]["text"]
    assert parts[3]["content"][0]["source"]["data"] == data


@pytest.mark.parametrize("protocol", PATHS)
def test_any_model_name_is_answered_and_echoed(http: httpx2.Client, protocol: str) -> None:
    answer = http.post(PATHS[protocol], json=body_of(protocol, "hello", model="gpt-4o"))
    assert answer.status_code == 200 and answer.json()["model"] == "gpt-4o"


@pytest.mark.fast_rows("chat-web_search", "messages-web_fetch", "responses-tool_search")
@pytest.mark.parametrize("kind", ["web_search", "web_search_20250305", "web_fetch_20250910", "tool_search"])
@pytest.mark.parametrize("protocol", PATHS)
def test_search_tools_of_the_vendor_are_left_out(http: httpx2.Client, protocol: str, kind: str) -> None:
    tools = [{"type": kind, "name": "web_search"}]
    assert http.post(PATHS[protocol], json=body_of(protocol, "hello", tools=tools)).status_code == 200


@pytest.mark.parametrize("protocol", PATHS)
def test_other_hosted_tools_are_refused_alike(http: httpx2.Client, protocol: str) -> None:
    answer = http.post(PATHS[protocol], json=body_of(protocol, "hello", tools=[{"type": "code_interpreter"}]))
    assert answer.status_code == 400
    assert "tools of type 'code_interpreter' are run by their vendor" in answer.text
