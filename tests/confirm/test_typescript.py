"""The JavaScript client in Node against a real service, and its types against what the service declares."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.confirm.running import Running
from whet_confirm.canonical import request_digest
from whet_confirm.http import shapes
from whet_confirm.http.routes import read_document

CLIENT = Path(__file__).parents[2] / "clients/typescript"
SCRIPT = Path(__file__).parent / "typescript_client.mjs"
NODE = shutil.which("node")
_EXPIRY = 1790000000.125


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_client_asks_waits_decides_and_fails_closed(tmp_path):
    request = {
        "action": "a",
        "details": {"z": 1e-7, "y": [0.1, -0.0, 100]},
        "requester": "r",
        "session_key": "",
        "id": "i",
        "expiry": _EXPIRY,
    }
    with Running(tmp_path, rate=1000) as server:
        tokens = server.token("submit", "agent"), server.token("approve", "ann")
        url = f"http://127.0.0.1:{server.page_port}"
        command = [str(NODE), str(SCRIPT), url, *tokens, json.dumps(request)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["denied"][1]["status"] == "denied"
    expected = request_digest("i", "a", request["details"], "r", "", _EXPIRY)  # type: ignore[arg-type]
    assert results | {"denied": results["denied"][0]} == {
        "approved": ["ann", True, "approved"], "execution": "executed", "again": "Failed 409",
        "denied": "denied", "inexact": "refused", "down": "unavailable", "stranger": "refused",
        "stopped": ["cancelled", "cancelled"],
        "aborted": ["cancelled", "aborted: the caller stopped waiting"],
        "neverSent": ["cancelled", "aborted: the caller stopped waiting"], "cut": "unavailable",
        "lost": ["cancelled", "cancelled"], "same": True, "deliveries": True, "digest": expected,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("interface", "shape"),
    [
        ("RequestRecord", shapes.RequestRecord),
        ("Delivery", shapes.DeliveryRecord),
        ("Submitted", shapes.PendingAnswer),
        ("Vote", shapes.VoteRecord),
        ("Risk", shapes.RiskRecord),
    ],
)
def test_each_field_that_the_types_name_is_one_of_the_service(interface, shape):
    text = (CLIENT / "index.d.ts").read_text()
    body = re.findall(rf"interface {interface} {{(.*?)}}\n", text, re.DOTALL)[0]
    names = set(re.findall(r"(?:^|;|{)\s*(\w+)\??:", re.sub(r"/\*\*.*?\*/", "", body), re.MULTILINE))
    assert names <= set(shape.__struct_fields__), names - set(shape.__struct_fields__)


def test_the_document_of_the_api_is_in_the_repository():
    assert json.loads((CLIENT / "openapi.json").read_text()) == json.loads(read_document())
