"""What rules allow, ask about and deny, and what a grant covers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.approval.test_gate import Bench, Someone, verdicts
from whet.approval.run_files import find_run_files
from whet.contract.errors import ConfigError
from whet.contract.events import ApprovalDecided
from whet.contract.protocols import Answer, ApprovalRequest, Reply


def test_forbidden_is_forbidden_whatever_the_rules_say(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, Someone("always"), mode="auto", allow=["terminal", "terminal(rm *)", "terminal(rm -rf /)"]
    )
    decision = bench.sh("rm -rf /")
    assert (decision.verdict, decision.decided_by) == ("deny", "rule")
    assert "never allowed" in decision.reason
    assert "nobody was asked" in decision.reason
    assert bench.person.asked == []
    assert bench.events == [ApprovalDecided("c1", "deny", "rule", decision.reason)]


def test_deny_beats_ask_beats_allow(tmp_path: Path) -> None:
    rules: dict[str, Any] = {
        "deny": ["terminal(npm publish *)"],
        "ask": ["terminal(npm *)"],
        "allow": ["terminal(npm *)"],
    }
    bench = Bench(tmp_path, Someone("once"), mode="auto", **rules)
    assert bench.sh("npm publish").decided_by == "rule"
    assert bench.sh("npm test").decided_by == "person"
    assert bench.sh("npm test").decided_by == "nobody"


def test_a_deny_or_ask_rule_in_the_form_of_claude_code_holds(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"deny": ["terminal(touch:*)"], "ask": ["terminal(npm run:*)"]}
    bench = Bench(tmp_path, Someone("once"), mode="auto", allow=["terminal"], **rules)
    for command in ("touch", "touch a", "ls && touch a", "touch:x"):
        assert bench.sh(command).verdict == "deny", command
    assert bench.sh("npm run test").decided_by == "person"
    assert bench.sh("touched a").verdict == "allow"


def test_a_rule_for_a_host_holds_for_each_spelling_of_it(tmp_path: Path) -> None:
    denied = [
        "web_fetch(127.0.0.1)",
        "web_fetch(evil.example)",
        "web_fetch(http://10.0.0.1/*)",
        "web_fetch(::1)",
    ]
    bench = Bench(tmp_path, Someone("once"), mode="auto", deny=denied)
    for url in (
        "http://127\u30020\u30020\u30021/", "http://127\uff0e0.0.1/x", "http://127.1/",
        "http://2130706433/", "http://0x7f000001:80/", "http://[::ffff:127.0.0.1]/",
        "http://evil\u3002example/", "http://\uff25vil.example./a", "http://10.1/a", "http://0X0A.1/a",
        "http://[0:0:0:0:0:0:0:1]/", "http://0:8080/", "http://0.0.0.0:8080/", "http://[::]/",
        "http://localhost/", "http://a.localhost:80/", "evil.example/x", "https://evil.example:443/a",
    ):  # fmt: skip
        assert bench.decide("web_fetch", url=url).verdict == "deny", url
    assert bench.decide("web_fetch", url="http://b.example/evil.example").verdict == "allow"


def test_a_rule_for_an_address_holds_for_each_spelling_of_its_path(tmp_path: Path) -> None:
    denied = ["web_fetch(*/private*)", "web_fetch(https://a.org/x)", "web_fetch(*key=1*)"]
    bench = Bench(tmp_path, Someone(), mode="deny", deny=denied, allow=["web_fetch(https://a.org/docs/*)"])
    urls = ("/docs/%70rivate", "/docs/../private", "/docs/%2e%2e/private", "/docs//private", "/docs/?ke%79=1")
    for url in urls:
        assert "deny: web_fetch" in bench.decide("web_fetch", url=f"https://a.org{url}").reason, url
    assert "deny: web_fetch" in bench.decide("web_fetch", url="https://A.org:443/docs/../x").reason
    assert bench.decide("web_fetch", url="https://a.org/docs/caf%C3%A9/").verdict == "allow"
    for url in ("/docs/../other", "/docs/%2e%2e/other"):
        assert bench.decide("web_fetch", url=f"https://a.org{url}").verdict == "deny", (
            "allowed by its beginning"
        )


class Slow(Someone):
    """Says yes after something has happened."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__("once")
        self.happens = happens

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        self.happens()
        return await super().approve(request)


