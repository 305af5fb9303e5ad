"""Embeddings through the API: passed to the server that is set, with its own key, and refused without one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.late import Late
from tests.serve.conftest import Api
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import EmbeddingSettings
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

ASKED: list[dict[str, Any]] = []
REFUSALS = {"limited": 429, "unknown": 404, "closed": 401, "broken": 500}


class Vectors(BaseHTTPRequestHandler):
    """Answers with one vector for each text, or refuses the models of `REFUSALS`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ASKED.append({**body, "path": self.path, "key": self.headers.get("Authorization", "")})
        status = REFUSALS.get(str(body.get("user")), 200)
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        rows = [{"object": "embedding", "index": at, "embedding": [0.5, 1.0]} for at in range(len(texts))]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        answer = {"object": "list", "data": rows, "model": body["model"], "usage": usage}
        refusal = {"error": {"message": f"no: key {self.headers.get('Authorization', '')}"}}
        data = json.dumps(answer if status == 200 else refusal).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Vectors)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    settings = EmbeddingSettings(base_url=url, model="small", api_key_env="EMBED_KEY")
    with PracticeServer() as model:
        api = Api(
            tmp_path_factory.mktemp("vectors"),
            model,
            embeddings=settings,
            secrets={"EMBED_KEY": "key-of-vectors", "OPENAI_API_KEY": "another"},
        )
        yield api
        api.close()
    server.shutdown()
    server.server_close()
    thread.join()


def test_embeddings_come_from_the_server_that_is_set(vectors: Api, sdk: openai.OpenAI) -> None:
    client = sdk.with_options(base_url=f"{vectors.url}/v1", api_key=vectors.token)
    answer = client.embeddings.create(model="text-embedding-3-small", input=["a", "b"])
    assert [row.embedding for row in answer.data] == [[0.5, 1.0]] * 2
    asked = ASKED[-1]
    assert (asked["path"], asked["key"]) == ("/v1/embeddings", "Bearer key-of-vectors")
    assert (asked["model"], asked["input"], answer.model) == ("small", ["a", "b"], "small")


@pytest.mark.parametrize(
    ("user", "status"), [("limited", 429), ("unknown", 404), ("closed", 502), ("broken", 502)]
)
def test_a_refusal_names_the_server_and_no_key(vectors: Api, user: str, status: int) -> None:
    with vectors.http() as http:
        answer = http.post("/v1/embeddings", json={"model": "m", "input": "a", "user": user})
    error = answer.json()["error"]
    assert answer.status_code == status and error["code"] == "embeddings_failed"
    assert f"embeddings.base_url answered {REFUSALS[user]}" in error["message"]
    assert "key-of-vectors" not in answer.text


def test_without_a_server_the_error_says_what_to_set(api: Api, http: httpx2.Client) -> None:
    answer = http.post("/v1/embeddings", json={"model": "m", "input": "a"})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "embeddings_not_configured"
    assert "embeddings.base_url" in answer.json()["error"]["message"]


def test_a_call_without_a_token_is_refused(vectors: Api) -> None:
    answer = httpx2.post(f"{vectors.url}/v1/embeddings", json={"model": "m", "input": "a"})
    assert answer.status_code == 401


def test_a_key_of_the_file_goes_to_no_server_of_the_environment(tmp_path: Path) -> None:
    text = "embeddings:\n  base_url: http://a.example/v1\n  api_key_env: EMBED_KEY\n"
    (tmp_path / "config.yaml").write_text(text)
    moved = load(Home(tmp_path), environ={"WHET_EMBEDDINGS_BASE_URL": "http://b.example/v1"}).settings
    assert (moved.embeddings.base_url, moved.embeddings.api_key_env) == ("http://b.example/v1", "")
