"""Continual Learning Bench with Whet as the system: a checkout in miniature, and a scripted model server."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from whet.config.paths import Home
from whet.contract.errors import BadInput
from whet_lab.commands.eval_bench import bench_command
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

_INTERFACE = """
from dataclasses import dataclass
@dataclass
class Response:
    action: object
@dataclass
class Observation:
    content: str
    instance_complete: bool = True
def observation_marks_instance_complete(observation):
    return observation.instance_complete
def format_task_agent_brief(brief):
    return brief
"""
_REGISTRY = """
import json
from dataclasses import dataclass
from .interface import Observation
class Guess:
    def __init__(self, value): self.value = value
    @classmethod
    def model_json_schema(cls): return {"type": "object", "properties": {"value": {"type": "integer"}}}
    @classmethod
    def model_validate_json(cls, text):
        row = json.loads(text)
        if not isinstance(row.get("value"), int): raise ValueError("value is missing")
        return cls(row["value"])
@dataclass
class Query:
    prompt: str
    instance_index: int
    response_schema: type = Guess
@dataclass
class Outcome:
    reward: float
@dataclass
class Result:
    observation: Observation
    next_query: object
    done: bool
class Task:
    def __init__(self, num_instances): self.count, self.at, self.outcomes = num_instances, 0, []
    def reset(self): return Query("Guess 0", 0)
    def get_agent_brief(self): return "Guess the number."
    def step(self, response):
        print("a task may print")
        self.outcomes.append(Outcome(float(response.action.value == 7)))
        self.at += 1
        done = self.at == self.count
        return Result(Observation("It was 7."), None if done else Query(f"Guess {self.at}", self.at), done)
    def evaluate(self):
        self.instance_outcomes = self.outcomes
        return self
def get_task_class(name):
    assert name == "guessing"
    return Task
"""


@pytest.mark.slow
def test_a_task_is_run_under_each_arm_with_gain_and_cost(tmp_path):
    source = tmp_path / "repo" / "src"
    source.mkdir(parents=True)
    (source / "__init__.py").touch()
    (source / "interface.py").write_text(_INTERFACE)
    (source / "registry.py").write_text(_REGISTRY)
    home = Home(tmp_path / "home")
    home.ensure()
    answers = [ScriptedReply('{"value": 3}'), ScriptedReply("noted")] * 2
    answers += [ScriptedReply('{"value": 3}'), ScriptedReply("noted")]
    answers += [ScriptedReply('I say {"value": 7}'), ScriptedReply("noted")]
    with PracticeServer(script=answers) as server:
        model = f"{{provider: practice, model: practice, base_url: '{server.base_url}'}}"
        home.config.write_text(f"model: {model}\n")
        arguments = ["clbench", "--repo", str(tmp_path / "repo"), "--task", "guessing", "--instances", "2"]
        more = ["--arms", "off,conversation", "--python", sys.executable, "--json"]
        done = CliRunner().invoke(bench_command, [*arguments, *more], obj=home)
    assert done.exit_code == 0, done.output
    card = json.loads(done.stdout)
    off, conversation = card["arms"]
    assert (off["arm"], off["rewards"]) == ("off", [0.0, 0.0])
    assert (conversation["arm"], conversation["rewards"]) == ("conversation", [0.0, 1.0])
    assert conversation["gain"]["estimate"] == 0.5
    assert conversation["usage"]["total_tokens"] > 0


def test_a_checkout_without_a_python_is_refused_with_what_to_name(tmp_path):
    arguments = ["clbench", "--repo", str(tmp_path), "--task", "guessing"]
    error = CliRunner().invoke(bench_command, arguments, obj=Home(tmp_path / "home")).exception
    assert isinstance(error, BadInput) and str(tmp_path / ".venv") in str(error) and "--python" in error.hint