@pytest.mark.parametrize(
    ("command", "changed", "verdict"),
    [
        ("sudo -n true; sh e.sh", "e.sh", "deny"),
        ("./e.sh", "e.sh", "deny"),
        (". ./e.sh", "e.sh", "deny"),
        ("sudo python3 -u sub/run.py x", "sub/run.py", "deny"),
        ("sudo rm out.log", "out.log", "allow"),
        ("sudo sh e.sh", "other.sh", "allow"),
    ],
)
def test_a_script_that_changes_while_the_person_is_asked_does_not_run(
    tmp_path: Path, command: str, changed: str, verdict: str
) -> None:
    bench = Bench(tmp_path, Slow(lambda: (bench.workspace / changed).write_text("touch evil\n")), mode="ask")
    (bench.workspace / "sub").mkdir()
    for name in ("e.sh", "sub/run.py", "out.log", "other.sh"):
        (bench.workspace / name).write_text("true\n")
    decision = bench.sh(command)
    assert decision.verdict == verdict
    assert ("changed while the question was open" in decision.reason) is (verdict == "deny")


def test_reading_needs_no_question_in_the_root_folder(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="ask")
    bench.workspace = Path("/")
    assert bench.sh("ls etc").verdict == "allow"


def test_a_deny_rule_matches_any_command_within(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("once"), mode="auto", deny=["terminal(rm *)"])
    hidden = [
        "rm a", "ls && rm a", "r''m a", "bash -c 'rm a'", "timeout 5 rm a", "find . | xargs rm",
        "echo $(rm a)", "a=rm; $a a", "a=rm b=a; ${a} $b", "a=r; ${a}m a",
    ]  # fmt: skip
    assert {bench.sh(command).decided_by for command in hidden} == {"rule"}
    assert bench.sh("make").verdict == "allow"
    assert "rm *" in bench.sh("rm a").reason


def test_a_deny_rule_holds_behind_programs_that_nothing_is_known_of(tmp_path: Path) -> None:
    """https://github.com/anthropics/claude-code/issues/92542"""
    bench = Bench(tmp_path, Someone("once"), mode="auto", deny=["terminal(git push *)", "terminal(curl *)"])
    hidden = [
        "faketime now git push",
        "./with-lock.sh -v git push origin",
        "python3 wrap.py git push",
        "bash wrap.sh git push",
        "perhaps --run=x /usr/bin/git push",
        "with-retry git -C . push",
        "perhaps curl a.org",
    ]
    assert [command for command in hidden if "forbids it" not in bench.sh(command).reason] == []
    texts = ["git stash push", "echo git push", "grep curl a", "pip install curl", "make curl", "npm test"]
    assert [command for command in texts if "forbids it" in bench.sh(command).reason] == []


def test_a_deny_rule_holds_with_options_between_a_program_and_its_verb(tmp_path: Path) -> None:
    """https://github.com/anthropics/claude-code/issues/18613"""
    rules = ["terminal(git push *)", "terminal(npm publish *)", "terminal(rm build)"]
    bench = Bench(tmp_path, Someone("once"), mode="auto", deny=rules)
    hidden = [
        "git -C . push",
        "git --no-pager push origin",
        "git -c a.b=c -C x push",
        "git --git-dir x push -f",
        "npm --prefix x publish",
        "rm -rf build",
    ]
    assert [command for command in hidden if "forbids it" not in bench.sh(command).reason] == []
    others = ["git -C . pull", "npm run publish", "git push-all", "git " + "-c a=b " * 3_000 + "status"]
    assert [command for command in others if "forbids it" in bench.sh(command).reason] == []


