"""The schema of config.yaml: every setting with its type, its default and its effect.

`WHET_<SECTION>_<FIELD>` in the environment, or a flag, overrides a field. Secrets such as API keys are set
in the environment or `.env`, never here. `config/load.py` loads the settings and records their origins.
`config/permission_settings.py` has the sections that permit or restrict actions.
"""

from typing import Annotated, Any, Literal, get_args

import msgspec

from whet.config.permission_settings import (
    ApprovalSettings,
    ConfirmSettings,
    HooksSettings,
    LspSettings,
    McpSettings,
    SandboxSettings,
)
from whet.contract.forms import Address, Count, Seconds, Variables
from whet.contract.messages import WireFormat

ToolsetName = Literal[
    "file", "terminal", "web", "memory", "skills", "session", "delegation", "planning", "code"
]
StatusPart = Literal[
    "mode", "model", "branch", "folder", "context", "cost", "sandbox", "jobs", "plan", "learning"
]


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model answers, and how to reach it."""

    provider: str = ""
    """A known provider (openai, anthropic, openrouter, groq, deepseek, ollama, llamacpp, vllm, lmstudio,
    practice) or any name together with base_url. Empty: found at first run."""
    model: str = ""
    """The model's name as the server knows it, or one of your aliases. Empty: the provider's default."""
    aliases: dict[str, str] = {}
    """Names of your own for models: SHORT: NAME. They may be used wherever a model is named."""
    extra: dict[str, dict[str, Any]] = {}
    """More fields of each request to a model, by its name or alias: {NAME: {temperature: 0.2}}."""
    base_url: Address = ""
    """The API's root, e.g. http://localhost:11434/v1. Empty: the provider's own."""
    format: WireFormat | Literal["auto"] = "auto"
    """The wire format; auto takes the provider's."""
    api_key_env: Variables = ""
    """The variable that holds the key, or several, comma-separated, as a pool. Empty: the provider's own."""
    accounts: dict[str, dict[str, str]] = {}
    """Named accounts of each provider: {PROVIDER: {NAME: VARIABLE}}. The variable holds the account's key."""
    account: str = ""
    """The account whose key is used. Empty: the key of api_key_env, or the provider's own."""
    window_tokens: int = 0
    """The context window. 0: from the catalog, else 128,000."""
    max_output_tokens: int = 0
    """The most tokens of one answer. 0: from the catalog."""
    reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high"] = ""
    """How hard a reasoning model thinks; empty leaves it to the vendor."""
    timeout_s: Seconds = 120.0
    """Longest silence on the wire before a call counts as failed."""
    max_retries: int = 4
    """How often a failed call is tried again before its first delta."""
    patience_s: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    """How long a turn waits for a server that is down while a person watches. 0: max_retries alone counts."""
    patience_unattended_s: Annotated[float, msgspec.Meta(ge=0)] = 900.0
    """The same without a person: scripts, schedules, the gateway, the API."""


class FallbackSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model that takes over when the first one's provider is down. Empty model: none."""

    provider: str = ""
    model: str = ""
    base_url: Address = ""
    format: WireFormat | Literal["auto"] = "auto"
    api_key_env: Variables = ""


class JudgeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A second model that reads what reviews are about to keep, and can only say no. Empty model: none."""

    provider: str = ""
    model: str = ""
    base_url: Address = ""
    format: WireFormat | Literal["auto"] = "auto"
    api_key_env: Variables = ""
    answers: bool = False
    """It also marks the sentences of an answer that the turn's receipt does not support: one call a turn."""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one turn."""

    max_steps: Count = 90
    """Model calls in one turn."""
    turn_timeout_s: Seconds = 3600.0
    """Wall time of one turn, without the time a person is being asked."""
    answer_cap_chars: Annotated[int, msgspec.Meta(ge=0)] = 400_000
    """The most characters of one answer, or of its reasoning; then it is cut and the turn ends. 0: no cap.
    An answer that repeats itself is cut in any case."""
    delegate_max_steps: Count = 30
    """Model calls of a delegated task."""
    delegate_parallel: Count = 4
    """Delegated tasks at the same time."""
    time_zone: Annotated[str, msgspec.Meta(extra={"form": "zone"})] = ""
    """The zone of the times that the model reads, such as Europe/Berlin. Empty: this machine's."""
    instructions: str = ""
    """Your standing instructions; they go into every system prompt."""


class ToolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tools the model gets, and their limits."""

    toolsets: tuple[str, ...] = get_args(ToolsetName)
    """Groups of tools: file, terminal, web, memory, skills, session, delegation, planning, code."""
    disabled: tuple[str, ...] = ()
    """Single tools to leave out."""
    workspace: str = ""
    """The folder that file tools are confined to. Empty: the folder where whet was started."""
    output_cap_chars: Count = 30_000
    """The most characters of a result that the model sees; the rest is cut in the middle."""
    terminal_timeout_s: Seconds = 120.0
    """The limit of a foreground command that sets none itself."""
    web_allow_private: bool = False
    """Whether web_fetch may reach private and loopback addresses."""


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine of web_search; without one the tool does not exist."""

    provider: Literal["", "searxng", "brave", "tavily", "exa", "google"] = ""
    """searxng: an instance of your own, or one that permits you, without a key; the others need a key in
    .env."""
    base_url: Address = ""
    """Its address: required for searxng; empty: the engine's own address."""
    api_key_env: Variables = ""
    """The variable that holds its key. Empty: BRAVE_API_KEY, TAVILY_API_KEY, EXA_API_KEY or
    GOOGLE_SEARCH_API_KEY."""
    google_cx: str = ""
    """The id of Google's programmable search engine."""
    results: Count = 8
    """The most results of a search."""


class ContextSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine that decides which part of a long conversation the model sees."""

    engine: str = "compressor"
    """The context engine's name; `whet context engines` lists them."""
    summary_model: str = ""
    """The model of the same provider that writes summaries; the session's own takes over if it fails. Empty:
    the session's own."""
    compress_timeout_s: Seconds = 300.0
    """An engine's limit for one compaction or tool call; after that the built-in engine takes over."""
    hook_timeout_s: Seconds = 10.0
    """An engine's limit for every other call."""


class MemorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is remembered, and how much of it every session reads."""

    memory_chars: Count = 30_000
    """The most characters of MEMORY.md."""
    user_chars: Count = 6_000
    """The most characters of USER.md."""
    prompt_chars: Count = 2_000
    """The most characters of each of these files in the system prompt. Other notes come with the messages
    that they are about."""
    skill_index_chars: Count = 5_000
    """The most characters of the skill index in the system prompt; skills beyond that are found by search."""
    brought_along: Annotated[int, msgspec.Meta(ge=0, le=10)] = 5
    """The most notes that are added to a message because they share words with it. 0: none."""
    holdout_share: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.0
    """The chance that a session starts without one learned item or another, so that `whet memory stats` can
    say what each is worth; 0.05 is a good value. 0: never."""


class ReviewSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The review of finished turns. It turns lasting lessons into memory and skills, with evidence."""

    writes: Literal["auto", "ask", "off"] = "auto"
    """auto: lessons that pass the gate apply at once; ask: they wait in `whet review inbox`; off: no review
    runs."""
    turns: Annotated[int, msgspec.Meta(ge=0)] = 10
    """Your turns since a memory write after which a conversation is reviewed. 0: never for that reason."""
    steps: Annotated[int, msgspec.Meta(ge=0)] = 10
    """Steps with tools since a skill write after which it is reviewed. 0: never for that reason."""
    on_correction: bool = True
    """Whether a correction of yours triggers a review."""
    on_recovery: bool = True
    """Whether a failure that another attempt overcame triggers a review."""
    max_steps: Count = 16
    """Model calls of one review."""
    timeout_s: Seconds = 900.0
    """Wall time of one review."""
    share: Annotated[float, msgspec.Meta(ge=0)] = 0.08
    """The share of a day's cost that automatic reviews may take; past it they wait and fold into one, but for
    the first that a correction calls for. 0: no automatic reviews."""
    free_tokens: Annotated[int, msgspec.Meta(ge=0)] = 100_000
    """A day counts as at least so many uncached tokens, so that a short one has reviews, too."""
    daily_tokens: Annotated[int, msgspec.Meta(ge=0)] = 5_000_000
    """The most tokens of reviews per day, including those requested by hand. 0: no limit."""
    daily_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """The most that reviews may cost per day. 0: no limit."""
    worker: Literal["auto", "off"] = "auto"
    """auto: the chat runs reviews beside the conversation, a one-shot leaves them to a process of their own;
    off: only `whet worker` runs them."""
    model: str = ""
    """Another model for reviews. It gets a digest: there is no cache to share. Empty: the conversation's."""
    provider: str = ""
    """Its provider; empty: the conversation's."""
    base_url: Address = ""
    """Its API's root; empty: the provider's own."""
    format: WireFormat | Literal["auto"] = "auto"
    """Its wire format."""
    api_key_env: Variables = ""
    """The variable that holds its key; empty: the provider's own."""
    digest_tokens: Count = 24_000
    """The most tokens of the digest that another model gets."""
    probes: bool = True
    """Whether a review runs the reading commands behind a fact again, in the sandbox; the note then says
    `checked DATE`. Without a sandbox nothing is run."""


class WarmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether new sessions start with tool calls that worked before."""

    default: str = "off"
    """off; auto: the template that fits the first message, if one does; or a template's name."""
    holdout: float = 0.1
    """The share of sessions, at most 0.5, that would be started warm and are started cold, to measure the
    difference; never with --warm NAME."""


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where conversations are kept."""

    private: bool = False
    """Whether new sessions are private: never searched, exported in bulk or learned from."""
    url: Annotated[str, msgspec.Meta(extra={"form": "database"})] = ""
    """Empty: the home's own file. postgresql://...: a team's database, which several workers share."""
    lease_s: float = 20.0
    """How long a worker of a team may be silent before another takes over its turns."""


class TracesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where turns are reported as OpenTelemetry traces."""

    url: Address = ""
    """http://collector:4318/v1/traces gets names, times and token counts, no content. Empty: no traces."""


class RewindSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The recording of workspaces, so that the changes of a step to its files can be undone."""

    record: bool = True
    """Whether steps that may change files are recorded."""
    file_mb: Count = 50
    """The largest file that is recorded; larger ones are listed and left out."""
    total_mb: Count = 2_000
    """The most space that the record of one workspace takes; beyond it old records are deleted, then the
    largest files."""
    max_files: Count = 200_000
    """A workspace with more files and folders is not recorded: a home folder, say."""
    keep_days: Count = 30
    """How long a record is kept."""


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which plugins run, by the names that `whet plugins list` shows. Their code may do all that you may."""

    enabled: tuple[str, ...] = ()
    """Plugins to load, in this order."""
    disabled: tuple[str, ...] = ()
    """Plugins that stay off even if they are enabled."""
    project: bool = False
    """Whether plugins in the workspace's .whet/plugins are considered too; a downloaded project brings its
    own."""
    entries: dict[str, dict[str, Any]] = {}
    """The settings of each plugin, for `ctx.get_config`: NAME: {settings: {...}}."""


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The events at which the terminal's bell rings and plugins' notifiers are used."""

    turns_over_s: Seconds = 60.0
    """The end of a turn is reported if it took longer than this."""
    questions: bool = True
    """Whether a question that waits for you is reported."""


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How people on chat platforms are served; gateway.toml says which platforms and which people."""

    busy: Literal["steer", "queue"] = "steer"
    """The handling of a message during a turn: steer, it is read before the turn's next step; queue, it
    becomes a turn of its own afterwards."""
    stream_after_s: Annotated[float, msgspec.Meta(ge=0)] = 1.5
    """How long a turn runs before its growing answer is shown. 0: only whole answers are sent."""
    reviews: bool = False
    """Whether results of a conversation's review are reported there, without a sound."""
    flood_per_minute: Count = 20
    """The most messages that one person may send in a minute."""
    max_turns: Count = 200
    """The most turns that run at a time; further ones wait."""
    idle_after_s: Seconds = 60.0
    """How long a conversation stays in memory after its last turn."""
    file_bytes: Count = 20_000_000
    """The largest file that is taken in or sent."""
    drain_s: Seconds = 20.0
    """How long running turns have to end when the gateway is stopped; the next start continues the others."""


class VoiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who writes down the voice notes and other recordings that people send on chat platforms. Without a
    command or a server the model learns only that they can't be heard."""

    command: str = ""
    """A program that prints the words of the file that is named by {file}, or by the last argument, such as
    `whisper-cli -nt -f {file}`."""
    base_url: Address = ""
    """A server that speaks OpenAI's /audio/transcriptions, such as http://localhost:8000/v1."""
    model: str = "whisper-1"
    """The server's model."""
    api_key_env: Variables = ""
    """The variable that holds the server's key. Empty: none is sent."""
    timeout_s: Seconds = 120.0
    """How long the writing down of one recording may take."""


class EmbeddingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server to which the API passes requests for embeddings. Without one they are refused."""

    base_url: Address = ""
    """A server that speaks OpenAI's /embeddings, such as http://localhost:11434/v1."""
    model: str = ""
    """The server's model. Empty: the one that the client names."""
    api_key_env: Variables = ""
    """The variable that holds the server's key. Empty: none is sent."""
    timeout_s: Seconds = 60.0
    """How long one request may take."""


class ScheduleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How `whet cron` runs schedules, and how it handles missed times."""

    catch_up_s: Annotated[float, msgspec.Meta(ge=0)] = 43_200.0
    """A missed time is run once, if the latest missed one is no longer ago than this. 0: never."""
    worker: Literal["auto", "off"] = "auto"
    """auto: an open program (chat, editor, gateway) starts a worker for due schedules; off: only `whet
    worker` runs schedules."""


class WalletSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that model calls may cost together: turns, helpers, summaries and reviews. 0: no cap."""

    daily_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Per day, of all people."""
    session_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Per session, its helpers and reviews included."""
    person_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Per person and day."""
    schedule_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Per schedule and day."""
    daily_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens per day, of all people."""
    session_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens per session."""
    unpriced_tokens: Annotated[int, msgspec.Meta(ge=0)] = 2_000_000
    """Tokens per day of models whose price is unknown, if any cap is in USD."""
    near: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    """The share of a cap from which a notice says that it is near."""


class UiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The display of the terminal."""

    show_reasoning: bool = False
    """Whether the model's visible reasoning is printed."""
    markdown: bool = True
    """Whether answers are rendered as Markdown."""
    keys: Literal["emacs", "vi"] = "emacs"
    """How the input line is edited."""
    theme: Literal["auto", "dark", "light", "high-contrast", "16-colours", "plain"] = "auto"
    """The colours: for a dark or a light background (`auto`: as detected), of high contrast, the
    terminal's own 16, or bold and plain only."""
    status_line: tuple[StatusPart, ...] = get_args(StatusPart)
    """The parts of the line below the input, in order. Empty: no line."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of config.yaml."""

    model: ModelSettings = ModelSettings()
    fallback: FallbackSettings = FallbackSettings()
    agent: AgentSettings = AgentSettings()
    tools: ToolSettings = ToolSettings()
    search: SearchSettings = SearchSettings()
    approval: ApprovalSettings = ApprovalSettings()
    sandbox: SandboxSettings = SandboxSettings()
    confirm: ConfirmSettings = ConfirmSettings()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    review: ReviewSettings = ReviewSettings()
    judge: JudgeSettings = JudgeSettings()
    store: StoreSettings = StoreSettings()
    traces: TracesSettings = TracesSettings()
    warm: WarmSettings = WarmSettings()
    rewind: RewindSettings = RewindSettings()
    plugins: PluginSettings = PluginSettings()
    mcp: McpSettings = McpSettings()
    hooks: HooksSettings = HooksSettings()
    lsp: LspSettings = LspSettings()
    notify: NotifySettings = NotifySettings()
    gateway: GatewaySettings = GatewaySettings()
    voice: VoiceSettings = VoiceSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    schedules: ScheduleSettings = ScheduleSettings()
    wallet: WalletSettings = WalletSettings()
    ui: UiSettings = UiSettings()
