"""Which actions go to the confirmation service, and under which name.

A table of patterns for shell commands, and rules of the same kind from the settings. The names are those
that the service never lets a rule allow (docs/confirm.md). It knows neither the service nor people; what
it is matched against is the parsed command, piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from whet.approval.actions import ActionView
from whet.approval.patterns import PatternRule, matches, parse_rule
from whet.approval.risk import Piece
from whet.contract.errors import ConfigError

# What may stand before the program that really runs.
_LAUNCHER = re.compile(
    r"(?:npx|bunx|uvx|pnpm dlx|yarn dlx|pipx run|uv run|poetry run|python3? -m) (?:-\S+ )*"
)
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_SHELL = ("terminal", "process")

# Action: patterns of commands in plain form. `P *` matches P with and without arguments.
_COMMANDS: dict[str, tuple[str, ...]] = {
    "wipe_database": (
        "dropdb *",
        "mysqladmin *drop *",
        "redis-cli *flushall*",
        "redis-cli *flushdb*",
        "heroku pg:reset *",
        "rails db:drop *",
        "rake db:drop *",
        "*rails db:reset *",
        "prisma migrate reset *",
        "*manage.py flush *",
    ),
    "delete_data": (
        "aws s3 rm *--recursive*",
        "aws s3 rb *",
        "aws * delete-*",
        "gsutil *rm -r*",
        "gcloud * delete *",
        "az * delete *",
        "kubectl delete *",
        "oc delete *",
        "terraform destroy *",
        "tofu destroy *",
        "pulumi destroy *",
        "cdk destroy *",
        "helm uninstall *",
        "helm delete *",
        "docker volume rm *",
        "docker volume prune *",
        "docker system prune *--volumes*",
        "fly apps destroy *",
        "flyctl apps destroy *",
        "heroku apps:destroy *",
        "firebase firestore:delete *",
        "doctl * delete *",
        "gh repo delete *",
        "git push *--delete *",
        "git push *--mirror*",
        "zfs destroy *",
        "lvremove *",
        "shred *",
    ),
    "deploy_production": (
        "kubectl apply *",
        "kubectl rollout *",
        "kubectl set *",
        "oc apply *",
        "helm install *",
        "helm upgrade *",
        "helm rollback *",
        "terraform apply *",
        "tofu apply *",
        "pulumi up *",
        "cdk deploy *",
        "serverless deploy *",
        "sls deploy *",
        "fly deploy *",
        "flyctl deploy *",
        "vercel *--prod*",
        "vercel promote *",
        "netlify deploy *--prod*",
        "firebase deploy *",
        "wrangler deploy *",
        "wrangler publish *",
        "gcloud app deploy *",
        "gcloud run deploy *",
        "aws deploy *",
        "eb deploy *",
        "docker stack deploy *",
        "cap production deploy*",
        "git push heroku *",
        "git push production *",
    ),
    "publish_package": (
        "npm publish *",
        "npm unpublish *",
        "pnpm publish *",
        "yarn publish *",
        "yarn npm publish *",
        "bun publish *",
        "cargo publish *",
        "cargo yank *",
        "gem push *",
        "gem yank *",
        "twine upload *",
        "poetry publish *",
        "uv publish *",
        "flit publish *",
        "hatch publish *",
        "pdm publish *",
        "mvn *deploy*",
        "gradle *publish*",
        "vsce publish *",
        "lerna publish *",
        "dotnet nuget push *",
        "docker push *",
        "podman push *",
        "gh release create *",
        "helm push *",
    ),
    "rotate_keys": (
        "aws iam *-access-key *",
        "aws secretsmanager rotate-secret *",
        "aws secretsmanager put-secret-value *",
        "gcloud iam service-accounts keys *",
        "gcloud secrets versions add *",
        "vault * rotate*",
        "vault operator rekey *",
        "gh secret set *",
        "gh secret delete *",
        "fly secrets set *",
        "flyctl secrets set *",
        "heroku config:set *",
        "wrangler secret put *",
        "npm token *",
        "gpg *--delete-secret-key*",
        "certbot revoke *",
    ),
    "modify_permissions": (
        "aws iam attach-*",
        "aws iam put-*-policy *",
        "aws iam add-user-to-group *",
        "aws s3api put-bucket-policy *",
        "aws s3api put-bucket-acl *",
        "gcloud * add-iam-policy-binding *",
        "az role assignment *",
        "kubectl create *rolebinding *",
        "npm owner *",
        "npm access *",
        "cargo owner *",
        "gem owner *",
        "gh api *collaborators*",
        "usermod *",
        "gpasswd *",
        "visudo *",
        "passwd *",
        "chmod -R *777 *",
        "chown -R *",
        "setcap *",
        "setfacl *",
    ),
    "exec_remote": (
        "ssh * *",
        "sshpass *",
        "ansible *",
        "ansible-playbook *",
        "kubectl exec *",
        "oc exec *",
        "oc rsh *",
        "aws ssm send-command *",
        "aws ssm start-session *",
        "gcloud compute ssh *",
        "fly ssh *",
        "flyctl ssh *",
        "heroku run *",
    ),
    "shutdown_service": (
        "shutdown *",
        "reboot *",
        "poweroff *",
        "halt *",
        "systemctl stop *",
        "systemctl disable *",
        "systemctl mask *",
        "service * stop",
        "kubectl scale *--replicas=0*",
        "kubectl scale *--replicas 0*",
        "heroku ps:scale *=0*",
        "fly scale count 0*",
        "aws ec2 stop-instances *",
        "aws ec2 terminate-instances *",
        "mysqladmin *shutdown*",
    ),
    "migrate_database": (
        "alembic upgrade *",
        "alembic downgrade *",
        "*manage.py migrate *",
        "rails db:migrate *",
        "rake db:migrate *",
        "*bin/rails db:migrate *",
        "prisma migrate deploy *",
        "prisma db push *",
        "*knex migrate:*",
        "sequelize db:migrate *",
        "typeorm migration:run *",
        "flyway migrate *",
        "liquibase update *",
        "dbmate up *",
        "goose up *",
        "diesel migration run *",
        "php artisan migrate *",
        "*mix ecto.migrate *",
    ),
}
# Statements that reach a database through its command line, in any case.
_CLIENTS = frozenset(
    (
        "psql",
        "mysql",
        "mariadb",
        "sqlite3",
        "sqlcmd",
        "mongosh",
        "mongo",
        "clickhouse-client",
        "cqlsh",
        "duckdb",
    )
)
_STATEMENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("wipe_database", re.compile(r"\bdrop\s+(database|schema)\b|\bdropDatabase\b", re.IGNORECASE)),
    (
        "delete_data",
        re.compile(
            r"\bdrop\s+(table|view|materialized|keyspace)\b|\btruncate\b|\bdelete\s+from\b|\bdelete(Many|One)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "modify_permissions",
        re.compile(r"\b(grant|revoke)\b|\b(alter|create|drop)\s+(user|role)\b", re.IGNORECASE),
    ),
    ("migrate_database", re.compile(r"\balter\s+table\b", re.IGNORECASE)),
)


class ActionRule(msgspec.Struct, frozen=True):
    """A rule and the name that what it matches is submitted under; an empty name exempts."""

    rule: PatternRule
    name: str


class HighRisk:
    """The rules of one configuration. Raises ConfigError, naming the rule, for one that can't be read.

    `texts` are `tool(pattern) = action`; they come before the defaults, and `tool(pattern) = none` takes a
    default away.
    """

    def __init__(self, texts: Iterable[str], *, defaults: bool = True) -> None:
        self._rules = tuple(_parse(text) for text in texts)
        self._defaults = defaults

    def name_of(self, action: ActionView) -> str:
        """Give the name under which `action` must be confirmed, "" where it need not be.

        Of an action with several pieces the first high-risk one names it.
        """
        whole = self._by_rules(action, (action.whole,))
        if whole and whole != "none":  # a wildcard may span several commands; an exemption must not
            return whole
        for piece in (*action.pieces, *action.typed):
            named = self._by_rules(action, (piece.text, *piece.also)) or self._by_default(action, piece)
            if named and named != "none":
                return named
        return ""

    def _by_rules(self, action: ActionView, texts: Sequence[str]) -> str:
        for row in self._rules:
            pattern = row.rule.pattern
            if matches(row.rule.tool, action.tool) and (
                pattern is None or any(matches(pattern, text) for text in texts)
            ):
                return row.name
        return ""

    def _by_default(self, action: ActionView, piece: Piece) -> str:
        if not self._defaults or action.tool not in _SHELL or piece.level in ("safe", "forbidden"):
            return ""
        if piece.program in _CLIENTS:
            # What a client is fed by a pipe or a here-document stands elsewhere in the command.
            texts = (action.whole, action.subject)
            return next((name for name, said in _STATEMENTS if any(map(said.search, texts))), "")
        texts = (piece.text, _LAUNCHER.sub("", piece.text, count=1))
        for name, patterns in _COMMANDS.items():
            if any(matches(pattern, text) for pattern in patterns for text in texts):
                return name
        return ""


def _parse(text: str) -> ActionRule:
    rule, equals, name = text.rpartition("=")
    name = name.strip()
    if not equals or not _NAME.fullmatch(name):
        raise ConfigError(
            f"confirm.actions: {text!r} is no rule",
            hint="write tool(pattern) = action, e.g. terminal(make release *) = publish_package",
        )
    return ActionRule(parse_rule(rule, "confirm.actions"), name)
