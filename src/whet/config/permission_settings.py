"""The settings that permit or restrict actions: approvals, sandbox, confirmations, hooks, servers.

They are sections of config.yaml. `config/schema.py` has the other sections and the list of all.
"""

from typing import Annotated, Any, Literal

import msgspec

from whet.contract.forms import Address, Rules, Seconds, Variables

ApprovalMode = Literal["ask", "auto", "deny"]
HookEvent = Literal["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop"]


class ApprovalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What runs without a question. Rules are `tool`, or `tool(pattern)`, e.g. terminal(git push *)."""

    mode: ApprovalMode = "ask"
    """ask: a person decides on everything that changes something; auto: only on dangerous actions; deny:
    every action that would need a decision is denied."""
    allow: Rules = ()
    """What runs without a question."""
    ask: Rules = ()
    """What a person is always asked about."""
    deny: Rules = ()
    """What never runs; read(...) and write(...) protect files from every tool and command."""


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files and hosts that commands may reach, enforced by the system: shell commands, MCP servers,
    verifiers of evaluations."""

    mode: Literal["auto", "strict", "off"] = "auto"
    """auto: commands are confined if the system supports it; strict: no command runs if it does not; off:
    commands have all your rights, and only the approval gate checks them."""
    backend: Annotated[str, msgspec.Meta(extra={"form": "backend"})] = "local"
    """The place where shell commands run: local; "container IMAGE", by docker or podman; "ssh HOST" or "ssh
    HOST FOLDER", to which the workspace is copied before each command and back after it."""
    write: tuple[str, ...] = ()
    """Files and folders outside the workspace that commands may write, e.g. ~/.cargo."""
    read: tuple[str, ...] = ()
    """Files and folders that they may read besides the system, toolchains and the workspace."""
    hosts: Annotated[tuple[str, ...], msgspec.Meta(extra={"form": "host"})] = ()
    """Hosts that they may reach, through Whet's proxy: names, *.example.com, or a preset: code-hosts,
    package-indexes (those that your pip and npm are set to). Empty: no network."""
    variables: tuple[str, ...] = ()
    """Environment variables that commands get although their name or value looks like a secret's."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 16_384
    """The most memory of one process. 0: no limit."""
    processes: Annotated[int, msgspec.Meta(ge=0)] = 4096
    """The most processes and threads of a session's commands together. 0: no limit."""
    file_mb: Annotated[int, msgspec.Meta(ge=0)] = 16_384
    """The largest file that they may write. 0: no limit."""


class ConfirmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The confirmation service that decides on high-risk actions, and which actions those are."""

    url: Annotated[str, msgspec.Meta(extra={"form": "service"})] = ""
    """The service's address, e.g. http://127.0.0.1:6000 (`whet confirm serve`). Empty: no service is used."""
    token_env: Variables = "CONFIRMATION_TOKEN"
    """The variable that holds the agent's submit token; without it, the one that the first start of
    `whet confirm serve` left in this home."""
    timeout_s: Annotated[int, msgspec.Meta(ge=30)] = 300
    """How long a human has to decide; no decision by then is a denial. The service's own limit (3600) ends
    longer ones."""
    actions: Annotated[tuple[str, ...], msgspec.Meta(extra={"form": "action"})] = ()
    """Rules such as `terminal(make release *) = publish_package`; `... = none` exempts. They come before
    the defaults."""
    default_actions: bool = True
    """Whether the built-in table counts: production deploys, deleted data, publishing, key rotation,
    permission changes, remote execution, migrations, stopped services."""


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One shell hook: `command` runs at `event` with JSON on its input. `tools`: the names of the tools that
    it is for, as a regular expression; empty for all."""

    event: HookEvent
    command: str
    tools: str = ""
    timeout_s: Seconds = 60.0


class HooksSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands of yours that run around calls and turns."""

    commands: dict[str, HookSettings] = {}
    """Hooks by name: event (PreToolUse, PostToolUse, UserPromptSubmit, Stop), command, tools (names as a
    regular expression), timeout_s. Exit code 2 before an event denies it, with the error output as the
    reason."""


class McpServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One MCP server: a command that is started and connected by its pipes, or a url. In the values of `env`
    and `headers`, ${NAME} is a variable of the environment or .env."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    timeout_s: Seconds = 60.0
    start_timeout_s: Seconds | None = None
    enabled: bool = True
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    allow_http: bool = False
    confined: bool = True
    network: bool = True
    openings: tuple[str, ...] = ()


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """MCP servers whose tools the model gets."""

    servers: dict[str, McpServerSettings] = {}
    """Servers by name: command, args, env, cwd for one that is started; url, headers for one that runs
    elsewhere; timeout_s, start_timeout_s, enabled, the tools to allow or deny (names or patterns), and
    allow_http: whether headers with keys may go out unencrypted. One that is started runs in the sandbox with
    a private folder and the network; network: false for none, openings: what it may do besides, e.g.
    "write ~/notes", or the only hosts that it may reach, e.g. "reach api.example.com"; confined: false for
    all that you may."""
    search_above_tokens: Annotated[int, msgspec.Meta(ge=0)] = 3_000
    """If the servers' tools take up more of a prompt than this, the model searches for them instead of
    receiving all."""
    client_metadata_url: Address = ""
    """The https address of a document that describes this client to authorization servers, if you host one;
    servers that accept it need no registration then."""


class LanguageServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One language server: a program on PATH or a path of yours, and the files that it is for."""

    command: str = ""
    args: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    language: str = ""
    settings: dict[str, Any] = {}
    enabled: bool = True


SERVER_START_S = 20.0
"""How long a language server may take to start."""
FIRST_CHECK_S = 20.0
"""How long a server that was just started has for its first check, in seconds."""


class LspSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Language servers, which check edits and find symbols. They run in the sandbox and can only read."""

    enabled: bool = True
    """Whether the servers that a workspace or this machine has are used."""
    servers: dict[str, LanguageServerSettings] = {}
    """More servers by name: command, args, files (e.g. ["*.zig"]), language (the name for the server, empty:
    the name here), settings. python, go, rust, typescript and cpp are known; enabled: false turns one off."""
    check_s: Seconds = 8.0
    """How long an edit's result waits for the errors that the edit brought."""
    server_memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 4_096
    """The most memory that a process of a server may have. 0: no limit but the sandbox's."""
