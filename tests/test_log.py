"""The log file: whose records it holds, and what happens if it can't be written."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from whet import log


@pytest.mark.parametrize("package", ["whet.gateway", "whet_confirm.notify.notifier", "whet_lab.demo"])
def test_records_of_every_package_go_to_the_rotated_file_and_not_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], package: str
) -> None:
    log.start_logging(tmp_path / "logs")
    logging.getLogger(package).warning("channel %s is deaf; key sk-ant-abcdefghijklmnopqrstuv", "ops")
    text = (tmp_path / "logs/whet.log").read_text()
    assert "channel ops is deaf" in text and "abcdefghijklmnop" not in text
    assert capfd.readouterr().err == ""


def test_a_full_disk_drops_records_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/whet.log").symlink_to("/dev/full")
    log.start_logging(tmp_path / "logs")
    for name in log.PACKAGES:
        logging.getLogger(name).error("this can't be written")
    assert capfd.readouterr().err == ""


@pytest.mark.fast_rows("KEY=", "&x-x")
@pytest.mark.parametrize("value", ["correct-horse-battery", "geheim~Wörter?+/=ja", "a>b?c>d?e>f?g>h?i"])
@pytest.mark.parametrize("head", ["", "x", "KEY=", "Bearer "])
@pytest.mark.parametrize("end", ["", "\n", "&x"])
def test_a_known_secret_is_masked_in_base64_wherever_it_begins(value: str, head: str, end: str) -> None:
    data = f"{head}{value}{end}".encode()
    texts = [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]
    assert all(log.mask(text) == text for text in texts)
    log.protect([value])
    for text in texts:
        shown = log.mask(f"see {text} there")
        assert log.MASK in shown and len(shown) <= len(f"see {log.MASK} there") + 16
    word = base64.b64encode(b"another text of some length").decode()
    assert log.mask(word) == word


def test_secrets_are_asked_for_when_the_first_text_is_masked() -> None:
    asked: list[str] = []

    def list_values() -> list[str]:
        asked.append("once")
        return ["correct-horse-battery"]

    log.protect_later(list_values)
    assert asked == []
    assert log.mask("correct-horse-battery") == log.mask("correct-horse-battery") == log.MASK
    assert asked == ["once"]
