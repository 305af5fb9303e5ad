"""Judge commands that reach beyond the project's files: git, packages, containers, clouds, services,
databases, other machines, other processes.

Most programs have a list of verbs in tables/programs.toml: either the dangerous ones or the harmless ones.
Findings as in danger_files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whet.approval.danger_archives import ARCHIVE_RULES
from whet.approval.danger_files import FILE_RULES, Rule, judge_disk_wipe, judge_write
from whet.approval.danger_git import judge_git
from whet.approval.danger_query import judge_database
from whet.approval.possible_texts import OWN_CHILD, UNKNOWN, VariableValues, possible_texts
from whet.approval.risk import CommandSetting, Diverted, Finding, Irreversible
from whet.late import late_pattern
from whet.shell.options import before_dashes, operands
from whet.shell.programs import Kinds, ProgramFacts, ProgramWords, by_name, program
from whet.shell.words import Word, in_line, literal


def judge_program(name: str, words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge a simple command by its program's name and its words (program left out)."""
    facts = program(name)
    if facts.danger and not _asks_version(words):
        yield "dangerous", f"{name}: {facts.danger}"
    line = in_line(words)
    if facts.launch and re.search(facts.launch, line):
        reason = f"{name} is told to run another program, or where to take programs from"
        yield "dangerous", Diverted(reason)
    for pattern, why in facts.told.items():
        if re.search(pattern, line) and not _asks_version(words):
            reason = f"{name}: {why}"
            yield "dangerous", Irreversible(reason) if facts.spared and why == facts.why else reason
    if not is_rehearsal(name, words):
        yield from _judge_verbs(name, facts, words)
    if name.rstrip("0123456789.") == "python" and [word.text for word in words[:2]] == ["-m", "whet"]:
        yield from _judge_verbs("whet", program("whet"), words[2:])
    wipes = "wipes-disks" in facts.kinds or name.startswith("mkfs")
    if "database" in facts.kinds and not _asks_version(words):
        yield from judge_database(name, words, setting)
    rule = _RULES.get(name) or ARCHIVE_RULES.get(name) or (judge_disk_wipe if wipes else None)
    if rule is not None and not _asks_version(words):
        yield from rule(words, setting)


