"""What those who run a team look at: counts, liveness, readiness; and what they do: stop a worker, deploy."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import click
import httpx2
import pytest
import yaml

import whet
from tests.support import output_of, wait_until
from tests.team.processes import end, environment, served, start
from tests.team.test_workers import ask, has_ended, opened
from whet.cli.group import CommandTable
from whet.team.metrics import WorkerCounts, team_text
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "whet"


def value(text: str, name: str) -> float:
    match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert match is not None, (name, text)
    return float(match[1])


def group_names(text: str) -> list[str]:
    """The metrics' names in the order of their lines; comments name theirs, too."""
    names = [re.findall(r"^(?:# \w+ )?(\w+)", line)[0] for line in text.splitlines()]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


def test_all_lines_of_a_metric_stand_together(url):
    with opened(url) as (db, queue):
        for reason in ("answered", "failed"):
            ask(db, queue, reason)
            (taken,) = queue.take("me", 1)
            db.write_now(lambda c, taken=taken, reason=reason: queue.end(c, taken, reason, ""))
        text = db.read_now(team_text)
    names = group_names(text)
    assert "whet_turn_seconds" in names and len(names) == len(set(names))


def test_the_numbers_say_what_waits_runs_and_ended(url):
    with opened(url) as (db, queue):
        ask(db, queue, "first")
        ask(db, queue, "second")
        ask(db, queue, "third")
        (turn,) = queue.take("me", 1)
        db.write_now(lambda c: queue.end(c, turn, "answered", ""))
        queue.take("me", 1)
        text = db.read_now(team_text)
    assert value(text, "whet_queue_waiting") == 1 and value(text, "whet_queue_running") == 1
    assert value(text, 'whet_turns_ended{reason="answered"}') == 1
    assert value(text, 'whet_turn_seconds{reason="answered",quantile="0.95"}') >= 0
    assert value(text, "whet_turns_taken_over") == 0
    counts = WorkerCounts()
    counts.ended["answered"] += 2
    assert value(counts.text(), 'whet_worker_turns_total{reason="answered"}') == 2


@pytest.mark.slow
def test_a_worker_that_ends_takes_nothing_more_and_ends_what_it_has(url, tmp_path):
    gate = tmp_path / "gate"
    script = [terminal_reply(f"touch {gate}.begun; until [ -e {gate} ]; do :; done"), ScriptedReply("done")]
    with PracticeServer(script=script) as server, opened(url) as (db, queue):
        given = environment(url, tmp_path / "home", server, "practice")
        process = start(["worker", "--turns", "1", "--metrics-port", "0", "--end", "60"], given, tmp_path)
        try:
            match = re.search(r"http://[\d.:]+", output_of(process).readline())
            assert match is not None
            with httpx2.Client(base_url=match[0], timeout=60) as http:
                assert http.get("/live").status_code == http.get("/ready").status_code == 200
                turn_id, _ = ask(db, queue, "wait")
                wait_until(Path(f"{gate}.begun").exists, 60)
                text = http.get("/metrics").text
                assert value(text, "whet_worker_turns_running") == 1
                assert value(text, "whet_leases_held") == 1
                process.send_signal(signal.SIGTERM)
                wait_until(lambda: http.get("/ready").status_code == 503, 60)
                assert http.get("/live").status_code == 200
                later, _ = ask(db, queue, "later")
                gate.touch()
                assert process.wait(60) == 0
        finally:
            end(process)
        assert has_ended(queue, turn_id) and not has_ended(queue, later)


@pytest.mark.slow
def test_a_server_is_ready_while_its_database_answers(url, tmp_path, cluster):
    with PracticeServer() as server:
        given = environment(url, tmp_path / "home", server, "practice-echo")
        with served(given, tmp_path) as one:
            assert one.http.get("/ready").json() == {"status": "ok"}
            text = one.http.get("/metrics").text
            assert value(text, "whet_queue_waiting") == 0 and value(text, "whet_turns_running") == 0


def test_the_units_and_the_compose_file_name_what_there_is():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert {"database", "setup", "roles", "worker", "api", "gateway", "confirm"} == set(services)
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"]
    commands = [one["command"] for one in services.values() if "build" in one]
    units = [path.read_text() for path in (DEPLOY / "systemd").glob("*.service")]
    started = [re.findall(r"^ExecStart=\S+/whet (.*)$", unit, re.MULTILINE) for unit in units]
    assert len(units) == 4 and all(len(one) == 1 for one in started)
    for words in [*commands, *(line.split() for [line] in started)]:
        check_command([str(word) for word in words])


