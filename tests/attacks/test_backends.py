"""Containers and other machines: names of folders, images and hosts, and commands and environments that look
like options or shell text. They stay what they are in the command lines that Whet builds; `tests/sandbox`
runs them against real servers (`test_elsewhere.py`, `test_hostile_host.py`)."""

from __future__ import annotations

import csv
import io
import os
import subprocess
from pathlib import Path

import pytest

from whet.contract.errors import ConfigError
from whet.sandbox.backend import (
    ContainerLines,
    SshLines,
    portable_environment,
    quote_folder,
    read_backend,
    recorded_command_line,
)
from whet.sandbox.policy import SandboxPolicy

TEXTS = [
    "$(touch made)", "`touch made`", "; touch made", "&& touch made", "| touch made", "'; touch made; '",
    '"; touch made; "', "a\ntouch made", "-rf", "--privileged", "${IFS}touch${IFS}made", "\\", "*",
    "~/$(touch made)",
]  # fmt: skip
BACKENDS = [
    "container --privileged", "container -v/:/host", "container debian --privileged",
    "ssh -oProxyCommand=touch", "ssh box -x", "ssh -F/tmp/x box", "ssh box /srv extra", "local; touch made",
    "docker debian", "container", "container\x00debian",
]  # fmt: skip
SECRETS = [
    "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "DOCKER_HOST", "LD_PRELOAD", "PATH", "BASH_ENV", "ENV",
    "PYTHONPATH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "DISPLAY", "HOME", "OPENAI_API_KEY",
    "GIT_CONFIG_GLOBAL",
]  # fmt: skip
FOLDERS = ["a:b", "a,readonly", 'a"b', "a,target=/x", "a\nb", "a=b", "a:/x:rw"]
ATTEMPTS = [*FOLDERS, *TEXTS, *BACKENDS, *SECRETS]


@pytest.mark.parametrize("text", BACKENDS)
def test_no_setting_brings_options(text: str) -> None:
    with pytest.raises(ConfigError):
        read_backend(text)


def test_only_what_means_the_same_there_goes_along() -> None:
    assert portable_environment(dict.fromkeys(SECRETS, "x")) == {}


@pytest.mark.parametrize("text", TEXTS)
def test_text_stays_text_in_the_shell_there(tmp_path: Path, text: str) -> None:
    line = recorded_command_line(["printf", "%s", text], {"LANG": text}, str(tmp_path), "mark")
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == text and not list(tmp_path.rglob("made"))
    folder = tmp_path / "w"
    folder.mkdir()
    script = f"mkdir -p -- {quote_folder(text)}; true"
    subprocess.run(["sh", "-c", script], cwd=folder, env=environment, capture_output=True, check=False)
    assert not list(tmp_path.rglob("made"))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folders_name_stays_one_mount(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    policy = SandboxPolicy(tmp_path / name, tmp_path / "h")
    line = ContainerLines("docker", "debian", "x").start(policy, (), ())
    mounts = [word.removeprefix("--mount=") for word in line if word.startswith("--mount=")]
    assert not [word for word in line if word.startswith("--volume")]
    assert [next(csv.reader(io.StringIO(mount, newline=""))) for mount in mounts] == [
        ["type=bind", f"source={tmp_path / name}", f"target={tmp_path / name}"]
    ]


def test_a_container_gets_no_rights_and_a_host_no_forwarding(tmp_path: Path) -> None:
    policy = SandboxPolicy(tmp_path, tmp_path / "home")
    line = ContainerLines("docker", "debian", "whet-x").start(policy, (), ())
    assert {"--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(line)
    given = ("--privileged", "--device", "--pid=", "--volume", "--mount=type=bind,source=/,")
    assert not [word for word in line if word.startswith(given)]
    assert not [word for word in line if "docker.sock" in word]
    ssh = SshLines("ssh", "box", tmp_path)
    for words in (ssh.start(), ssh.run("true")):
        text = " ".join(words)
        assert "ForwardAgent=no" in text and "ClearAllForwardings=yes" in text and "ForwardX11=no" in text
        assert words.index("box") > words.index("ForwardAgent=no")
