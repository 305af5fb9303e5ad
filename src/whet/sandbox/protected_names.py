"""The files in a workspace that make a program outside run something, or that an agent reads as its settings.

One table: the names, the program that reads them, and the page of its manual that says so. `{a,b}` are
variants of one name: with and without a leading dot, json and jsonc, yaml and yml, shared and local. A row
names each file where the program looks for it, which is right below the workspace.
"""

from __future__ import annotations

from itertools import product

from whet.late import late_pattern

GIT_RUNS = ("hooks", "config", "config.worktree", "commondir")
"""Names in a repository through which its git runs programs or reads another configuration."""

_CHOICE = late_pattern(r"\{([^}]*)\}")
_TABLE: tuple[tuple[str, str, str], ...] = (
    # version control
    *((f".git/{name}", "git", "git-scm.com/docs/gitrepository-layout") for name in GIT_RUNS),
    (".hg/hgrc{,-not-shared}", "Mercurial", "mercurial-scm.org/help/topics/config"),
    (".sl/{config,hgrc}{,-not-shared}", "Sapling", "sapling-scm.com/docs/introduction/configuration"),
    (".jj/repo/config.toml", "Jujutsu", "docs.jj-vcs.dev/latest/config"),
    (".jj/workspace-config.toml", "Jujutsu", "docs.jj-vcs.dev/latest/config"),
    # editors
    (".vscode", "VS Code", "code.visualstudio.com/docs/editor/tasks"),
    (".vs", "Visual Studio", "learn.microsoft.com/visualstudio/ide/mcp-servers"),
    (".idea", "JetBrains", "jetbrains.com/help/idea/project-security.html"),
    (".fleet", "Fleet", "jetbrains.com/help/fleet/run-configurations.html"),
    (".zed", "Zed", "zed.dev/docs/tasks"),
    (".helix", "Helix", "docs.helix-editor.com/languages.html"),
    ("{.nvim.lua,.nvimrc,.vimrc,.exrc}", "Vim and Neovim", "neovim.io/doc/user/options.html"),
    (
        ".dir-locals{,-2}.el",
        "Emacs",
        "gnu.org/software/emacs/manual/html_node/emacs/Directory-Variables.html",
    ),
    (".devcontainer{,.json}", "Dev Containers", "containers.dev/implementors/spec"),
    # shells
    (".envrc", "direnv", "direnv.net/man/direnv.1.html"),
    ("{.autoenv,.autoenv.zsh}", "autoenv", "github.com/hyperupcall/autoenv"),
    (".rvmrc", "RVM", "rvm.io/workflow/projects"),
    ("{.,}mise{,.local}.toml", "mise", "mise.jdx.dev/configuration.html"),
    (".mise", "mise", "mise.jdx.dev/configuration.html"),
    ("mise/{config.toml,config.local.toml,tasks}", "mise", "mise.jdx.dev/configuration.html"),
    (".config/mise{,.toml,.local.toml}", "mise", "mise.jdx.dev/configuration.html"),
    # interpreters and debuggers that run a file of the folder that they are started in
    (".Rprofile", "R", "stat.ethz.ch/R-manual/R-devel/library/base/html/Startup.html"),
    (".octaverc", "Octave", "docs.octave.org/latest/Startup-Files.html"),
    ("{.irbrc,.pryrc}", "irb and pry", "docs.ruby-lang.org/en/master/IRB.html"),
    (".pdbrc", "pdb", "docs.python.org/3/library/pdb.html"),
    # agents
    (".mcp.json", "MCP clients", "code.claude.com/docs/en/mcp"),
    (".whet", "Whet", "docs/sandbox.md"),
    (".claude", "Claude Code", "code.claude.com/docs/en/settings"),
    (".codex", "Codex", "developers.openai.com/codex/config"),
    ("{.cursor,.cursorrules}", "Cursor", "docs.cursor.com/context/rules"),
    (".gemini", "Gemini CLI", "geminicli.com/docs/reference/configuration"),
    (".qwen", "Qwen Code", "qwenlm.github.io/qwen-code-docs"),
    (".opencode", "opencode", "opencode.ai/docs/config"),
    ("{.,}opencode.json{,c}", "opencode", "opencode.ai/docs/config"),
    ("{.crush,.crush.json,crush.json}", "Crush", "github.com/charmbracelet/crush"),
    ("{.roo,.roomodes,.rooignore}", "Roo Code", "docs.roocode.com/features/custom-modes"),
    ("{.kilocode,.kilocodemodes}", "Kilo Code", "kilo.ai/docs"),
    ("{.cline,.clinerules}", "Cline", "docs.cline.bot/features/cline-rules"),
    ("{.continue,.continuerc.json}", "Continue", "docs.continue.dev/reference"),
    (".kiro", "Kiro", "kiro.dev/docs/hooks"),
    ("{.windsurf,.windsurfrules}", "Windsurf", "docs.windsurf.com/windsurf/cascade/memories"),
    (".amazonq", "Amazon Q", "docs.aws.amazon.com/amazonq/latest/qdeveloper-ug"),
    (".junie", "Junie", "jetbrains.com/help/junie"),
    (".aider.conf.y{,a}ml", "aider", "aider.chat/docs/config/aider_conf.html"),
    (".pi", "pi", "github.com/badlogic/pi-mono"),
    (".factory", "Factory", "docs.factory.ai/cli/configuration"),
    ("{.goose,.goosehints}", "goose", "block.github.io/goose/docs"),
    (".augment", "Augment", "docs.augmentcode.com/cli/rules"),
    (".trae", "Trae", "docs.trae.ai/ide/rules"),
    (".openhands", "OpenHands", "docs.openhands.dev/openhands/usage/customization/repository"),
    ("{.agent,.agents}", "several agents", "agentskills.io/specification"),
)