def test_a_deny_or_ask_rule_for_a_program_holds_if_nobody_can_tell_what_runs(tmp_path: Path) -> None:
    unknown = [
        "$(which seq) 3", '"$(which seq)" 3', "`which seq` 3", "x=$(which seq); $x 3", "x=seq; $x 3; x=ls",
        "x=seqz; ${x%z} 3", "for x in seq; do $x 3; done", "if true; then x=seq; else x=ls; fi; $x 3",
        "if true; then x=env; else x=ls; fi; $x seq 3", "x='env seq'; $x 3; x=ls", "IFS=_; x=env_seq; $x 3",
        "x=/usr/bin/se?; $x 3", "x=se; x+=q; $x 3", "x=(seq 3); $x; ${x[@]}",
        "export x=seq; $x 3; export x=ls", "x=ls; unset x; : ${x:=seq}; $x 3", "read x <<< seq; $x 3",
        'set -- seq 3; "$@"', "/usr/bin/se[q] 3", "/usr/bin/s?q 3", "se{q..q} 3", "env $(which seq) 3",
        "time $(which seq) 3", "find . -exec $(which seq) 3 ';'", "bash -c '$(which seq) 3'",
        'bash -c "$(echo seq 3)"', "eval $(echo seq 3)", "echo c2VxIDMK | base64 -d | bash",
        "source <(echo seq 3)", "hash -p /usr/bin/seq s; s 3", "BASH_CMDS[s]=/usr/bin/seq; s 3",
        "declare -A BASH_CMDS=([s]=/usr/bin/seq); s 3", "printf -v 'BASH_CMDS[s]' /usr/bin/seq; s 3",
        "shopt -s expand_aliases\nalias s=seq\ns 3", "BASH_ALIASES[s]=seq",
    ]  # fmt: skip
    answers: list[Answer] = ["once"] * (2 * len(unknown))
    yes = Someone(*answers)
    bench = Bench(tmp_path, yes, mode="auto", deny=["terminal(seq *)", "write(*.lock)"])
    assert [command for command in unknown if "terminal(seq *)" not in bench.sh(command).reason] == []
    assert "terminal(seq *) may forbid it" in bench.sh(unknown[0]).reason and yes.asked == []
    texts = ["x=ls; $x", "ls *.txt", "[ -f a ] && ls", "echo $(ls)", "$HOME/bin/x", "hash", "bash -c 'ls'"]
    assert [command for command in texts if bench.sh(command).verdict != "allow"] == []
    others = Bench(tmp_path, yes, mode="auto", deny=["terminal(*--force*)", "terminal(> *.lock)"])
    assert {others.sh(command).decided_by for command in unknown} == {"person"}
    asks = Bench(tmp_path, yes, mode="auto", ask=["terminal(seq*)"], allow=["terminal($x *)"])
    assert asks.sh("$x 3").decided_by == "person"


def test_a_deny_rule_holds_for_each_word_that_may_become_its_program_behind_another_one(
    tmp_path: Path,
) -> None:
    may_run = [
        "faketime now $(which seq) 3", 'faketime now "$(command -v seq)" 3', "faketime now `type -P seq` 3",
        "x=$(which seq); faketime now $x 3", "./with-lock.sh -v /usr/bin/s?q 3", "perhaps /usr/bin/se[q] 3",
        "perhaps $DIR/se{q..q} 3", "perhaps se${y} 3", "bash wrap.sh $(which seq) 3",
        "numactl -C 0 $(which seq) 3", "timeout --odd $(which seq) 3",
    ]  # fmt: skip
    runs = ["gdb --args seq 3", "systemd-run --user seq 3", "runuser -u me -- seq 3", "tmux new-window seq 3"]
    bench = Bench(tmp_path, Someone("once"), mode="auto", deny=["terminal(seq *)"])
    assert [line for line in may_run if "terminal(seq *) may forbid it" not in bench.sh(line).reason] == []
    assert [line for line in runs if "terminal(seq *) forbids it" not in bench.sh(line).reason] == []
    others = [
        "perhaps $(date +%F) $HOME *.txt '[a-z]*' src/* {a,b}",
        "perhaps -m 'use `seq` now'",
        "perhaps $(git rev-parse HEAD)",
        "echo $(which seq)",
        "ls /usr/bin/s?q",
    ]
    assert [line for line in others if "terminal(seq" in bench.sh(line).reason] == []
    asks = Bench(tmp_path, Someone("once"), mode="auto", ask=["terminal(seq *)"])
    assert asks.sh("faketime now $(which seq) 3").decided_by == "person"


