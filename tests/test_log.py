"""The log file: whose records it holds, and what happens if it can't be written."""

from __future__ import annotations

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
