"""What goes to the confirmation service, under which name, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.approval.reaching import EVERYDAY, IRREVERSIBLE
from whet.approval.actions import ActionView, describe
from whet.approval.high_risk import HighRisk, read_high_risk_table
from whet.approval.risk import RiskScope
from whet.approval.shell_risk import analyse
from whet.contract.errors import ConfigError
from whet.contract.messages import ToolCall
from whet.contract.protocols import GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec, tags_of


def test_every_name_has_patterns() -> None:
    assert all(pattern for patterns in read_high_risk_table().values() for pattern in patterns)


async def _never(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
    raise AssertionError("nothing runs here")


def action(tmp_path: Path, tool: str, **arguments: object) -> ActionView:
    made = Tool(ToolSpec(tool, "", {}), "t", frozenset({"execute"}), _never, tags=tags_of(tool))
    call = GateCall("s1", ToolCall("c1", tool, "{}"), made, arguments, str(tmp_path))
    return describe(call, RiskScope(str(tmp_path), "/home/u", "/home/u/.whet"), analyse)


def name_of(tmp_path: Path, command: str, *rules: str) -> str:
    return HighRisk(rules).name_of(action(tmp_path, "terminal", command=command))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npm publish --tag next", "publish_package"),
        ("npm publ --tag next", "publish_package"),
        ("npm unpub x", "publish_package"),
        ("helm del web", "delete_data"),
        ("docker buildx build --push .", "publish_package"),
        ("psql -c 'DROP/**/TABLE users'", "delete_data"),
        ("cd pkg && cargo publish", "publish_package"),
        ("sh -c 'npm publish'", "publish_package"),
        ("python3 -m twine upload dist/*", "publish_package"),
        ("docker push registry.local/app:1", "publish_package"),
        ("psql -c 'DROP TABLE users'", "delete_data"),
        ("echo 'drop database shop' | psql", "wipe_database"),
        ("psql shop <<'E'\ntruncate orders;\nE", "delete_data"),
        ("sqlite3 app.db 'delete from users'", "delete_data"),
        ("mysql -e \"grant all on *.* to 'x'\"", "modify_permissions"),
        ("dropdb shop", "wipe_database"),
        ("kubectl delete deployment web", "delete_data"),
        ("terraform apply -auto-approve", "deploy_production"),
        ("git push heroku main", "deploy_production"),
        ("env A=1 npx prisma migrate deploy", "migrate_database"),
        ("python3 manage.py migrate --fake", "migrate_database"),
        ("bundle exec rails db:migrate", "migrate_database"),
        ("aws iam create-access-key --user-name ci", "rotate_keys"),
        ("ssh web1 systemctl restart app", "exec_remote"),
        ("sudo systemctl stop nginx", "shutdown_service"),
        ("aws s3 rm s3://bucket --recursive", "delete_data"),
    ],
)
def test_the_default_table_names_the_action(tmp_path: Path, command: str, name: str) -> None:
    assert name_of(tmp_path, command) == name


@pytest.mark.parametrize(
    "command",
    ["ls -la", "npm install left-pad", "git push origin main", "rm -rf build", "psql -c 'select 1'",
     "kubectl get pods", "terraform plan", "echo npm publish", "grep -rn 'drop table' migrations",
     "pytest -q"],
)  # fmt: skip
def test_ordinary_work_does_not_need_the_service(tmp_path: Path, command: str) -> None:
    assert name_of(tmp_path, command) == ""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("faketime now npm publish", "publish_package"),
        ("npm --prefix pkg publish", "publish_package"),
        ("./with-lock.sh kubectl -n shop delete deployment web", "delete_data"),
        ("python3 retry.py ssh web1 reboot", "exec_remote"),
        ("echo npm publish", ""),
        ("npm --prefix pkg run publish", ""),
        ("faketime now npm test", ""),
    ],
)
def test_a_command_behind_options_or_an_unknown_program_counts_too(
    tmp_path: Path, command: str, name: str
) -> None:
    """https://github.com/anthropics/claude-code/issues/92542"""
    assert name_of(tmp_path, command) == name
    assert name_of(tmp_path, command, f"terminal({command}) = none") == ""


def test_what_is_typed_into_a_process_counts_too(tmp_path: Path) -> None:
    typed = action(tmp_path, "process", action="write", id="p1", text="cd x && npm publish\n")
    assert HighRisk(()).name_of(typed) == "publish_package"