@pytest.mark.parametrize("key", ["", "confirm-key"])
def test_the_chart_makes_objects_that_fit_each_other(key):
    values = yaml.safe_load((CHART / "values.yaml").read_text()) | {"confirmKeySecret": key}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["apiVersion"] == "v2" and chart["name"] == "whet"
    assert chart["appVersion"] == whet.__version__
    fields = rendered(values)
    kinds = [field["kind"] for field in fields]
    assert kinds.count("Deployment") == kinds.count("Service") + 1 == (3 if key else 2)
    pods = {
        field["metadata"]["name"]: field["spec"]["template"] for field in fields if field["kind"] != "Service"
    }
    for one in fields:
        spec = one["spec"]
        if one["kind"] == "Service":
            pod = pods[one["metadata"]["name"]]
            assert spec["selector"] == pod["metadata"]["labels"]
            names = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in spec["ports"]} <= names
            continue
        if one["kind"] == "Deployment":
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        pod = spec["template"]["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            secret = {"setup": "ownerSecretName", "confirm": "confirmSecretName"}.get(
                container["name"], "secretName"
            )
            assert container["envFrom"] == [{"secretRef": {"name": values[secret]}}], (
                "each has its role's password"
            )
            check_command([str(word) for word in container["args"]])
            assert container["image"] == values["image"]
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes


@pytest.mark.soak
@pytest.mark.skipif(not (shutil.which("helm") and shutil.which("uvx")), reason="needs helm and uvx")
def test_helm_renders_the_chart_and_the_schemas_of_kubernetes_accept_it(tmp_path):
    set_key = ["--set", "confirmKeySecret=confirm-key"]
    subprocess.run(["helm", "lint", "--strict", str(CHART), *set_key], check=True)
    chart = subprocess.run(
        ["helm", "template", "team", str(CHART), *set_key], check=True, capture_output=True
    )
    path = tmp_path / "chart.yaml"
    path.write_bytes(chart.stdout)
    own = rendered(yaml.safe_load((CHART / "values.yaml").read_text()) | {"confirmKeySecret": "confirm-key"})
    helms = list(yaml.safe_load_all(chart.stdout))
    assert sorted(map(repr, helms)) == sorted(map(repr, own)), (
        "the renderer of the quick test differs from helm"
    )
    subprocess.run(["uvx", "kubernetes-validate", "--strict", str(path)], check=True)


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The chart's objects: as much of Helm's templates as this chart uses."""
    texts = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
    parts = dict(
        re.findall(r'{{- define "([\w.]+)" -}}\n(.*?)\n{{- end -}}', texts.pop("_helpers.tpl"), re.DOTALL)
    )

    def value_of(name: str) -> Any:
        found: Any = {"Values": values, "Release": {"Name": "team"}}
        for word in name.strip(".").split("."):
            found = found[word]
        return found

    def put(match: re.Match[str]) -> str:
        words, _, how = match[1].strip("- ").partition("|")
        first, *rest = words.split()
        if first == "include":
            made = fill(parts[rest[0].strip('"')])
        elif first == "toYaml":
            made = yaml.safe_dump(value_of(rest[0])).rstrip()
        elif first == "add":
            made = str(sum(int(one) if one.isdecimal() else value_of(one) for one in rest))
        else:
            made = str(value_of(first))
        if "nindent" in how:
            return "\n" + textwrap.indent(made, " " * int(how.split()[-1]))
        return json.dumps(made) if "quote" in how else made

    def fill(text: str) -> str:
        if (match := re.match(r"{{- if (\S+) }}\n(.*){{- end }}\n", text, re.DOTALL)) is not None:
            text = match[2] if value_of(match[1]) else ""
        return re.sub(r"(?:\s*(?={{-))?{{(.*?)}}", put, text)

    found = [one for text in texts.values() for one in yaml.safe_load_all(fill(text))]
    return [one for one in found if one is not None]


def check_command(words: list[str]) -> None:
    """See that a command line names commands and options that there are."""
    command: Any = CommandTable("whet")
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command = found
        words = words[1:]
    options = {option for param in command.params for option in param.opts}
    for word in words:
        assert not word.startswith("--") or word in options, (command.name, word)
