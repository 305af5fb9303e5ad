"""Commands that run in a jail: what stays inside is not asked about, what needs out is, in those words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.approval.test_gate import Bench, Kept, Someone
from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import run
from whet.approval.confined import JailGate
from whet.approval.gate import GateParts
from whet.approval.person_request import JailedCall
from whet.approval.policy import PolicyGrant
from whet.approval.risk import RiskScope
from whet.approval.shell_risk import analyse
from whet.contract.events import Notice
from whet.contract.protocols import Answer, GrantScope, Reply
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.denial import Denial
from whet.sandbox.engine_cache import OPEN
from whet.sandbox.policy import UNCONFINED, Opening
from whet.sandbox.status import Engine, EngineStatus

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


class Holding(Confinement):
    """A confinement whose engine is said to hold or not; nothing is run in it here."""

    def __init__(self, home: Path, name: str = "bubblewrap", status: EngineStatus | None = None) -> None:
        super().__init__(ConfinementSettings("auto", home), {**os.environ, "HOME": str(home.parent)})
        line = f"no sandbox: {OPEN}"
        self._status = status or EngineStatus(name, line, Engine(name))  # type: ignore[arg-type]

    def status(self) -> EngineStatus:
        return self._status

    def command_status(self, *_place: object, **_call: object) -> EngineStatus:
        return self._status


def confined(
    tmp_path: Path, *answers: Answer | Reply | None, kept: Kept | None = None, **settings: object
) -> tuple[Bench, Holding]:
    jails = Holding(tmp_path / "home")
    return Bench(tmp_path, Someone(*answers), kept, _parts(jails), **settings), jails


def _parts(jails: Holding) -> GateParts:
    gate = JailGate(lambda: jails)
    return GateParts(jails=lambda: gate)


@pytest.fixture(autouse=True)
def person_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "other").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "command", ["make test", "rm -rf build", "python3 x.py", "git reset --hard", "$X", "sh ./x"]
)
@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_what_stays_inside_is_not_asked_about(tmp_path: Path, command: str, mode: str) -> None:
    bench, _ = confined(tmp_path, mode=mode)
    assert bench.sh(command).verdict == "allow"
    assert bench.person.asked == []


@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_a_dangerous_command_is_asked_about_if_no_rewind_restores_its_files(
    tmp_path: Path, mode: str
) -> None:
    async def never(_: Path) -> bool:
        return False

    bench, _ = confined(tmp_path, "once", mode=mode)
    bench.set_up(can_restore=never)
    for command in ("make test", "touch a", "python3 x.py"):
        assert bench.sh(command).verdict == "allow"
    assert bench.person.asked == []
    assert bench.sh("rm -rf src").verdict == "allow"
    (asked,) = bench.person.asked
    assert "files are not recorded here: /rewind can't bring back what it changes" in asked.reasons
    assert asked.grant == "" and bench.sh("git reset --hard").verdict == "deny"


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_linked_files_are_copied_for_commands_that_may_write(tmp_path: Path, case: EngineCase) -> None:
    jails = Holding(tmp_path / "home", status=case.status())
    bench = Bench(tmp_path, Someone(), None, _parts(jails))
    cached, name = tmp_path / "cache.py", bench.workspace / "six.py"
    cached.write_text("safe\n")
    os.link(cached, name)

    def sh(command: str, runs: str = "") -> str:
        assert bench.sh(command).verdict == "allow"
        jail = jails.shell_jail(bench.workspace, "s1", "c1")
        assert jail is not None
        return run(jail, runs or command, bench.workspace)[1]

    assert sh("cat six.py") == "safe\n"
    assert sh("true", "echo EVIL >> six.py; chmod 777 six.py; cat six.py").endswith("safe\n")
    assert (cached.stat().st_nlink, cached.read_text(), cached.stat().st_mode & 0o111) == (2, "safe\n", 0)
    assert sh("echo OWN >> six.py; cat six.py") == "safe\nOWN\n"
    assert (cached.stat().st_nlink, cached.read_text()) == (1, "safe\n")
    assert sh("cat six.py") == "safe\nOWN\n"
    jails.close()


def test_a_call_that_is_no_command_has_no_jail_to_open(tmp_path: Path) -> None:
    bench, jails = confined(tmp_path, mode="auto")
    assert bench.decide("write_file", path="a.py", content="x").verdict == "allow"
    assert not jails.policy(bench.workspace, "s1", "c1").may_write(tmp_path / "other/f")


@pytest.mark.parametrize("command", ["make test", "rm -rf build", "python3 x.py"])
def test_mode_deny_keeps_its_meaning(tmp_path: Path, command: str) -> None:
    bench, _ = confined(tmp_path, mode="deny")
    assert bench.sh(command).verdict == "deny"
    assert bench.sh("ls").verdict == "allow"


def test_rules_and_what_is_forbidden_stand_above_the_jail(tmp_path: Path) -> None:
    bench, _ = confined(tmp_path, deny=["terminal(make *)"], ask=["terminal(ls *)"])
    assert bench.sh("make x").verdict == "deny"
    assert bench.sh("rm -rf /").verdict == "deny"
    assert bench.person.asked == []
    assert bench.sh("ls").verdict == "deny"
    assert len(bench.person.asked) == 1


@pytest.mark.parametrize("command", ["cat .env", "git branch -D x", "git stash clear", "rm -rf .git"])
def test_what_is_lost_or_shown_for_good_is_asked_about(tmp_path: Path, command: str) -> None:
    bench, _ = confined(tmp_path)
    assert bench.sh(command).verdict == "deny"
    assert len(bench.person.asked) == 1


@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_a_denial_with_nobody_there_offers_only_what_would_permit_the_command(
    tmp_path: Path, mode: str
) -> None:
    """--yes is mode auto, in which a write outside the sandbox is asked about, too."""
    bench, _ = confined(tmp_path, None, mode=mode)
    command = f"touch {tmp_path}/other/f"
    reason = bench.sh(command).reason
    assert "write ~/other" in reason and reason.endswith("The person can permit this with an allow rule.")
    ruled, _ = confined(tmp_path, mode=mode, allow=["terminal(touch *)"])
    assert ruled.sh(command).verdict == "allow"


def test_a_denial_with_nobody_there_names_the_sandbox(tmp_path: Path) -> None:
    bench, _ = confined(tmp_path, None)
    text = "Allowed without asking: what only reads, and commands that stay in the sandbox."
    assert text in bench.sh("cat .env").reason


def test_what_needs_out_is_asked_in_words_of_what_would_be_opened(tmp_path: Path) -> None:
    bench, jails = confined(tmp_path, "once")
    assert bench.sh("echo x > ~/other/f").verdict == "allow"
    assert bench.person.asked[0].opening == "write ~/other"
    assert jails.policy(bench.workspace, "s1", "c1").may_write(tmp_path / "other/f")
    assert not jails.policy(bench.workspace, "s1", "c2").may_write(tmp_path / "other/f")
    assert not jails.policy(bench.workspace, "s2", "c1").may_write(tmp_path / "other/f")
    bench.sh("curl https://api.example.com/x")
    assert bench.person.asked[1].opening == "reach api.example.com"
    assert bench.person.asked[1].intent == "run curl in the sandbox, and to reach api.example.com"
    assert bench.person.asked[1].reasons == (
        "the sandbox lets no command reach api.example.com without a yes",
    )


@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_a_copy_under_another_name_gets_no_more_than_the_jail_has(tmp_path: Path, mode: str) -> None:
    bench, jails = confined(tmp_path, mode=mode)
    for command in ("cp /usr/bin/kubectl k", "./k delete deployment web", "make undeploy"):
        assert bench.sh(command).verdict == "allow"
        policy = jails.policy(bench.workspace, "s1", "c1")
        assert not policy.allows(Opening("reach", "cluster.example.com"))
        assert not policy.allows(Opening("read", str(tmp_path / ".kube" / "config")))
    assert bench.person.asked == []
    unheld = Bench(tmp_path, Someone(), mode="ask")
    assert unheld.sh("./k delete deployment web").verdict == "deny"
    assert len(unheld.person.asked) == 1


def test_once_is_gone_with_the_next_call_of_the_same_id(tmp_path: Path) -> None:
    bench, jails = confined(tmp_path, "once")
    bench.sh("echo x > ~/other/f")
    bench.sh("make")
    assert not jails.policy(bench.workspace, "s1", "c1").may_write(tmp_path / "other/f")


def test_an_opening_for_the_session_is_asked_once(tmp_path: Path) -> None:
    bench, jails = confined(tmp_path, "session")
    assert bench.sh("echo x > ~/other/f").verdict == "allow"
    assert bench.sh("touch ~/other/g").verdict == "allow"
    assert len(bench.person.asked) == 1
    assert jails.policy(bench.workspace, "s1", "c1").may_write(tmp_path / "other/g")


def test_an_opening_for_good_is_kept_for_the_workspace(tmp_path: Path) -> None:
    kept = Kept()
    bench, _ = confined(tmp_path, "always", kept=kept)
    bench.sh("touch ~/other/g")
    assert kept.grants == [PolicyGrant("sandbox", f"write {tmp_path}/other", str(bench.workspace))]
    again, jails = confined(tmp_path, kept=kept)
    assert again.sh("make").verdict == "allow"
    assert jails.policy(bench.workspace, "s1", "c1").may_write(tmp_path / "other/g")


def test_an_edited_command_is_let_out_only_after_its_own_question(tmp_path: Path) -> None:
    edited = Reply("once", arguments={"command": "curl https://b.example/x; touch ~/other/g"})
    bench, jails = confined(tmp_path, edited, "no", edited, "once")
    assert bench.sh("curl https://a.example/x").verdict == "deny"
    assert not jails.policy(bench.workspace, "s1", "c1").may_write(tmp_path / "other/g")
    assert bench.sh("curl https://a.example/x").verdict == "allow"
    openings = [request.opening for request in bench.person.asked]
    assert openings == ["reach a.example", "reach b.example, write ~/other"] * 2
    policy = jails.policy(bench.workspace, "s1", "c1")
    assert policy.may_write(tmp_path / "other/g") and not policy.allows(Opening("reach", "a.example"))


@pytest.mark.fast_rows(
    "~/.ssh-ls", "~/.ssh-find-settings0", "~/.aws/credentials-wc -c-settings1", "~/.config-stat-settings0"
)
@pytest.mark.parametrize("settings", [{"mode": "auto"}, {"allow": ("terminal(python3 *)",)}])
@pytest.mark.parametrize("looks", ["ls", "stat", "find", "wc -c", "realpath"])
@pytest.mark.parametrize("place", ["~/.ssh", "~/.aws/credentials", "~/.config", "~/project"])
def test_a_look_at_names_opens_no_keys_to_the_rest_of_the_command(
    tmp_path: Path, looks: str, place: str, settings: dict[str, Any]
) -> None:
    for name in (".ssh/id_rsa", ".aws/credentials", ".config/x", "project/.env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("k")
    bench, _ = confined(tmp_path, "no", **settings)
    assert bench.sh(f"{looks} {place}; python3 x.py").verdict == "deny"
    assert bench.person.asked[0].opening.startswith(f"read {place}")
    assert bench.sh(f"{looks} ~/other; python3 x.py").verdict == "allow"


def test_no_reading_gives_a_command_all_rights(tmp_path: Path) -> None:
    bench, jails = confined(tmp_path, mode="auto")
    assert bench.sh("docker build .").verdict == "deny"
    assert "outside the sandbox" in bench.person.asked[0].opening
    assert not any(scope.always for scope in bench.person.asked[0].scopes)
    assert jails.jail is not None


def test_what_runs_outside_lasts_for_one_call_whatever_else_it_wants() -> None:
    inside = (Opening("reach", "a.b"), Opening("write", "/x"))
    assert not JailedCall((), inside).leaves
    words = "let any command in the sandbox reach a.b and write /x (covers nothing else that a command does)"
    assert JailedCall((), inside).scopes == (GrantScope("sandbox", ("reach a.b", "write /x"), words=words),)
    outside = JailedCall(inside, (*inside, Opening("run", UNCONFINED)))
    assert outside.leaves and outside.needs_person and outside.scopes == ()
    assert not JailedCall(inside, ()).needs_person and JailedCall(inside, ()).scopes == ()
    assert JailedCall((), inside).needs_person and not JailedCall((), inside[:1]).needs_person
    assert JailedCall((), inside[:1], stopped=True).needs_person


def test_what_failed_at_the_wall_is_offered_at_the_next_try(tmp_path: Path) -> None:
    bench, jails = confined(tmp_path, "once")
    (tmp_path / "other/lock").touch()
    assert bench.sh("./build").verdict == "allow"

    stopped = Opening("read", str(tmp_path / "other"))
    jails.denials["c1"] = Denial("no permission", (stopped,))
    assert bench.sh("./build").verdict == "allow"
    assert bench.person.asked[0].opening == "read ~/other"
    assert jails.policy(bench.workspace, "s1", "c1").allows(stopped)


def test_with_nothing_that_holds_all_is_as_before_and_it_is_said_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), parts=_parts(Holding(tmp_path / "home", "none")))
    assert bench.sh("make").verdict == "deny"
    assert bench.sh("make").verdict == "deny"
    notices = [event.text for event in bench.events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert OPEN in notices[0]


@pytest.mark.parametrize(
    "command", ["ln -s {0} way && echo x >> way/notes.txt", "cp -a {0} here", "ln {0}/a b"]
)
def test_what_is_copied_or_linked_is_opened_for_reading_only(person_home: Path, command: str) -> None:
    """Or what follows in the same text would write through it, unasked in mode auto."""
    other = person_home / "other"
    (other / "a").write_text("x")
    bench, jails = confined(person_home, mode="auto")
    assert bench.sh(command.format(other)).verdict == "allow"
    opened = jails.policy(bench.workspace, "s1", "c1")
    assert opened.may_read(other / "a") and not opened.may_write(other / "a")


@pytest.mark.parametrize(("name", "asked"), [("bubblewrap", ""), ("landlock", "write /tmp")])
def test_tmp_by_its_name_is_asked_about_where_it_is_the_systems(
    tmp_path: Path, name: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    bench = Bench(tmp_path, Someone("no"), parts=_parts(Holding(tmp_path / "home", name)), mode="auto")
    decision = bench.sh("echo x > /tmp/no-such-file-of-ours && cat /tmp/no-such-file-of-ours")
    assert [request.opening for request in bench.person.asked] == ([asked] if asked else [])
    assert decision.verdict == ("deny" if asked else "allow")


@pytest.mark.parametrize("kind", ["write", "read", "reach"])
def test_what_the_wall_stopped_is_not_opened_unasked_in_auto(tmp_path: Path, kind: str) -> None:
    """A script that failed at the wall would else do on its second run what it could not on its first."""
    bench, jails = confined(tmp_path, mode="auto")
    assert bench.sh("sh x.sh").verdict == "allow"
    target = "example.com" if kind == "reach" else str(tmp_path / "other")
    jails.denials["c1"] = Denial("no permission", (Opening(kind, target),))  # type: ignore[arg-type]
    assert bench.sh("sh x.sh").verdict == "deny"
    assert len(bench.person.asked) == 1


NAMES_NO_HOST = (
    "openssl sha256 a.txt", "openssl rand -hex 8", "kubectl config current-context",
    "kubectl version --client", "npx --no-install tsc", "npx cowsay@latest", "gh --version",
    "curl --version", "http --help", "rsync -a src/ copy/",
)  # fmt: skip


@pytest.mark.parametrize("command", NAMES_NO_HOST)
def test_a_program_that_names_no_host_runs_inside_and_is_asked_about_once_it_wants_one(
    tmp_path: Path, command: str
) -> None:
    bench, jails = confined(tmp_path, "no")
    (bench.workspace / "a.txt").touch()
    assert bench.sh(command).verdict == "allow"
    assert bench.person.asked == []
    assert jails.policy(bench.workspace, "s1", "c1").hosts == ()
    jails.denials["c1"] = Denial("there is no network")
    assert bench.sh(command).verdict == "deny"
    assert bench.person.asked[0].opening == "reach any public host"


@pytest.mark.parametrize(
    ("command", "host"),
    [("curl example.com", "example.com"), ("telnet 1.2.3.4", "1.2.3.4"), ("kubectl delete pod x", "any")],
)
def test_a_host_that_is_named_and_a_change_elsewhere_are_asked_about_before(
    tmp_path: Path, command: str, host: str
) -> None:
    bench, _ = confined(tmp_path, "no")
    assert bench.sh(command).verdict == "deny"
    assert bench.person.asked[0].opening.startswith(f"reach {host}")


@pytest.mark.parametrize(
    ("url", "opening"),
    [("https://a.example/x", "reach a.example"), ("me@a.example:x", "run"), ("a.example:x", "run")],
)
def test_a_remote_by_ssh_is_asked_about_as_what_runs_only_outside(
    tmp_path: Path, url: str, opening: str
) -> None:
    bench, _ = confined(tmp_path, "no")
    for words in (["init", "-q"], ["remote", "add", "origin", url]):
        subprocess.run(["git", *words], cwd=bench.workspace, check=True)
    assert bench.sh("git fetch").verdict == "deny"
    assert bench.person.asked[0].opening.startswith(opening)


@pytest.mark.parametrize(
    ("command", "opening"),
    [
        ("cat /usr", Opening("run", UNCONFINED)),
        ("touch /usr/lib/absent", Opening("run", UNCONFINED)),
        ("cat /usr/bin/env", Opening("read", os.path.realpath("/usr/bin/env"))),
    ],
    ids=["above the home", "in Whet's home", "elsewhere"],
)
def test_what_holds_the_home_or_lies_in_whets_own_is_no_single_opening(
    command: str, opening: Opening
) -> None:
    scope = RiskScope("/opt", "/usr/share", "/usr/lib")
    assert analyse(command, "/opt", scope, "").needs == (opening,)
