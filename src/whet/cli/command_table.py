"""The table of `whet`'s commands. Their modules are not imported here."""

from __future__ import annotations

# Name: (module:attribute, description)
COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("whet.cli.chat:chat", "Talk to the agent; -q TEXT for a single question."),
    "sessions": ("whet.cli.sessions:sessions", "List, show, search, export and delete conversations."),
    "memory": ("whet.cli.learned_items.memory:memory", "Show, edit and explain what is remembered."),
    "skills": ("whet.cli.learned_items.skills:skills", "List, read, install, check and pin skills."),
    "rewind": (
        "whet.cli.rewind:rewind",
        "Take files and conversation back to a turn; that, too, can be undone.",
    ),
    "agents": (
        "whet.cli.agents:agents",
        "See every session of this machine: running, waiting, done, failed.",
    ),
    "goal": ("whet.cli.goal:goal", "Start, list, show, stop or resume goals that must be proven."),
    "run": ("whet.cli.run:run", "Do many tasks at once, each in a session of its own."),
    "cost": ("whet.cli.cost:cost", "Show what was spent, what the day will come to, and the caps."),
    "diff": ("whet.cli.rewind:diff", "Show what a turn changed in the files, the shell included."),
    "undo": ("whet.cli.learned_items.undo:undo", "Undo a learned change; an undo can be undone too."),
    "forget": ("whet.cli.learned_items.undo:forget", "Undo everything that was learned from a session."),
    "review": ("whet.cli.review:review", "What reviews of finished turns did and cost; accept or reject."),
    "acp": ("whet.cli.acp:acp", "Serve an editor (Agent Client Protocol)."),
    "cron": ("whet.cli.cron:cron", "Have the agent work at set times."),
    "worker": ("whet.cli.worker:worker", "Run reviews and schedules, in a process of its own."),
    "config": ("whet.cli.config:config", "Read and change settings; say where a value comes from."),
    "approvals": ("whet.cli.approvals:approvals", "List what was allowed for good, and take it back."),
    "model": ("whet.cli.model:model", "Show, list and choose the model."),
    "context": ("whet.cli.context:context", "Context engines; how full a session's window is; compact it."),
    "sandbox": ("whet.cli.sandbox:sandbox", "See what commands may reach, and try one."),
    "hooks": ("whet.cli.hooks:hooks", "See the shell hooks, and accept a repository's."),
    "plugins": ("whet.cli.plugins:plugins", "List, install, enable and check plugins."),
    "mcp": ("whet.cli.mcp_servers.command:mcp", "Use MCP servers' tools; be an MCP server yourself."),
    "warm": ("whet.cli.warm:warm", "Start sessions with calls that worked before; measure whether it helps."),
    "eval": ("whet_lab.commands.evaluate:evaluate", "Measure whether what is kept helps, and at what cost."),
    "rate": ("whet.cli.rate:rate", "Say that a turn went well or badly."),
    "import": (
        "whet.cli.imports.command:importing",
        "Move in from Hermes Agent, Claude Code, Codex, Gemini CLI, opencode or pi.",
    ),
    "gateway": ("whet.cli.gateway:gateway", "Talk to the agent from Telegram, Discord, Slack or a webhook."),
    "serve": ("whet.cli.serve:serve", "Serve an OpenAI-compatible API, sessions with events, the dashboard."),
    "confirm": ("whet_confirm.commands.confirm:confirm", "Let people approve risky actions of agents."),
    "store": ("whet.cli.store:store", "Copy all conversations to a team's database, or back."),
    "team": ("whet.cli.team:team", "Share one database among several machines; show its status."),
    "doctor": ("whet.cli.doctor:doctor", "Check that everything works, and say how to fix what does not."),
    "demo": ("whet_lab.commands.demo:demo", "Watch the whole loop on the practice model; no key needed."),
    "practice": ("whet_lab.commands.practice:practice", "Run the practice model as a server."),
    "completion": ("whet.cli.completion:completion", "Print the completion script for bash, zsh or fish."),
    "version": ("whet.cli.version:version", "Print the version."),
}
DEFAULT_COMMAND = "chat"