def expand_choices(text: str) -> list[str]:
    """Return every text that choosing one part of each `{a,b}` makes."""
    parts = _CHOICE.split(text)
    choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


PROTECTED = tuple(dict.fromkeys(name for names, _, _ in _TABLE for name in expand_choices(names)))
"""The names, each relative to the workspace."""

_HOME_TABLE: tuple[tuple[str, str, str], ...] = (
    (".{profile,login,logout}", "shells", "gnu.org/software/bash/manual (Bash Startup Files)"),
    (
        ".bash{rc,_profile,_login,_logout,_aliases}",
        "bash",
        "gnu.org/software/bash/manual (Bash Startup Files)",
    ),
    (".z{shenv,shrc,profile,login,logout}", "zsh", "zsh.sourceforge.io/Doc/Release/Files.html"),
    (".{k,c,tc}shrc", "other shells", "man7.org/linux/man-pages/man1/ksh.1p.html"),
    (".pam_environment", "PAM", "man7.org/linux/man-pages/man8/pam_env.8.html"),
    (
        ".x{profile,initrc,session,sessionrc,serverrc}",
        "X",
        "x.org/releases/current/doc/man/man1/xinit.1.xhtml",
    ),
    (
        ".{config,local,ssh,gnupg,gitconfig,hgrc}",
        "the desktop, ssh, GnuPG, git",
        "specifications.freedesktop.org/basedir",
    ),
    (
        ".{vim,emacs.d,emacs,gdbinit,lldbinit,tmux.conf,screenrc}",
        "editors and terminals",
        "vimhelp.org/starting.txt.html",
    ),
    (".{npmrc,yarnrc,pythonrc,pdbrc,irbrc,psqlrc,sqliterc,curlrc,wgetrc,forward}", "tools", "their manuals"),
    (".{cargo,rustup,pyenv,rbenv,nvm,asdf,volta,bun,deno,ipython}", "toolchains", "their manuals"),
)
IN_HOME = tuple(dict.fromkeys(name for names, _, _ in _HOME_TABLE for name in expand_choices(names)))
"""Names in a home that a login or a program of the person reads; for a workspace that holds the home."""
