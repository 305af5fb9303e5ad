"""Tables of programs and verbs: those that are dangerous, and for tools that reach far, those that are not.

Facts only; `danger_reach` applies them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.approval.readonly import operands
from whet.approval.shell_words import Word

# Programs that are dangerous whatever they are told, and why.
ALWAYS: dict[str, str] = {
    **dict.fromkeys(
        ("sudo", "su", "doas", "pkexec", "runuser", "chroot", "nsenter", "sudoedit"), "takes other rights"
    ),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff", "init", "telinit"), "stops the machine"),
    **dict.fromkeys(("pkill", "killall", "xkill", "skill", "killall5"), "ends other programs by name"),
    **dict.fromkeys(("iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "pfctl"), "changes the firewall"),
    **dict.fromkeys(
        (
            *(
                "useradd",
                "userdel",
                "usermod",
                "groupadd",
                "groupdel",
                "groupmod",
                "passwd",
                "chpasswd",
                "visudo",
            ),
            *("adduser", "deluser", "addgroup", "delgroup", "gpasswd", "chsh", "chfn", "vipw", "dscl"),
        ),
        "changes users or groups",
    ),
    **dict.fromkeys(("at", "batch", "atd"), "schedules commands for later"),
    **dict.fromkeys(
        (
            "insmod",
            "rmmod",
            "modprobe",
            "kexec",
            "setenforce",
            "semanage",
            "update-grub",
            "grub-install",
            "setcap",
        ),
        "changes the system",
    ),
    **dict.fromkeys(
        ("chattr", "update-rc.d", "chkconfig", "nvram", "csrutil", "spctl"), "changes the system"
    ),
    **dict.fromkeys(
        ("ssh", "scp", "sftp", "mosh", "telnet", "ftp", "lftp", "tftp", "rsh", "rlogin"),
        "reaches another machine",
    ),
    **dict.fromkeys(
        ("ssh-copy-id", "rclone", "autossh", "sshpass", "ansible", "ansible-playbook"),
        "reaches another machine",
    ),
    **dict.fromkeys(("mail", "mailx", "sendmail", "mutt", "msmtp", "swaks"), "sends mail"),
    **dict.fromkeys(("dropdb", "dropuser"), "deletes a database or its user"),
    **dict.fromkeys(("twine",), "publishes a package"),
    **dict.fromkeys(("eval", "compgen"), "runs text as a command"),
    **dict.fromkeys(("osascript", "security", "xdotool", "xhost", "gdb"), "controls other programs or keys"),
    **dict.fromkeys(("ngrok", "cloudflared", "localtunnel", "lt"), "opens this machine to the network"),
}

INSTALL = "installs or removes software on the system"
PUBLISH = "publishes to others"
REMOTE = "changes things on remote machines"
# program: (verbs that are dangerous, why); a verb is the first operand, or the first two joined by a space.
VERBS: dict[str, tuple[frozenset[str], str]] = {
    **{
        name: (
            frozenset(
                [
                    "install",
                    "remove",
                    "purge",
                    "autoremove",
                    "upgrade",
                    "full-upgrade",
                    "dist-upgrade",
                    "update",
                    "reinstall",
                    "erase",
                    "downgrade",
                    "localinstall",
                    "groupinstall",
                    "swap",
                    "add",
                    "del",
                    "in",
                    "rm",
                    "tap",
                    "untap",
                    "uninstall",
                    "cask",
                    "link",
                    "unlink",
                    "refresh",
                    "revert",
                    "switch",
                ]
            ),
            INSTALL,
        )
        for name in (
            "apt",
            "apt-get",
            "aptitude",
            "yum",
            "dnf",
            "microdnf",
            "zypper",
            "apk",
            "brew",
            "snap",
            "flatpak",
            "port",
            "pkg",
            "choco",
            "winget",
            "scoop",
            "nala",
            "xbps-install",
            "emerge",
            "mas",
        )
    },
    "npm": (
        frozenset(
            [
                "publish",
                "unpublish",
                "deprecate",
                "owner",
                "access",
                "token",
                "login",
                "adduser",
                "dist-tag",
                "team",
                "profile",
                "hook",
                "star",
            ]
        ),
        PUBLISH,
    ),
    "pnpm": (frozenset(["publish", "login"]), PUBLISH),
    "yarn": (
        frozenset(("publish", "login", "npm publish", "npm login", "global add", "global remove")),
        PUBLISH,
    ),
    "bun": (frozenset(("publish",)), PUBLISH),
    "cargo": (frozenset(["publish", "yank", "owner", "login"]), PUBLISH),
    "gem": (frozenset(["push", "yank", "owner", "signin"]), PUBLISH),
    "poetry": (frozenset(("publish",)), PUBLISH),
    "uv": (frozenset(("publish", "self update")), PUBLISH),
    "flit": (frozenset(("publish",)), PUBLISH),
    "hatch": (frozenset(("publish",)), PUBLISH),
    "pdm": (frozenset(("publish",)), PUBLISH),
    "mvn": (frozenset(("deploy", "release:perform", "release:prepare")), PUBLISH),
    "gradle": (frozenset(("publish", "publishPlugins", "uploadArchives")), PUBLISH),
    "vsce": (frozenset(("publish", "unpublish")), PUBLISH),
    "lerna": (frozenset(("publish",)), PUBLISH),
    "dotnet": (frozenset(("nuget push", "nuget delete")), PUBLISH),
    "crontab": (frozenset(("-r", "-e", "-i", "-")), "changes what runs on a schedule"),
    "launchctl": (
        frozenset(
            [
                "load",
                "unload",
                "bootstrap",
                "bootout",
                "enable",
                "disable",
                "kickstart",
                "kill",
                "remove",
                "submit",
                "start",
                "stop",
                "setenv",
            ]
        ),
        "changes services",
    ),
    "service": (frozenset(), ""),
    "helm": (frozenset(["install", "upgrade", "uninstall", "delete", "rollback", "push"]), REMOTE),
    "terraform": (
        frozenset(
            (
                "apply",
                "destroy",
                "import",
                "taint",
                "untaint",
                "force-unlock",
                "state rm",
                "state mv",
                "state push",
                "workspace delete",
            )
        ),
        REMOTE,
    ),
    "pulumi": (frozenset(["up", "update", "destroy", "import", "cancel", "refresh"]), REMOTE),
    "cdk": (frozenset(["deploy", "destroy", "bootstrap"]), REMOTE),
    "vercel": (
        frozenset(
            ("", "deploy", "remove", "rm", "alias", "promote", "rollback", "--prod", "env add", "env rm")
        ),
        REMOTE,
    ),
    "netlify": (frozenset(("deploy",)), REMOTE),
    "firebase": (frozenset(("deploy", "firestore:delete", "functions:delete")), REMOTE),
    "wrangler": (frozenset(("deploy", "publish", "delete", "secret put")), REMOTE),
    "serverless": (frozenset(("deploy", "remove")), REMOTE),
    "sls": (frozenset(("deploy", "remove")), REMOTE),
    "fly": (frozenset(("deploy", "destroy", "apps destroy", "scale", "secrets set", "ssh console")), REMOTE),
    "flyctl": (
        frozenset(("deploy", "destroy", "apps destroy", "scale", "secrets set", "ssh console")),
        REMOTE,
    ),
    "heroku": (
        frozenset(("apps:destroy", "pg:reset", "config:set", "run", "ps:scale", "releases:rollback")),
        REMOTE,
    ),
    "vagrant": (frozenset(("destroy",)), "deletes virtual machines"),
    "docker-compose": (frozenset(["rm", "kill", "push"]), "removes containers or pushes images"),
    "redis-cli": (frozenset(), ""),
    "mysqladmin": (frozenset(["drop", "shutdown", "kill", "password"]), "changes a database server"),
    "conda": (frozenset(("env remove",)), "removes an environment"),
    "nix-env": (frozenset(("-i", "-e", "-u", "--install", "--uninstall")), INSTALL),
    "dpkg": (frozenset(("-i", "-r", "-P", "--install", "--remove", "--purge", "--configure")), INSTALL),
    "rpm": (
        frozenset(("-i", "-e", "-U", "-F", "-ivh", "-Uvh", "--install", "--erase", "--upgrade")),
        INSTALL,
    ),
    "hostnamectl": (frozenset(("set-hostname",)), "changes the system"),
    "timedatectl": (frozenset(("set-time", "set-timezone", "set-ntp")), "changes the system"),
    "defaults": (frozenset(["write", "delete"]), "changes the system's settings"),
    "ifconfig": (frozenset(), ""),
}
# What may stand before a cloud tool's verb: nouns, none of which is itself a verb that changes something.
_CHANGING = (
    "delete|create|update|set|remove|stop|start|reset|deploy|add|restart|purge|import|export|ssh|run|exec"
)
_NOUNS = rf"((?!{_CHANGING})\S+ ){{0,4}}"
# program: verbs that are not dangerous; everything else is.
ONLY: dict[str, tuple[re.Pattern[str], str]] = {
    "whet": (
        re.compile(
            r"version|doctor|demo|completion|practice|sessions (list|show|search|stats|export)"
            r"|config (get|path|why|list)|model (list|show)"
        ),
        "changes Whet itself, its rules or its records",
    ),
    "systemctl": (re.compile(r"status|is-\S+|list-\S+|show|cat|get-default|help"), "changes services"),
    "service": (re.compile(r"\S+ status|--status-all"), "changes services"),
    "kubectl": (
        re.compile(
            r"get(?! secret)|describe(?! secret)|logs|explain|version|top|api-\S+|cluster-info|diff"
            r"|auth can-i|wait|config (view|get-\S+|current-context)|help|completion|options"
        ),
        REMOTE,
    ),
    "oc": (re.compile(r"get(?! secret)|describe(?! secret)|logs|explain|version|whoami|status"), REMOTE),
    "aws": (
        re.compile(
            r"\S+ (describe|list|get(?!-secret|-parameter|-login|-password|-session)"
            r"|head|filter|lookup|search)-\S+|s3 ls|sts get-caller-identity|configure list"
            r"|help|\S+ help|logs tail"
        ),
        REMOTE,
    ),
    "gcloud": (
        re.compile(_NOUNS + r"(list|describe|info|help|get-\S+)( .*)?|version|info|help|config (list|get).*"),
        REMOTE,
    ),
    "gsutil": (re.compile(r"(ls|stat|du|cat|version|help)( .*)?"), REMOTE),
    "az": (re.compile(_NOUNS + r"(list|show|version|exists|help|list-\S+)( .*)?|version"), REMOTE),
    "doctl": (re.compile(_NOUNS + r"(list|get|version)( .*)?"), REMOTE),
    "tofu": (
        re.compile(r"plan|validate|fmt|init|show|output|version|graph|providers|state (list|show)"),
        REMOTE,
    ),
    "ip": (
        re.compile(
            r"((addr|address|a|link|l|route|r|neigh|n|rule|maddr|netns|tunnel)( (show|list|ls|get)( .*)?)?)?"
        ),
        "changes the network",
    ),
    "gh": (
        re.compile(
            r"(pr|issue|repo|run|release|workflow|gist|label|project|cache|ruleset|extension|ssh-key|variable)"
            r" (view|list|status|diff|checks|checkout|watch|download|clone)"
            r"|status|search \S+|auth status|browse|help|version|completion|api"
        ),
        "changes things on GitHub",
    ),
    "glab": (
        re.compile(r"(mr|issue|repo|ci|release) (view|list|status|diff|checkout|trace|clone)"),
        "changes things on GitLab",
    ),
    "hub": (re.compile(r"(pr|issue|ci-status|status|browse)( list| show)?"), "changes things on GitHub"),
}
_VALUED = {"kubectl": "nlfoc", "docker": "Hc", "aws": "", "gh": "R", "helm": "nf"}


def verb_of(name: str, words: Sequence[Word]) -> str:
    """Give the operands joined by spaces: for tools of the form `tool noun verb`."""
    return " ".join(word.text for word in operands(words, _VALUED.get(name, "")))