def test_a_rule_for_a_subcommand_holds_if_a_word_that_it_names_is_made_at_run_time(tmp_path: Path) -> None:
    may_push = [
        "git $(echo push) R",
        "git pu${x}sh R",
        "git pu$(echo s)h R",
        "git ${x:-push} R",
        "v=xpush; git ${v:1} R",
        "v=PUSH; git ${v,,} R",
        'git "$@"',
        'set -- push; git "$1" R',
        "a=(push); git ${a[0]} R",
        "for p in push; do git $p R; done",
        "read x <<< push; git $x R",
        "git() { command git $1 R; }; git push",
        'f() { git "$@"; }; f push R',
        "touch push; git pus? R",
        "git pu[s]h R",
        "git p*",
        "git st*",  # may name a file that is called like an alias
        "git {pu,}sh$x R",
        "git $options push",
        "git -C $dir $verb",
        "git --no-pager pu$x",
        "echo push R | xargs git",
        "echo push | xargs -I{} git {} R",
        "bash -c 'git \"$@\"' _ push",
        "perhaps git $x",
        "git -c alias.x=push x R",
        "git -c alias.z='!git push' z",
        "git -c include.path=f x",
        "git -c $x=push y",
        "git --config-env=alias.x=V x",
        "/usr/lib/git-core/git-push R",
        "/usr/lib/git-core/git-pus? R",
    ]
    others = [
        'git commit -m "$msg"', "git add $file", "git log $range", "git -C $dir status",
        "git -c user.name=$n commit -m x", "git pull $x", "git stash pu$x", "git log | xargs git show",
        "git show st*", "echo git $x", "/usr/lib/git-core/git-pull R",
    ]  # fmt: skip
    for rule in ("terminal(git push *)", "terminal(git push*)", "terminal(git push:*)"):
        answers: list[Answer] = ["once"] * 99
        denies = Bench(tmp_path, Someone(*answers), mode="auto", deny=[rule])
        assert [line for line in may_push if "git push" not in denies.sh(line).reason] == [], rule
        assert [line for line in others if "git push" in denies.sh(line).reason] == [], rule
    asks = Bench(tmp_path, Someone(), mode="auto", ask=["terminal(git push *)"])
    assert [line for line in may_push if asks.sh(line).decided_by != "nobody"] == []
    long = Bench(tmp_path, Someone(), mode="auto", deny=["terminal(git push * main)"])
    assert "git push * main" in long.sh("git push origin $branch").reason
    assert "git push * main" not in long.sh("git push origin dev").reason


def test_a_rule_for_a_git_subcommand_holds_for_one_that_git_does_not_have(tmp_path: Path) -> None:
    may_push = [
        "git ps origin main", "git -C . ps", "HOME=$PWD/home git p",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p",
        "env GIT_CONFIG_PARAMETERS=\"'alias.p=push'\" git p",
        "printf '[alias]\\np=push\\n' > c; GIT_CONFIG_GLOBAL=$PWD/c git p",
        "git config alias.p push && git p", "timeout 5 git ps", "bash -c 'git ps'",
        "echo origin | xargs git ps", "git send-pack origin main", "git-send-pack origin main",
        "git remote-https origin https://a.b", "git svn dcommit",
    ]  # fmt: skip
    others = [
        "git status",
        "git pull",
        "git subtree add x",
        "git submodule update",
        "git-lfs pull",
        "hg ps",
        "git --version",
    ]
    denies = Bench(tmp_path, Someone(), mode="auto", deny=["terminal(git push *)"])
    assert [
        line for line in may_push if "git push *) may forbid it: git " not in denies.sh(line).reason
    ] == []
    assert "git push *) forbids it" in denies.sh("git subtree push --prefix a origin main").reason
    assert [line for line in others if "git push" in denies.sh(line).reason] == []
    asks = Bench(tmp_path, Someone(), mode="auto", ask=["terminal(git push *)"])
    assert [line for line in may_push if asks.sh(line).decided_by != "nobody"] == []
    assert "terminal(rm *)" not in Bench(tmp_path, Someone(), deny=["terminal(rm *)"]).sh("git ps").reason
    bare = Bench(tmp_path, Someone(), mode="auto")
    assert verdicts(bare, ["git ps", "git push", "git commit", "git-lfs pull"]) == [
        "deny",
        "deny",
        "allow",
        "allow",
    ]
    assert Bench(tmp_path, Someone(), allow=["terminal(git ps *)"]).sh("git ps origin").verdict == "allow"