def test_rules_come_before_the_table_and_may_exempt(tmp_path: Path) -> None:
    release = "terminal(make release *) = publish_package"
    assert name_of(tmp_path, "make release VERSION=2", release) == "publish_package"
    assert name_of(tmp_path, "make test", release) == ""
    assert name_of(tmp_path, "docker push local/app", "terminal(docker push local/*) = none") == ""
    assert name_of(tmp_path, "docker push other/app", "terminal(docker push local/*) = none") != ""
    written = action(tmp_path, "write_file", path="prod/app.yaml", content="x")
    assert HighRisk(("write_file(prod/*) = deploy_production",)).name_of(written) == "deploy_production"


def test_an_exemption_of_one_piece_does_not_hide_another(tmp_path: Path) -> None:
    both = "docker push local/app && npm publish"
    assert name_of(tmp_path, both, "terminal(docker push local/*) = none") == "publish_package"


def test_the_table_can_be_switched_off(tmp_path: Path) -> None:
    assert HighRisk((), defaults=False).name_of(action(tmp_path, "terminal", command="npm publish")) == ""


@pytest.mark.parametrize("text", ["terminal(npm *)", "terminal(x) = ", "terminal(x) = Not A Name", "(x) = a"])
def test_a_rule_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"confirm\.actions"):
        HighRisk((text,))


_FILES = {
    "schema.sql": "create table t (a int);\n-- drop table x;\ninsert into t values (1);\n",
    "drop.sql": "select 1;\ndrop table users;\n",
    "drop.js": "db.dropDatabase()",
}


def write_files(folder: Path) -> None:
    for name, text in _FILES.items():
        (folder / name).write_text(text)


def test_what_may_be_irreversible_goes_to_the_service_however_it_is_written(tmp_path: Path) -> None:
    """An unknown subcommand or a file of statements counts as the riskiest that its program does."""
    write_files(tmp_path)
    commands = IRREVERSIBLE.split("\n")[1:-1]
    unasked = [command for command in commands if not name_of(tmp_path, command)]
    assert (unasked, len(commands)) == ([], 185)
    local = [action(tmp_path, "terminal", command=command).level for command in commands]
    assert local.count("normal") <= 20, "without a service, a person is asked about most of them"


@pytest.mark.slow
def test_everyday_commands_of_the_same_programs_are_not_asked_about(tmp_path: Path) -> None:
    write_files(tmp_path)
    commands = EVERYDAY.split("\n")[1:-1]
    rows = [(command, name_of(tmp_path, command)) for command in commands]
    assert [row for row in rows if row[1]] == []
    views = [(command, action(tmp_path, "terminal", command=command)) for command in commands]
    assert [(command, view.reasons) for command, view in views if view.level not in ("safe", "normal")] == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("helm un web", "delete_data"),
        ("podman image push app", "publish_package"),
        ("redis-cli FlushAll", "wipe_database"),
        ("systemctl kill web", "shutdown_service"),
        ("django-admin migrate", "migrate_database"),
        ("mytool delete x", "delete_data"),
        ("mytool -c prod delete x", "delete_data"),
        ("mytool app delete x", "delete_data"),
        ("mytool numbers:remove x", "delete_data"),
        ("mytool sql-drop", "delete_data"),
        ("mytool --delete x", "delete_data"),
        ("mytool --action=deploy", "deploy_production"),
        ("mytool run -- helm uninstall web", "delete_data"),
        ("redis-cli del k", "delete_data"),
        ("redis-cli -n 1 unlink k", "delete_data"),
        ("redis-cli shutdown", "shutdown_service"),
        ("supervisorctl restart", ""),
        ("supervisorctl restart web", ""),
        ("sv restart web", ""),
        ("supervisorctl stop web", "shutdown_service"),
        ("docker buildx imagetools create -t a b", "delete_data"),
        ("docker config rm x", "delete_data"),
        ("docker service scale web=0", "delete_data"),
        ("npm dist-tag add x latest", "publish_package"),
        ("npm login", ""),
        ("./tool.sh stop", ""),
    ],
)
def test_an_unknown_subcommand_has_the_riskiest_name_of_its_program(
    tmp_path: Path, command: str, name: str
) -> None:
    assert name_of(tmp_path, command) == name