def judge_output_options(name: str, words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge the file after -o or --output, also if it is attached to its option: `-o/etc/x`, `--output=x`."""
    letters = program(name).output
    short = rf"-[a-zA-Z]*?[{letters}]" if letters else "-o"
    for word, following in zip(words, [*words[1:], literal("")], strict=False):
        match = re.match(rf"{short}(?=[/~.])|--?(?:{_WRITING_OPTIONS})=", word.text)
        if match is not None:
            yield judge_write(word.after(match.end()), setting)
        elif re.fullmatch(f"{short}|--?(?:{_WRITING_OPTIONS})", word.text) and (
            following.text if letters else re.match(r"[/~.$]", following.text)
        ):
            yield judge_write(following, setting)


def judge_operands(
    name: str, words: Sequence[Word], setting: CommandSetting, values: VariableValues
) -> Iterator[Finding]:
    """Judge the operands that a program may write, such as `convert a ~/b`: all, unless it is known to read
    them, or a rule of its own judges their roles."""
    facts = program(name)
    if name == "kill":
        yield from _judge_kill(words, values)
    has_rule = facts.output or facts.code is not None or name in FILE_RULES or name in ARCHIVE_RULES
    if has_rule or facts.kinds & _LEAVES_FILES:
        return
    is_unknown = facts == ProgramFacts() and name not in ("source", ".")
    for word in _without_workdir(words) if name in _CONTAINERS else words:
        for text in possible_texts(word, values):
            path = re.sub(r"^-[^=/~]*=", "", text)
            known_part = path.partition(UNKNOWN)[0]
            is_outside = re.match("[^-]", known_part) and (
                judge_write(literal(known_part), setting)[0] not in ("safe", "normal")
            )
            if is_outside or (is_unknown and re.search(rf"(?:^|/)\.{{0,2}}{UNKNOWN}", path)):
                yield "dangerous", f"{name} may write outside the workspace: {word.plain}"
                break


def _without_workdir(words: Sequence[Word]) -> list[Word]:
    """Return a command without its folder in the container: `-w /app`, `--workdir=/app`."""
    befores = ["", *(word.text for word in words)]
    pairs = zip(befores, words, strict=False)
    return [
        word
        for before, word in pairs
        if before not in ("-w", "--workdir") and not re.match("-w.|--workdir=", word.text)
    ]


_CONTAINERS = ProgramWords("docker podman nerdctl docker-compose")


def _judge_kill(words: Sequence[Word], values: VariableValues) -> Iterator[Finding]:
    """Judge the variables that name the processes to end, if the command sets them to others than `$!`."""
    for word in words:
        match = re.match(r"-?\$\{?(\w+)", word.text)
        if match and any(text != OWN_CHILD for text in values.get(match[1], ())):
            yield "dangerous", "kill: ends processes that it may not have started"
            return


_LEAVES_FILES = Kinds("reads names-only shell subscripts network")
_WRITING_OPTIONS = "out|keyout|output|output-document|output-dir|directory-prefix|target-directory|directory"


def is_rehearsal(name: str, words: Sequence[Word]) -> bool:
    """Return whether a program only says what it would do, such as `kubectl apply --dry-run=client`."""
    pattern = program(name).rehearsal
    is_known = bool(pattern) and not any(word.dynamic or word.glob for word in words)
    return is_known and re.search(pattern, in_line(before_dashes(words))) is not None


def _asks_version(words: Sequence[Word]) -> bool:
    return len(words) == 1 and words[0].text in ("--version", "-V", "--help", "version")


def _judge_verbs(name: str, facts: ProgramFacts, words: Sequence[Word]) -> Iterator[Finding]:
    """Judge by a program's list of verbs."""
    if (facts.verbs is None and facts.spared is None) or _asks_version(words):
        return
    verb = verb_of(name, words)
    if words and words[0].may_be_flag and words[0].dynamic:
        yield "dangerous", f"can't tell what {name} does"
    parts = verb.split(" ")
    given_words = {parts[0], " ".join(parts[:2]), *(word.text for word in words if word.text.startswith("-"))}
    is_named = given_words & set(facts.verbs or ()) or (facts.alone and not parts[0])
    is_unknown = facts.spared is not None and not re.match(rf"(?:{facts.spared})(?: |\Z)", verb)
    if is_named or is_unknown:
        reason = f"{' '.join((name, *parts[:2])).rstrip()}: {facts.why}"
        yield "dangerous", Irreversible(reason) if is_unknown else reason


def verb_of(name: str, words: Sequence[Word]) -> str:
    """Return the operands joined by spaces, for tools of the form `tool noun verb`."""
    facts = program(name)
    return " ".join(word.text for word in operands(words, facts.values, facts.valued))


def _docker(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    parts = verb_of("docker", words).split(" ")
    verb = parts[1] if parts[0] in _DOCKER_NOUNS and len(parts) > 1 else parts[0]
    texts = [word.text for word in words]
    builds = verb in ("build", "bake", "b")
    if verb == "push" or (builds and any(re.search("^--push|push=true|=registry", text) for text in texts)):
        yield "dangerous", Irreversible(f"docker {verb}: publishes to others")
    elif _CHANGES_SHARED.match(" ".join(parts)):
        yield "dangerous", Irreversible(f"docker {verb}: changes things on remote machines")
    elif verb in ("rm", "rmi", "prune", "remove", "kill") or (
        parts[0] == "system" and verb not in ("df", "info", "events")
    ):
        yield "dangerous", f"docker {verb}: deletes or stops containers, images or data"
    elif verb in ("login", "logout"):
        yield "dangerous", f"docker {verb}: publishes to others"
    elif verb == "down" and {"-v", "--volumes", "--rmi"} & set(texts):
        yield "dangerous", "docker compose down -v: deletes data"
    elif verb in ("run", "create") and any(
        _ESCAPES.search(f"{a} {b}") or _mounts_outside(f"{a} {b}", setting)
        for a, b in zip(texts, [*texts[1:], ""], strict=True)
    ):
        yield "dangerous", "gives a container the run of this machine"
    elif verb and verb not in _DOCKER_VERBS | _DOCKER_NOUNS:
        yield "dangerous", Irreversible(f"docker {verb}: changes things on remote machines")


def _mounts_outside(option: str, setting: CommandSetting) -> bool:
    """Return whether a container gets a folder of this machine outside the workspace."""
    match = re.match(r"(?:-v|--volume)(?: |=)?([^: ]+):|--mount[= ]\S*?\b(?:src|source)=([^, ]+)", option)
    source = (match[1] or match[2]) if match else ""
    return bool(re.match(r"[/~.$]", source)) and judge_write(literal(source), setting)[0] != "normal"


_DOCKER_NOUNS = ProgramWords(
    "container image volume network builder system compose buildx context manifest trust pod machine kube"
    " model service stack node secret imagetools"
)
# A swarm and a registry are shared with other machines.
_CHANGES_SHARED = late_pattern(
    r"(?:service|stack|node|secret) (?!(?:ls|list|ps|inspect|logs|services|config)\b)"
    r"|config (?:create|rm|remove)\b|(?:buildx )?imagetools (?!inspect\b)"
)
_DOCKER_VERBS = ProgramWords(
    "attach b bake build commit config connect convert cp create debug df diff disconnect down du events"
    " exec export generate health"
    " healthcheck help history images import info init inspect list load logs ls mount pause play port"
    " ps pull rename restart run save sbom scan scout search show start stats stop tag top unmount"
    " unpause up update use version wait watch"
)
_ESCAPES = late_pattern(
    r"^--privileged|^--(pid|ipc|network|net|uts|userns)[= ]host|^--cap-add|^--device[= ]|docker\.sock"
    r"|^--security-opt"
)


_LOCAL = late_pattern(r"(https?://)?(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0)(?![\w.@-])")


def downloaded_paths(name: str, words: Sequence[Word]) -> Iterator[str]:
    """Yield the files and folders that a network program writes downloads to."""
    texts = [word.text for word in words]
    is_clone = name == "git" and "clone" in texts[:3]
    if name == "git" and not is_clone:
        return
    for at, text in enumerate(texts):
        match = re.match(r"(?:--(?:output|output-document)=|-[a-zA-Z]*?[oO])(.+)", text)
        if text in _OUTPUTS and at + 1 < len(texts) and "://" not in texts[at + 1]:
            yield texts[at + 1]
        elif match is not None:
            yield match[1]
        elif name in ("wget", "curl", "git") and re.search(r"[/:]", text) and not text.startswith("-"):
            yield re.sub(r"[?#].*|\.git$", "", text.rstrip("/").rsplit("/", 1)[-1])
            if is_clone and at + 1 < len(texts):
                yield texts[at + 1]


_OUTPUTS = ProgramWords("-o -O --output --output-document -P --directory-prefix --output-dir -c -D")


def _transfer(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """curl and wget: the files they write, and whether they send data."""
    texts = [word.text for word in words]
    is_local = any(_LOCAL.match(text) for text in texts) and not any(
        re.match(r"https?://", text) and not _LOCAL.match(text) for text in texts
    )
    sends = any(re.match(r"-[a-zA-Z]*[dFT]$|-[dFT].|--(data|form|upload|json|post|body)", t) for t in texts)
    method = re.search(
        r"(?:^| )(?:-X|--request|--method)[ =]?(POST|PUT|PATCH|DELETE)\b", " ".join(texts), re.IGNORECASE
    )
    if (sends or method) and not is_local:
        yield "dangerous", "sends data to another machine"
    if any(re.match(r"-K|--config|--use-askpass|--use-server-timestamps=", t) for t in texts):
        yield "dangerous", "takes its options from a file"


_RULES: dict[str, Rule] = by_name(
    {"git": judge_git, "docker podman docker-compose": _docker, "curl wget": _transfer}
)