def test_an_installed_command_of_git_is_known_for_no_alias_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("installed", "proj/own"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("installed/git-stack", "proj/own/git-hop"):
        (tmp_path / file).write_text("#!/bin/sh\n")
        (tmp_path / file).chmod(0o755)
    folders = [str(tmp_path / "installed"), str(tmp_path / "proj/own"), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    bench = Bench(tmp_path, Someone(), mode="auto", deny=["terminal(git push *)"])
    assert verdicts(bench, ["git stack", "git hop"]) == ["allow", "deny"]


def test_an_allow_rule_must_cover_every_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), allow=["terminal(make *)", "terminal(npm test)"])
    assert verdicts(bench, ["make", "make all", "cd x && make | tail", "make && npm test"]) == ["allow"] * 4
    refused = ["make && npm run x", "make; curl a.org", "make > ../out", "make $(npm run x)", "npm test x"]
    assert verdicts(bench, refused) == ["deny"] * 5
    assert verdicts(bench, ["PATH=/x make", "LD_PRELOAD=x make", "./make", "/tmp/make all"]) == ["deny"] * 4


def test_an_allow_rule_covers_what_is_dangerous_only_by_name(tmp_path: Path) -> None:
    assert Bench(tmp_path, Someone(), allow=["terminal(git push *)"]).sh("git push origin").verdict == "allow"
    for broad in ("terminal", "terminal(*)", "*", "terminal(*push*)"):
        assert Bench(tmp_path, Someone(), allow=[broad]).sh("git push origin").verdict == "deny", broad
        assert Bench(tmp_path, Someone(), allow=["terminal(*)"]).sh("make").verdict == "allow"
    both = Bench(tmp_path, Someone(), allow=["terminal(curl *)", "terminal(sh *)"])
    assert both.sh("curl a.org | sh").verdict == "deny"


def test_rules_for_the_web_name_a_host_or_an_address(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), allow=["web_fetch(*.python.org)", "web_fetch(https://a.org/docs/*)"])
    for url in ("https://docs.python.org/3/", "http://x.python.org", "https://a.org/docs/x"):
        assert bench.decide("web_fetch", url=url).verdict == "allow", url
    for url in (
        "https://evil.org/x.python.org",
        "https://docs.python.org.evil.org",
        "https://docs.python.org@evil.org/",
        "https://evil.org\\.python.org",
        "https://a.org/other",
        "http://a.org/docs/x",
        "python.org",
        "",
    ):
        assert bench.decide("web_fetch", url=url).verdict == "deny", url


def test_a_session_grant_for_the_web_covers_the_host_and_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session", "no", "no"))
    assert bench.decide("web_fetch", url="https://a.org/one").verdict == "allow"
    assert bench.person.asked[0].grant == "web_fetch(a.org)"
    assert bench.decide("web_fetch", url="http://a.org/two?x=1").verdict == "allow"
    assert bench.decide("web_fetch", url="https://b.org/one").verdict == "deny"
    with_key = "https://a.org/?k=sk-abcdefghijklmnopqrstuvwx"
    assert bench.decide("web_fetch", url=with_key).verdict == "deny", "a grant covers no key in an address"
    assert [request.grant for request in bench.person.asked[1:]] == ["web_fetch(b.org)", ""]


def test_a_key_in_an_address_is_dangerous_and_shown_as_it_would_be_sent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    assert bench.decide("web_fetch", url="https://a.org/?k=sk-abcdefghijklmnopqrstuvwx").verdict == "deny"
    assert "sk-abc" in bench.person.asked[0].subject


def test_rules_for_files_match_the_path_however_it_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto", deny=["write_file(secret/*)", "read_file(secret/*)"])
    for path in ("secret/a", "./secret/a", "x/../secret/a", str(bench.workspace / "secret/a")):
        assert bench.decide("write_file", path=path).decided_by == "rule", path
        assert bench.decide("read_file", path=path).verdict == "deny", path


def test_a_rule_that_cant_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"approval\.allow: 'terminal\(git'"):
        Bench(tmp_path, Someone(), allow=["terminal(git"])


def test_a_question_for_full_rights_reads_past_binary_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "prog").write_bytes(b"\x7fELF\0dir/x\0/lib/y \xff\0")
    (tmp_path / "d").mkdir()
    assert find_run_files(tmp_path, ["./prog d"]) == {tmp_path / "prog"}
