"""The main job of every command, in its smallest real form, as an installed program does it.

A command is either in JOBS, or in ELSEWHERE with the test that does its job. A new command without a line
fails `test_jobs.py` in the quick suite.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One call of `whet`: its words, and a pattern that its output has. Named groups of the pattern fill the
    words of later steps (`{session}`)."""

    words: str
    output: str


# A session whose turn wrote a file.
_TALK = Step("chat --yes --json -q 'create a file hello.txt with world'", r'"session_id":"(?P<session>\w+)"')

JOBS: dict[str, tuple[Step, ...]] = {
    "chat": (Step("chat -q hello", "practice model"),),
    "sessions": (_TALK, Step("sessions search world", "hello.txt"), Step("sessions show {session}", "world")),
    "agents": (_TALK, Step("agents show {session}", "hello.txt")),
    "memory": (Step("memory add 'We deploy on Tuesdays'", "Saved"), Step("memory show", "Tuesdays")),
    "rewind": (_TALK, Step("rewind {session}:1 --files", r"hello.txt \(removed\)")),
    "goal": (
        Step("goal start 'create a file a.txt with b' --verify 'test -f a.txt'", "achieved"),
        Step("goal list", "achieved"),
    ),
    "run": (Step("run --parallel tasks.yaml --jobs 1", "answered|done|ok"),),
    "cost": (_TALK, Step("cost", r"practice +1 ")),
    "diff": (_TALK, Step("diff {session}", r"\+world")),
    "undo": (
        Step("memory add 'We deploy on Tuesdays'", r"change (?P<change>\d+)"),
        Step("undo {change}", "takes back change {change}"),
    ),
    "forget": (_TALK, Step("forget --session {session}", "Nothing rests on that session")),
    "review": (_TALK, Step("review run --session {session}", "nothing to save")),
    "cron": (
        Step("cron add '0 7 * * *' --name morning --prompt 'list files'", "next "),
        Step("cron run morning", "tasks.yaml"),
    ),
    "worker": (
        Step("cron add --at +0h --name now --prompt 'list files'", "now: "),
        Step("worker --drain", "Schedule now answered"),
    ),
    "config": (Step("config set approval.mode ask", "= ask"), Step("config get approval.mode", "ask")),
    "approvals": (Step("approvals list", "Nothing was allowed for good"),),
    "model": (Step("model show", "practice"),),
    "context": (_TALK, Step("context status --session {session}", r"messages +4")),
    "sandbox": (Step("sandbox try 'echo inside'", r"inside\n\[exit 0\]"),),
    "hooks": (Step("hooks", "no hooks"),),
    "plugins": (
        Step("plugins install {examples}/plugins/word-count --yes", "installed"),
        Step("plugins enable word-count", "word-count"),
        Step("plugins doctor", "word-count"),
    ),
    "warm": (_TALK, Step("warm stats", "write_file|no tool|calls")),
    "eval": (Step("eval context --messages 40 --window 8000", "recall"),),
    "rate": (_TALK, Step("rate good {session}", "noted as good")),
    "import": (Step("import claude-code transcript.jsonl", "sessions: 1 new"), Step("sessions list", "tabs")),
    "doctor": (Step("doctor", "packages"),),
    "completion": (Step("completion bash", "COMPREPLY"),),
    "version": (Step("version", r"whet \d"),),
}
ELSEWHERE = {
    "skills": "test_a_learned_skill_is_checked",
    "acp": "test_the_extra_acp_serves_an_editor",
    "mcp": "test_a_server_is_added_and_starts_again",
    "gateway": "test_the_gateway_starts",
    "serve": "test_the_api_serves_a_request",
    "confirm": "test_the_confirmation_service_takes_a_request_that_is_approved",
    "store": "test_a_command_that_needs_an_extra_names_it",
    "team": "test_a_command_that_needs_an_extra_names_it",
    "demo": "test_the_confirmation_chapter_of_the_demo_runs",
    "practice": "test_the_practice_model_answers",
}
