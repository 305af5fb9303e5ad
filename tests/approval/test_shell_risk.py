"""The shell analysis: a corpus of commands, and properties that must hold for any text."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.approval.corpus import EXPECTED
from tests.support import each
from whet.approval.risk import RiskScope, ShellRisk, rank
from whet.approval.secrets import is_secret
from whet.approval.shell_risk import analyse

PLACE = RiskScope("/code/proj", "/home/u", "/home/u/.whet")


def judge(command: str, stdin: str = "") -> ShellRisk:
    return analyse(command, "/code/proj", PLACE, stdin)


@pytest.mark.slow
@each(("level", "command"), EXPECTED)
def test_the_corpus(level: str, command: str) -> None:
    risk = judge(command)
    assert risk.level == level, risk.reasons
    if level in ("dangerous", "forbidden"):
        assert risk.reasons
    assert msgspec.json.decode(msgspec.json.encode(risk.reasons)) == list(risk.reasons)


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(EXPECTED) >= 600
    assert len({command for _, command in EXPECTED}) == len(EXPECTED)


def test_each_simple_command_is_listed_without_its_quotes() -> None:
    risk = judge("cd src && g\"i\"t  commit -m 'a b' | /usr/bin/tee 'x' > out.txt")
    assert [piece.text for piece in risk.commands] == [
        "cd src",
        "git commit -m 'a b'",
        "tee x",
        "> out.txt",
    ] or [piece.text for piece in risk.commands] == ["> out.txt", "cd src", "git commit -m 'a b'", "tee x"]


def test_an_assignment_before_a_command_is_asked_about_once() -> None:
    shown = [(piece.text, piece.level) for piece in judge("LD_PRELOAD=./x.so ls").commands]
    assert shown == [("LD_PRELOAD=./x.so", "dangerous"), ("ls", "safe")]


def test_safe_commands_in_an_unusual_text_are_shown_with_the_text() -> None:
    """A rule that allows the command alone does not allow what the text makes of it."""
    (alone, whole) = judge("echo ${!x}").commands
    assert (alone.text, alone.level, alone.program) == ("echo ${!x}", "safe", "echo")
    assert (whole.text, whole.level, whole.program) == ("echo ${!x}", "normal", "")


@pytest.mark.parametrize(("chars", "level"), [(1_000_000, "normal"), (1_000_001, "dangerous")])
def test_an_input_that_is_too_long_to_be_looked_through_is_dangerous(chars: int, level: str) -> None:
    assert judge("tee x.txt", "x" * chars).level == level


@pytest.mark.parametrize(
    ("command", "grant"),
    [
        ("npm run build --watch", "npm run build *"),
        ("npm test x", "npm test *"),
        ("npm run $SCRIPT", "npm run $SCRIPT"),
        ("npm run --silent build", "npm run --silent build"),
        ("npm run", "npm run"),
        ("cargo run --bin x", "cargo run --bin x"),
    ],
)
def test_a_yes_to_what_is_run_covers_that_and_nothing_else(command: str, grant: str) -> None:
    assert judge(command).commands[-1].grant == grant


def test_a_wrapper_shows_what_it_runs() -> None:
    assert [piece.text for piece in judge("timeout 5 env FOO=1 nice pytest -q").commands] == ["pytest -q"]
    assert {piece.text for piece in judge("sudo -u bob pytest").commands} == {"pytest", "sudo -u bob pytest"}
    assert [piece.text for piece in judge("bash -c 'make && make test'").commands] == ["make", "make test"]


def test_a_here_document_within_one_that_never_ends_is_judged() -> None:
    assert judge("<<E\n<<\\E\n$(ls ").level == "dangerous"


def test_the_network_is_noticed() -> None:
    assert judge("curl https://a.b").network
    assert judge("git fetch").network
    assert judge("echo x > /dev/tcp/a/1").network
    assert judge("pip install x").network
    assert not judge("git status").network


@pytest.mark.parametrize(
    ("wrapper", "runs"), [("env ", "commands within commands"), ("eval ", "shells within shells")]
)
def test_what_is_nested_too_deeply_is_not_looked_into(wrapper: str, runs: str) -> None:
    assert f"can't tell what it runs: {runs}" not in judge(wrapper * 6 + "ls").reasons
    assert f"can't tell what it runs: {runs}" in judge(wrapper * 7 + "ls").reasons
    assert f"can't tell what it runs: {runs}" not in judge("sh", wrapper * 5 + "ls").reasons
    assert f"can't tell what it runs: {runs}" in judge("sh", wrapper * 6 + "ls").reasons


def test_a_text_that_is_fed_to_a_shell_has_a_limit_of_its_own() -> None:
    assert judge("sh", "#" * 100_000).reasons == ()
    assert judge("sh", "#" * 100_001).reasons == ("can't tell what it runs: shells within shells",)


def test_long_reasons_are_cut_and_many_are_left_out() -> None:
    fits, longer = judge(f"rm /opt/{'x' * 163}").reasons[0], judge(f"rm /opt/{'x' * 164}").reasons[0]
    assert len(fits) == 199 and not fits.endswith("...")
    assert longer == fits[:197] + "..." and len(longer) == 200
    assert len(judge("; ".join(f"rm /opt/{n}" for n in range(20))).reasons) == 12
    assert judge("rm /opt/x; rm -rf /").reasons[-1] == "deletes outside the workspace: /opt/x", (
        "the worst first"
    )


def test_a_path_that_no_file_can_have_is_not_looked_into() -> None:
    longest = "/" + "./" * 2_047 + "."
    assert len(longest) == 4_096 and judge(f"rm -r {longest}").level == "forbidden"
    assert judge(f"rm -r {longest}/").level == "dangerous"


def test_input_given_to_a_shell_is_looked_at() -> None:
    assert judge("bash", "rm -rf /").level == "forbidden"
    assert judge("bash -s", "git push").level == "dangerous"
    assert judge("python3", "import shutil; shutil.rmtree('x')").level == "dangerous"
    assert judge("cat", "rm -rf /").level in ("safe", "normal")


def test_roots_own_home_is_a_home_like_others() -> None:
    root, other = (
        RiskScope("/root/proj", "/root", "/root/.whet"),
        RiskScope("/code", "/home/u", "/home/u/.whet"),
    )
    for path, own in (
        ("/root/notes.txt", False),
        ("/root", False),
        ("/root/.ssh/id", True),
        ("/rootless", False),
    ):
        assert is_secret(path, root) is own
    assert is_secret("/root/notes.txt", other) and not is_secret("/rootless/notes.txt", other)


def test_a_pattern_or_a_link_that_leads_to_secrets_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1")
    (tmp_path / "notes").symlink_to(tmp_path / ".env")
    scope = RiskScope(str(tmp_path), "/home/u", "/home/u/.whet", temp=())

    def level(command: str) -> str:
        return analyse(command, str(tmp_path), scope).level

    assert level("cat .en*") == "dangerous"
    assert level("cat ./.[e]nv") == "dangerous"
    assert level("cat notes") == "dangerous"
    assert level("cat *") == "dangerous"  # by the link
    (tmp_path / "notes").unlink()
    assert level("cat *") == "safe"


def test_a_link_out_of_the_workspace_is_seen_through(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "proj", tmp_path / "other"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "link").symlink_to(outside)
    scope = RiskScope(str(workspace), "/home/u", "/home/u/.whet", temp=())
    assert analyse("echo x > link/a", str(workspace), scope).level == "dangerous"
    assert analyse("echo x > sub/a", str(workspace), scope).level == "normal"


def test_a_home_inside_the_workspace_is_not_up_for_deletion() -> None:
    scope = RiskScope("/home/u", "/home/u", "/home/u/.whet")
    assert analyse("rm -rf ~", "/home/u", scope).level == "forbidden"
    assert analyse("echo x > .bashrc", "/home/u", scope).level == "dangerous"


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_any_text_is_judged(text: str) -> None:
    assert judge(text).level in ("safe", "normal", "dangerous", "forbidden")


# fmt: off
_BITS = st.sampled_from(
    [
        'ls', 'cat', 'echo', 'rm', '-rf', 'x', '$x', '$(', ')', '`', "'", '"', '|', '||', '&&', ';',
        '&', '\n', ' ', ' ', '{', '}', '(', '<<E', 'E', '\\', '#', "$'", 'if', 'then', 'fi', 'for i in',
        'do', 'done', 'while', '!', '[[', ']]', 'case x in', 'esac', 'a)', ';;', '=', 'a=', '${', '<(',
        '<<<', '$((', '))', 'time', 'env', 'xargs', 'eval', '~', 'function f', 'f()', '[', ']', '-c',
        'bash', '\t', '{a,b}', 'command', 'exec', '<<-E', "<<'E'", 'true', '*',
    ]
)
# fmt: on


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_BITS, max_size=25).map("".join))
def test_any_heap_of_shell_tokens_is_judged(text: str) -> None:
    judge(text)


# Each takes a command and gives a text in which bash runs it.
# fmt: off
_FRAMES = [
    '{}', 'ls; {}', 'ls && {}', 'false || {}', 'ls | {}', '{} | cat', 'ls & {}', '({})', '{{ {}; }}',
    '! {}', 'echo $({})', 'echo `{}`', 'echo "$({})"', 'cat <({})', 'if {}; then :; fi',
    'if :; then {}; fi', 'if false; then :; else {}; fi', 'while {}; do :; done',
    'until {}; do :; done', 'for i in a; do {}; done', 'for i in $({}); do :; done',
    'case a in a) {};; esac', 'f() {{ {}; }}; f', '# x\n{}', 'ls # x\n{}', 'ls\\\n;{}',
    'cat <<E\n$({})\nE', "cat <<'E'\nx\nE\n{}", 'x=$({}) ls', 'x=1 {}', 'echo ${{x:-$({})}}',
    'echo $((1+$({})))', '[[ -n $({}) ]]', 'ls > /dev/null; {}', 'ls 2>&1 | {}', '{} 2>/dev/null',
    '2>/dev/null {}', 'time {}', 'command {}', 'env {}', 'nohup {}', 'timeout 1 {}', 'xargs {}',
    'exec {}', 'cat <<< $({})', 'a[$({})]=1', 'echo "a\'$({})\'b"', 'echo \'a\'"$({})"',
]
# fmt: on
_SPELLINGS = [
    "rm",
    "r\\m",
    "\\rm",
    "'rm'",
    '"rm"',
    "r''m",
    'r""m',
    "$'rm'",
    "$'\\x72m'",
    "$'\\162m'",
    "/bin/rm",
    "r\\\nm",
]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(_FRAMES), min_size=1, max_size=3), st.sampled_from(_SPELLINGS))
def test_a_text_that_runs_rm_is_never_safe(frames: list[str], spelling: str) -> None:
    text = f"{spelling} x"
    for frame in frames:
        text = frame.format(text)
    assert judge(text).level != "safe", text
    recursive = text.replace(f"{spelling} x", f"{spelling} -rf x")
    assert rank(judge(recursive).level) >= rank("dangerous"), recursive


_BASH = shutil.which("bash")
# bash itself says which programs it would run: none can be found, so each name reaches the handler.
_HANDLER = 'command_not_found_handle() { printf "%s\\n" "$1" >&9; return 0; }\n'
_HARMLESS = re.compile(r"ls|cat|echo|true|env|xargs|grep|head|wc|time|:")


def _really_run(text: str, folder: Path) -> set[str]:
    # A file of its own: a background job of an earlier text may still be writing.
    handle, path = tempfile.mkstemp(dir=folder)
    os.close(handle)
    names = Path(path)
    assert _BASH is not None
    subprocess.run(
        [_BASH, "--norc", "--noprofile", "-c", f"exec 9>>{names}\n{_HANDLER}{text}"],
        env={"PATH": "/nowhere", "HOME": "/nowhere"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    return set(names.read_text().splitlines()) - {""}  # no file is named ""


# fmt: off
_QUIET_BITS = st.sampled_from(
    [
        'ls ', 'cat ', 'echo ', 'rm ', 'rm x', '-f ', 'x', '$x', '$(', ')', '`', "'", '"', ' | ',
        ' || ', ' && ', ';', '\n', '{ ', '; }', '(', '<<E\n', '\nE\n', '\\', '# ', "$'", 'if ',
        '; then ', '; fi', 'for i in a', '; do ', '; done', ' ', 'case x in ', ' esac', 'x) ', ';; ',
        'a=', '${x:-', '}', '<(', '<<<', '$((', '))', "'\\''", '<<-E\n\t', "<<'E'\n", '\\\n', '! ',
        '<<\\E\n', '\n\tE\n', '\\ ', '\\\t', '{a,b}', '#', '[ ', ' ]', '[[ ', ' ]]', '((', '${x#',
        '${HOME:', '${x/', '{', '-n ', ' -o ', '&', '@(',
    ]
)
# fmt: on
# fmt: off
_COMMANDS = st.sampled_from(
    [
        'ls', 'cat x', "echo 'a b'", '\\rm x', 'rm x', 'r\\m x', "'rm' x", "ls 'a\nb'", 'cat <<E\nx\nE',
        'echo $(ls)', '(ls)', 'ls "x$(rm x)"', '{ ls; }', 'echo `ls`', 'if ls; then rm x; fi',
        'ls -l > /dev/null', '! ls', "$'rm' x", 'a=1', 'echo {a,b}', "cat <<'E' | ls\nrm\nE",
        'ls <<< x', '[[ -n x ]]', 'case x in x) rm;; esac', 'for i in 1; do rm; done',
        '[ -n x ]', 'echo ${x#a}', '((1))',
    ]
)
# fmt: on
# fmt: off
_JOINTS = st.sampled_from(
    [
        '; ', '\n', ' | ', ' && ', ' || ', '\n\n', ' # c\n', ' \\\n', '\t', ' &\n', '\\\n', ' #\\\n',
        '\n#c\n', ';\\\n', '# c\n', ' |\n', ' && # c\n', ' &&\\\n', '\n\\\n', '\\\n;', '  \n  ',
    ]
)
# fmt: on
_TEXTS = st.lists(st.tuples(_COMMANDS, _JOINTS), min_size=1, max_size=4).map(
    lambda pairs: "".join(command + joint for command, joint in pairs)
)


@pytest.mark.slow
@pytest.mark.skipif(_BASH is None, reason="bash is the judge here")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_TEXTS | st.lists(_QUIET_BITS, min_size=2, max_size=12).map("".join))
def test_bash_runs_nothing_that_was_not_shown(text: str, tmp_path: Path) -> None:
    _compare_with_bash(text, tmp_path)


@pytest.mark.soak
@pytest.mark.skipif(_BASH is None, reason="bash is the judge here")
@settings(max_examples=20_000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_TEXTS | st.lists(_QUIET_BITS, min_size=2, max_size=14).map("".join))
def test_bash_agrees_for_long(text: str, tmp_path: Path) -> None:
    _compare_with_bash(text, tmp_path)


def _compare_with_bash(text: str, folder: Path) -> None:
    risk = judge(text)
    if risk.level in ("dangerous", "forbidden"):
        return
    ran = _really_run(text, folder)
    if risk.level == "safe":
        assert all(_HARMLESS.fullmatch(name) for name in ran), (text, ran)
    shown = {shlex.split(piece.text)[0] for piece in risk.commands if piece.program}
    assert ran <= shown | {"{}"}, (text, ran, shown)
