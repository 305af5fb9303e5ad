"""`whet confirm`: run the confirmation service, list waiting requests, decide.

The commands that decide talk to the service over HTTP, as any client does. `token`, `policy` and `audit`
work on its files and need no running service.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from whet import log
from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.terminal import output
from whet.terminal.output import Column, emit, emit_json, emit_rows, json_option
from whet.terminal.person import ask_yes
from whet.terminal.wording import cut
from whet.visible import escape_characters
from whet_confirm.client import BlockingClient, ConfirmClient
from whet_confirm.commands.adopt import adopt
from whet_confirm.commands.audit import audit, prune
from whet_confirm.commands.channels import try_channels
from whet_confirm.commands.files import db_option
from whet_confirm.commands.gateway import gateway
from whet_confirm.commands.grants import devices, grants
from whet_confirm.commands.install import install
from whet_confirm.commands.people import away, people
from whet_confirm.commands.policy import policy
from whet_confirm.commands.record_text import (
    describe_request,
    describe_status,
    on_one_line,
    risk_word,
    summarize,
)
from whet_confirm.commands.resume import resume
from whet_confirm.commands.setup import setup
from whet_confirm.commands.tokens import token
from whet_confirm.commands.waiting import timeout_option
from whet_confirm.hook import HOOK_AGENTS, HookAsk, interrupt_if_unread, run_hook
from whet_confirm.tickets import Failed

_url = click.option(
    "--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000."
)
_NARROW = 64
# The fields that describe an event, the most informative first.
_EVENT_FIELDS = ("action", "status", "verdict", "result", "channel")
_LISTEN_OPTIONS = (
    "host", "port", "web_port", "hosts", "allow_private_callbacks", "public_url", "channels", "exports",
    "socket",
)  # fmt: skip
_STATUSES = ("pending", "approved", "denied", "expired", "cancelled", "auto_approved")


@click.group()
def confirm() -> None:
    """Let people approve risky actions of agents.

    \b
    whet confirm setup                 answer four questions: it starts, and reaches you
    whet confirm serve                 run the service; makes the first tokens
    whet confirm list                  what waits for a decision
    whet confirm approve ID            say yes
    whet confirm deny ID -r "why not"  say no
    """


for _command in (
    token,
    policy,
    audit,
    prune,
    install,
    setup,
    away,
    people,
    try_channels,
    gateway,
    adopt,
    resume,
    grants,
    devices,
):
    confirm.add_command(_command)


@confirm.command()
@click.option(
    "--host",
    envvar="CONFIRMATION_HOST",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at.",
)
@click.option(
    "--port", envvar="CONFIRMATION_PORT", default=6000, show_default=True, help="The API; 0 takes any."
)
@click.option("--web-port", default=6080, show_default=True, help="Web page and browsers; -1 for none.")
@db_option
@click.option(
    "--rate-limit",
    envvar="CONFIRMATION_RATE_LIMIT",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Submissions of one action an hour, for each principal; approved ones don't count.",
)
@click.option("--max-pending", type=click.IntRange(0), default=0, help="Pending at once for each principal.")
@click.option(
    "--policy", "policy_path", type=click.Path(path_type=Path, dir_okay=False), help="Rules (TOML, YAML)."
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name for Host; * for any."
)
@click.option("--public-url", default="", metavar="URL", help="Where people reach the page, for links.")
@click.option(
    "--channels", type=click.Path(path_type=Path, dir_okay=False), help="Else confirm/channels.toml."
)
@click.option("--oidc", type=click.Path(path_type=Path, dir_okay=False), help="Else confirm/oidc.toml.")
@click.option("--allow-private-callbacks", is_flag=True, help="Let webhooks go to private addresses.")
@click.option("--new-key", is_flag=True, help="Sign with a new key from here on.")
@click.option(
    "--accept-state", "why", default="", metavar="WHY", help="Serve a database that was restored or altered."
)
@click.option(
    "--witness", "witnesses", multiple=True, metavar="FILE|URL", help="Where checkpoints are also kept."
)
@click.option(
    "--export",
    "exports",
    multiple=True,
    metavar="ADDRESS",
    help="Send the audit log there: otlp:, syslog+tcp:",
)
@click.option(
    "--socket", type=click.Path(path_type=Path, dir_okay=False), help="A Unix socket to listen at, too."
)
@click.option("--approver", "approvers", multiple=True, metavar="USER", help="Decides over the socket.")
@click.option("--submitter", "submitters", multiple=True, metavar="USER", help="Submits over the socket.")
@click.option("--owner", default="owner", metavar="NAME", help="Whose the first approve token is.")
@click.option("--no-first-tokens", is_flag=True, help="Make no tokens at the first start.")
@click.option(
    "--insecure-no-auth", is_flag=True, help="No tokens: anybody on this machine approves anything."
)
@click.pass_obj
def serve(home: Home, **options: Any) -> None:
    """Run the confirmation service until Ctrl-C or SIGTERM.

    \b
    whet confirm serve
    whet confirm serve --policy policy.toml --rate-limit 100
    """
    # Only this command needs the server's modules, which take longer to import than all other commands.
    from whet_confirm.commands.risk import read_risk  # noqa: PLC0415
    from whet_confirm.oidc import read_oidc  # noqa: PLC0415
    from whet_confirm.open import StartTerms, make_first_tokens, open_service, service_paths  # noqa: PLC0415
    from whet_confirm.peers import find_peers  # noqa: PLC0415
    from whet_confirm.serve import ListenSettings, check_exposure, startup_lines  # noqa: PLC0415
    from whet_confirm.serve import serve as run  # noqa: PLC0415
    from whet_confirm.service import CallerLimits  # noqa: PLC0415
    from whet_confirm.witnesses import Witnesses  # noqa: PLC0415

    witnesses = Witnesses.parse(options["witnesses"])
    settings = ListenSettings(
        is_open=options["insecure_no_auth"],
        witnesses=witnesses,
        peers=find_peers(options["approvers"], options["submitters"]),
        secrets=load_secrets(home, os.environ),
        report=lambda line: _show(escape_characters(line)),
        oidc=read_oidc(
            options["oidc"] or service_paths(home).folder / "oidc.toml", options["oidc"] is not None
        ),
        **{name: options[name] for name in _LISTEN_OPTIONS},
    )
    check_exposure(settings)
    home.ensure()
    log.start_logging(home.logs)
    where = service_paths(home, options["db_path"])
    service = open_service(
        where,
        policy=options["policy_path"],
        limits=CallerLimits(options["rate_limit"], options["max_pending"]),
        new_key=options["new_key"],
        terms=StartTerms(options["why"], witnesses.files),
    )
    service.risks.reader = read_risk
    try:
        first_tokens = (
            []
            if settings.is_open or options["no_first_tokens"]
            else make_first_tokens(service, where, options["owner"])
        )

        missing = [role for role in ("submit", "approve") if not where.token_path(role).exists()]

        def ready(ports: Sequence[int]) -> None:
            for line in startup_lines(settings, ports, first_tokens):
                _show(line, err=line.startswith("WARNING"))
            if missing and not settings.is_open and not options["no_first_tokens"]:
                files = " and ".join(f"{role}.token" for role in missing)
                _show(f"no {files}: tokens exist already; whet confirm token list")

        run_on_loop(run(service, where, settings, ready))
    except* WhetError as group:
        raise group.exceptions[0] from None
    finally:
        service.database.close()


def _show(line: str, *, err: bool = True) -> None:
    """Show the operator a line. The service outlives the terminal or pipe that it was started from."""
    with suppress(OSError):
        click.echo(line, err=err)


@confirm.command("list")
@click.option(
    "--status",
    type=click.Choice([*_STATUSES, "all"]),
    default="pending",
    show_default=True,
    help="Only these.",
)
@click.option("-n", "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many.")
@_url
@json_option
def list_(status: str, limit: int, url: str, as_json: bool) -> None:
    """List requests, newest first."""
    with BlockingClient(url, role="approve") as client:
        try:
            records = client.run(client.calls.list("" if status == "all" else status, limit))
        except Failed as error:
            raise explain_failure(error) from error
    now_s = time.time()
    columns: list[Column[dict[str, Any]]] = [
        Column("id", lambda record: record["id"]),
        Column("action", lambda record: on_one_line(record["action"]), grows=True),
        Column("from", lambda record: on_one_line(record["requester"]), rank=3),
        Column("status", lambda record: describe_status(record, now_s), rank=1),
        Column("risk", risk_word, rank=1),
        Column("what", summarize, grows=True, rank=2),
    ]
    none = f"Nothing is {status}." if status != "all" else "Nothing was ever asked."
    emit_rows(records, columns, {"requests": records}, none=none, as_json=as_json)


@confirm.command()
@click.argument("request_id", metavar="ID")
@_url
@json_option
def show(request_id: str, url: str, as_json: bool) -> None:
    """Show a whole request: what exactly would run, who asked, what became of it."""
    with BlockingClient(url, role="approve") as client:
        record = _find_record(client, request_id)
        path = f"/confirm/{record['id']}/deliveries"
        record["deliveries"] = client.run(client.calls.call("GET", path))["deliveries"]
    # A person approves by the digest that this prints, so it must hide nothing.
    emit(record, "\n".join(describe_request(record)), as_json=as_json, masks=False)


@confirm.command()
@click.argument("request_id", metavar="ID")
@click.option("-r", "--reason", default="", help="Recorded with the decision.")
@click.option(
    "--digest", default="", help="The digest that `whet confirm show` printed; then nothing is asked."
)
@click.option("--code", default="", help="Six digits of your second factor, where the policy wants them.")
@click.option(
    "--for",
    "grant",
    default="",
    metavar="KIND",
    help="Others pass, too: session, hour, host, times[:N].",
)
@_url
@json_option
def approve(request_id: str, url: str, as_json: bool, **options: str) -> None:
    """Show a request whole, and approve it if you say so.

    \b
    whet confirm approve ID                     show it, then ask
    whet confirm approve ID --digest DIGEST     approve what `whet confirm show ID` printed
    whet confirm approve ID --for hour          and others of its kind for an hour, if its rule allows that
    """
    if not options["digest"]:
        options["digest"] = _ask_approval(request_id, url)
    if options["digest"]:
        _decide(request_id, "approve", options, (url, as_json))


@confirm.command()
@click.argument("request_id", metavar="ID")
@click.option("-r", "--reason", default="", help="The agent gets to read it.")
@click.option("--digest", default="", help="Refuse if the request is not the one with this digest.")
@_url
@json_option
def deny(request_id: str, url: str, as_json: bool, **options: str) -> None:
    """Deny a request."""
    _decide(request_id, "deny", options, (url, as_json))


@confirm.command()
@_url
@json_option
def watch(url: str, as_json: bool) -> None:
    """Follow requests and decisions live; --json prints one event a line. Ends with Ctrl-C."""
    try:
        run_on_loop(_watch(url, as_json))
    except Failed as error:
        raise explain_failure(error) from error


@confirm.command()
@_url
@click.option("--match", "patterns", multiple=True, metavar="GLOB", help="Ask about these tools only.")
@click.option("--except", "free", multiple=True, metavar="GLOB", help="Tools that need no question.")
@click.option("--agent", type=click.Choice(HOOK_AGENTS), default="claude-code", help="Whose hook it is.")
@timeout_option(clamp=True)  # an agent's settings may name less, from earlier versions
@click.option("--keep", "keep_s", default=0, help="Seconds that a request waits if the agent ends.")
@click.pass_obj
def hook(home: Home, agent: str, **options: Any) -> None:
    """The hook that agents run before a tool: reads the event on stdin, asks a person, answers.

    `whet confirm adopt AGENT` writes it into an agent's settings.
    """
    # if the hook fails on invalid UTF-8, the tool runs without approval
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not options["keep_s"]:
        interrupt_if_unread(sys.stdout.fileno())
    click.echo(run_hook(text, agent, HookAsk(**options, kept=home.root / "confirm" / "kept")))


@confirm.command()
@_url
def mcp(url: str) -> None:
    """An MCP server on stdin and stdout whose tools can request and wait, and nothing else."""
    from whet_confirm.mcp import serve  # noqa: PLC0415 only this command needs it

    run_on_loop(serve(url))


def _ask_approval(request_id: str, url: str) -> str:
    """Show a request whole and ask for a yes. Returns its digest, or an empty string for a no.

    Raises ConfigError if no person can be asked here.
    """
    with BlockingClient(url, role="approve") as client:
        record = _find_record(client, request_id)
    if record["status"] != "pending":
        return record["digest"]  # the service says how it ended
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            "this would approve a request that was not shown",
            hint="whet confirm show ID, then whet confirm approve ID --digest DIGEST",
        )
    click.echo("\n".join(describe_request(record)), err=True)
    if ask_yes("Approve exactly this? yes or no"):
        return record["digest"]
    click.echo("Not decided.", err=True)
    return ""


def _decide(request_id: str, verdict: str, options: dict[str, str], url_and_format: tuple[str, bool]) -> None:
    url, as_json = url_and_format
    with BlockingClient(url, role="approve") as client:
        full_id = _find_record(client, request_id)["id"] if len(request_id) < 22 else request_id
        try:
            answer = client.run(client.calls.decide(full_id, verdict, **options))
        except Failed as error:
            raise explain_failure(error) from error
    if as_json:
        return emit_json(answer)
    if answer["status"] == "pending":
        message = on_one_line(str(answer.get("message", "counted")))
        return click.echo(f"{message[:1].upper()}{message[1:]}.")
    click.echo(f"{answer['status'].capitalize()}: {on_one_line(answer['action'])} ({answer['id']})")
    if answer.get("grant_id"):
        click.echo(
            f"Grant {answer['grant_id']} runs. Stop it: whet confirm grants --stop {answer['grant_id']}"
        )


def explain_failure(error: Failed) -> WhetError:
    """Return the error with a hint on what to do."""
    if error.status == 401:
        return ConfigError(error.message, hint="set CONFIRMATION_TOKEN to a token of role approve")
    if error.body.get("reason") == "code":
        return ConfigError(error.message, hint="whet confirm approve ID --code 123456")
    if error.body.get("reason") == "passkey":
        return ConfigError(error.message, hint="open the service's web page, where passkeys sign")
    if error.status == 404:
        return NotFound(error.message, hint="whet confirm list")
    return error


def _find_record(client: BlockingClient, request_id: str) -> dict[str, Any]:
    """Return the record with this id, or the pending record whose id begins with it."""
    try:
        if len(request_id) < 22:
            pending = client.run(client.calls.list("pending", 500))
            matching = [record for record in pending if record["id"].startswith(request_id)]
            if len(matching) != 1:
                problem = "several pending requests begin" if matching else "no pending request begins"
                raise NotFound(f"{problem} with {request_id!r}", hint="whet confirm list")
            return matching[0]
        return client.run(client.calls.status(request_id))
    except Failed as error:
        raise explain_failure(error) from error


async def _watch(url: str, as_json: bool) -> None:
    async with ConfirmClient(url, role="approve") as client:
        async for event in client.events():
            if as_json:
                click.echo(json.dumps(event, ensure_ascii=False))
            else:
                click.echo(_event_line(event))
            sys.stdout.flush()


def _event_line(event: dict[str, Any]) -> str:
    data = event["data"]
    subject = next((data[name] for name in _EVENT_FIELDS if data.get(name)), "")
    stamp = time.strftime("%H:%M:%S", time.localtime(event["at"]))
    width = output.terminal_width()
    head, source = f"{stamp}  {event['kind']:<10}", f"{event['request_id']:<22}  {event['principal']}"
    if width < _NARROW:
        return "\n".join(cut(on_one_line(line), width) for line in (f"{head} {subject}", f"  {source}"))
    return cut(on_one_line(f"{head} {source}  {subject}"), width)
