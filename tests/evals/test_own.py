"""A person's own tasks on any provider: here an independent scripted server, not the practice model."""

from __future__ import annotations

import asyncio
import json
from itertools import product

import pytest
from click.testing import CliRunner

from tests.evals.server import FACT, Clerk
from tests.sandbox.engines import ENGINES
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.contract.errors import ConfigError, NotFound
from whet.contract.messages import Usage
from whet.store.learned import ContextItem
from whet_lab.commands.eval_learning import learning
from whet_lab.evals.own_report import measure_uplift, summarise_arms
from whet_lab.evals.own_run import TaskOutcome
from whet_lab.evals.own_tasks import OwnTask, read_tasks
from whet_lab.evals.task_folder import verify

_TASKS = f"""\
tasks:
  - name: first
    prompt: Write the code of the day into answer.txt.
    files: start
    verify: grep -q BLUE-42 answer.txt
  - name: second
    prompt: Write the code of the day into answer.txt, please.
    setup: "echo '{FACT}' > hint.txt"
    verify: grep -q BLUE-42 answer.txt
    secrets: [BLUE-42]
"""


@pytest.fixture
def tasks(tmp_path):
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "hint.txt").write_text(FACT + "\n")
    path = tmp_path / "tasks.yaml"
    path.write_text(_TASKS)
    return path


@pytest.mark.slow
def test_arms_are_run_and_compared_on_any_provider(tmp_path, tasks):
    home = Home(tmp_path / "home")
    home.ensure()
    arguments = [
        "--tasks", str(tasks), "--arms", "off,all", "--leave-one-out", "--json", "--out",
        str(tmp_path / "out"),
    ]  # fmt: skip
    with Clerk() as clerk:
        home.config.write_text(
            f"model: {{provider: house, model: clerk, base_url: '{clerk.base_url}'}}\n"
            "approval: {mode: auto}\nreview: {turns: 1}\n"
        )
        done = CliRunner().invoke(learning, arguments, obj=home, catch_exceptions=False)
        asked = len(clerk.bodies)
        again = CliRunner().invoke(learning, arguments, obj=home, catch_exceptions=False)
        assert len(clerk.bodies) == asked, "what is there is not run again"
    assert done.exit_code == again.exit_code == 0
    report = json.loads(done.stdout)
    arms = {arm["arm"]: arm for arm in report["arms"]}
    assert (arms["off"]["succeeded"], arms["all"]["succeeded"], arms["all"]["tasks"]) == (0, 3, 6)
    # Two tasks are far too few for a claim, however clear they look.
    assert arms["all"]["finding"] == "no evidence"
    assert [FACT in label for label in [item["item"]["label"] for item in report["items"]]] == [True]
    assert report["items"][0]["gain"]["estimate"] == 1.0
    # The secret of the second task stood in the first one's transcript: that is what the check is for.
    assert arms["all"]["leaks"] == 3
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| second | 0 of 3 | 3 of 3 |" in text and "What this allows to say" in text


def outcome(arm: str, repeat: int, task: str, ok: bool) -> TaskOutcome:
    used = Usage(prompt_tokens=10, input_tokens=10)
    return TaskOutcome(arm, repeat, task, ok, "answered", 1, 1, 0, used, Usage(), 1.0)


def test_a_clear_difference_on_enough_tasks_is_evidence():
    names = [f"t{n}" for n in range(8)]
    runs = product(("off", "all"), names, (1, 2, 3))
    rows = [outcome(arm, repeat, name, arm == "all") for arm, name, repeat in runs]
    off, everything = summarise_arms(rows)
    assert off.finding == "-" and everything.finding == "helps"
    assert everything.p_value is not None and everything.p_value < 0.001
    assert off.cost_per_success is None and everything.cost_per_success == 10.0
    without = [outcome("without-x", repeat, name, False) for name in names for repeat in (1, 2, 3)]
    item = ContextItem("memory", "x", "x")
    assert measure_uplift(item, [row for row in rows if row.arm == "all"], without).finding == "helps"
    assert measure_uplift(item, without, without).finding == "no evidence"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tasks: []", "has no tasks"),
        ("tasks: [{name: a, prompt: x}]", "verify"),
        ("tasks: [{name: A b, prompt: x, verify: 'true'}]", "is not a name"),
        (
            "tasks: [{name: a, prompt: x, verify: 'true'}, {name: a, prompt: x, verify: 'true'}]",
            "is there twice",
        ),
        ("tasks: [{name: a, prompt: x, verify: 'true', files: nowhere}]", "are not a folder"),
        ("tasks: [{name: a, prompt: x, verify: 'true', verfy: y}]", "verfy"),
        ("tasks: {", "verify"),
    ],
)
def test_a_mistake_in_the_tasks_file_is_named(tmp_path, text, complaint):
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_tasks(path)
    assert complaint in f"{caught.value.message} {caught.value.hint}"


def test_a_missing_tasks_file_is_named(tmp_path):
    with pytest.raises(NotFound, match=r"tasks\.yaml"):
        read_tasks(tmp_path / "tasks.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES[:1], ids=str)
def test_a_verifier_reaches_nothing_outside_its_folder(case, tmp_path):
    case.engine()
    folder, outside = tmp_path / "task", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    task = OwnTask(name="a", prompt="x", verify=f"touch here && touch {outside}/there")
    settings = SandboxSettings(mode="auto")
    content, _ = asyncio.run(verify(task, folder, settings, Home(tmp_path / "home")))
    assert not content and (folder / "here").exists() and not (outside / "there").exists()
    own = OwnTask(name="a", prompt="x", verify="test -e here")
    assert asyncio.run(verify(own, folder, settings, Home(tmp_path / "home")))[0]