@pytest.mark.fast_rows("alembic upgrade head", "-- wrangler@3", "npx vercel", "bunx @scope")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (f"{runner} {command}", name)
        for command, name in (
            ("wrangler d1 delete prod", "deploy_production"),
            ("wrangler@3 d1 delete prod", "deploy_production"),
            ("vercel rm x", "deploy_production"),
            ("firebase-tools@13 projects:delete x", "delete_data"),
            ("alembic upgrade head", "migrate_database"),
            ("@scope/tool delete x", "delete_data"),
        )
        for runner in (
            "npx", "npx --yes", "npx -p x", "npx --package x --", "npm exec --", "bunx", "bunx --bun",
            "bun x", "pnpm dlx", "pnpm exec", "yarn dlx", "uvx", "uvx --from x", "uv tool run", "pipx run",
            "pipx run --spec x",
        )
    ],
)  # fmt: skip
def test_a_package_runner_counts_as_the_tool_that_it_runs(tmp_path: Path, command: str, name: str) -> None:
    assert action(tmp_path, "terminal", command=command).level == "dangerous"
    assert name_of(tmp_path, command) == name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("uv run --with x alembic upgrade head", "migrate_database"),
        ("pnpm wrangler d1 delete prod", "deploy_production"),
        ("yarn vercel rm x", "deploy_production"),
        ("python3 manage.py flush", "wipe_database"),
        ("python3 backend/manage.py migrate", "migrate_database"),
        ("ruby bin/rails db:drop", "wipe_database"),
    ],
)
def test_a_tool_without_a_verb_of_its_runner_counts(tmp_path: Path, command: str, name: str) -> None:
    assert action(tmp_path, "terminal", command=command).level == "dangerous"
    assert name_of(tmp_path, command) == name


@pytest.mark.parametrize(
    "command",
    ["npx prettier --check .", "npx -y create-vite app", "npx tsc --noEmit", "npx wrangler dev",
     "uvx ruff check .", "pipx run black .", "pnpm dlx degit a/b", "pnpm build", "yarn test",
     "bunx vitest run", "yarn prisma generate", "python3 manage.py test",
     "npx --package prisma prisma generate", "python3 tools/service"],
)  # fmt: skip
def test_ordinary_work_of_a_runner_is_not_asked_about(tmp_path: Path, command: str) -> None:
    assert action(tmp_path, "terminal", command=command).level == "normal"
    assert name_of(tmp_path, command) == ""


def test_a_folder_with_the_name_of_a_verb_hides_no_verb_of_an_unknown_program(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    assert name_of(tmp_path, "mytool deploy") == "deploy_production"
    assert name_of(tmp_path, "touch delete; mytool delete prod") == "delete_data"
    assert name_of(tmp_path, "mytool ./deploy") == ""
    assert action(tmp_path, "terminal", command="mytool ./deploy").level == "normal"
    assert name_of(tmp_path, "mytool publish deploy") == "publish_package"
    assert name_of(tmp_path, "cd sub && mytool deploy") == "deploy_production"


@pytest.mark.parametrize(
    ("command", "is_asked"),
    [
        ("kubectl apply -f x.yaml --dry-run=client", False),
        ("kubectl -n shop delete pod x --dry-run=server", False),
        ("kubectl run x --image y --dry-run=client -o yaml", False),
        ("helm upgrade web chart --dry-run", False),
        ("cargo publish --dry-run", False),
        ("npm publish --dry-run", False),
        ("kubectl apply -f x.yaml --dry-run=none", True),
        ("kubectl apply -f x.yaml --dry-run=client --dry-run=none", True),
        ("kubectl exec web -- rm x --dry-run=client", True),
        ("kubectl apply -f $X --dry-run=client", True),
        ("kubectl annotate pod x 'a=b --dry-run=client'", True),
        ("helm upgrade web chart -- --dry-run", True),
        ("npm publish --dry-run --no-dry-run", True),
        ("npm publish --dry-run false", True),
        ("npm publish; npm publish --dry-run", True),
    ],
)
def test_a_rehearsal_is_not_asked_about(tmp_path: Path, command: str, is_asked: bool) -> None:
    assert (action(tmp_path, "terminal", command=command).level == "dangerous") == is_asked
    assert bool(name_of(tmp_path, command)) == is_asked
