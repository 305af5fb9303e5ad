"""Commands in places where a reader of shell text takes them for text. Bash itself says which of them run;
none of those may run without a question."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import each
from whet.approval.risk import RiskScope
from whet.approval.shell_risk import analyse

# RUN is the command. Each is a text that has a form of a command that only reads.
ATTEMPTS = r"""
echo ${x:-`RUN`}
echo ${x-`RUN`}
echo ${x=`RUN`}
: "${x:=`RUN`}"
echo ${PWD:+`RUN`}
echo ${x:-a `RUN`}
echo ${x:- `RUN`a}
echo "${x:-'`RUN`'}"
echo "${x:-`RUN`}"
echo $"${x:-`RUN`}"
echo ${x:-${y:-`RUN`}}
echo ${x:-"${y:-`RUN`}"}
echo ${x:-<(RUN)}
echo ${x:->(RUN)}
echo ${x:-a <(RUN)}
echo ${@:-`RUN`}
echo ${1:-`RUN`}
echo ${PWD/`RUN`/}
echo ${PWD//a/`RUN`}
echo ${PWD#`RUN`}
echo ${PWD%%$(RUN)}
echo ${PWD^^`RUN`}
echo ${PWD:`RUN`}
echo {a,${y:-`RUN`}}
echo a=${y:-`RUN`}
echo ~/${y:-`RUN`}
ls ${y:-`RUN`}
cat <<< ${y:-`RUN`}
cat < ${y:-`RUN`}/dev/null
case ${y:-`RUN`} in *) ls;; esac
for i in ${y:-`RUN`}; do ls; done
if [ ${y:-`RUN`} ]; then ls; fi
[[ -n ${y:-`RUN`} ]]
[[ a =~ `RUN` ]]
echo $(( 1 + `RUN` ))
echo $[ $(RUN) ]
echo "a'`RUN`'"
echo 'a'`RUN`'b'
echo a#`RUN`
ls > >(RUN)
cat <(RUN)
echo "$(echo ")" ; RUN)"
""".strip().splitlines()
# What bash takes as text too.
QUOTED = r"""
echo '`RUN`'
echo "\`RUN\`"
echo ${x:-\`RUN\`}
echo $'`RUN`'
echo "a <(RUN)"
echo a # `RUN`
grep '$(RUN)' f
git log --grep '`RUN`'
""".strip().splitlines()


def _runs(text: str, folder: Path) -> bool:
    """Return whether bash runs the command RUN of a text."""
    command = text.replace("RUN", "touch it-ran; echo 1")
    subprocess.run(
        ["bash", "-c", f"{command}\nwait"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True
    )
    return (folder / "it-ran").exists()


def _judge(text: str) -> str:
    scope = RiskScope("/code/proj", "/home/u", "/home/u/.whet")
    return analyse(text.replace("RUN", "touch it-ran"), "/code/proj", scope).level


@pytest.mark.slow  # a process for each
@pytest.mark.parametrize("text", ATTEMPTS)
def test_no_command_that_bash_runs_is_taken_for_text(text: str, tmp_path: Path) -> None:
    assert _judge(text) != "safe"
    assert _runs(text, tmp_path)


@pytest.mark.slow  # the same
@pytest.mark.parametrize("text", QUOTED)
def test_text_that_bash_does_not_run_is_no_command(text: str, tmp_path: Path) -> None:
    assert _judge(text) in ("safe", "normal") and not _runs(text, tmp_path)


# A program, and the input that it runs.
FED = [
    ("awk -f -", 'BEGIN{system("rm -rf d")}'),
    ("awk --file=/dev/stdin f", 'BEGIN{system("rm -rf d")}'),
    ("sed -f - f", "1e rm -rf d"),
    ("vim f", ":!rm -rf d"),
    ("less f", "!rm -rf d"),
    ("make -f -", "x:\n\trm -rf d"),
]


@each("command, stdin", FED)
def test_a_program_that_runs_its_input_needs_a_question(command: str, stdin: str) -> None:
    scope = RiskScope("/code/proj", "/home/u", "/home/u/.whet")
    assert analyse(command, "/code/proj", scope, stdin).level == "dangerous"
