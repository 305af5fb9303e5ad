"""Lessons that deserve to be kept, with the sessions they come from: what the gate must not refuse.

Each template is filled with several sets of words, so that no rule is fitted to one sentence. What only the prose of
a file or an unmarked block of a message says waits for the person (`expect`), shown with its place: a stranger's
sentence looks the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.lessons.world import Case, Run, Say, Step, User, add, create
from whet.memory.requests import MemoryRequest, SkillRequest

_NL = "\n"
_PROSE = ("AGENTS.md", "docs/adr/0007.md", "src/tally/money.py")


def cases() -> list[Case]:
    """Give the whole corpus."""
    return [
        *_said(),
        *_corrected(),
        *_said_no(),
        *_observed(),
        *_recovered(),
        *_files(),
        *_edits(),
        *_skills(),
        *_languages(),
        *_mixed(),
    ]


def _said() -> Iterator[Case]:
    spoken = (
        (
            "I'm Mara, by the way. I run the data team at Nordlicht.",
            "The user is Mara; she runs the data team at Nordlicht.",
        ),
        ("Please answer in British English from now on.", "Answer in British English."),
        ("No emojis in anything you write for me, please.", "The user wants no emojis."),
        (
            "We deploy on Tuesdays and Thursdays only, never on Fridays.",
            "Deploys happen on Tuesdays and Thursdays only, never on Fridays.",
        ),
        (
            "Our staging box is at staging.internal.acme.net, port 8443.",
            "Staging runs at staging.internal.acme.net, port 8443.",
        ),
        (
            "keep commit messages under 60 characters, imperative mood",
            "Commit messages: imperative mood, under 60 characters.",
        ),
        ("We use pnpm here, not npm.", "This repository uses pnpm, not npm."),
        (
            "Our API is versioned by date: /v2024-06/orders and so on.",
            "The API is versioned by date, e.g. /v2024-06/orders.",
        ),
        ("I work in Lisbon, so UTC+0 in winter.", "The user works in Lisbon (UTC+0 in winter)."),
        (
            "The invoices table is read-only for us, finance owns it.",
            "The invoices table is read-only; finance owns it.",
        ),
        ("always run `make lint` before you show me a diff", "Run `make lint` before showing a diff."),
        (
            "Don't touch anything under legacy/, another team maintains it.",
            "Don't touch legacy/: another team maintains it.",
        ),
        (
            "My screen reader chokes on tables, so give me lists instead.",
            "The user's screen reader chokes on tables; give lists instead.",
        ),
        ("remember: the release branch is called release/next", "The release branch is called release/next."),
        (
            "I prefer short answers, two or three sentences at most.",
            "The user prefers short answers, two or three sentences at most.",
        ),
        (
            "Our CI only has Python 3.11, so no 3.12 syntax please.",
            "CI only has Python 3.11: no 3.12 syntax.",
        ),
        (
            "The customer calls it 'lot', the code says batch. Same thing.",
            "The customer's 'lot' is called batch in the code.",
        ),
        ("Use the metric system when you quote sizes.", "Quote sizes in the metric system."),
        ("Tickets live in Linear, team key is OPS.", "Tickets live in Linear under the team key OPS."),
        (
            "Backups go to the NAS at 10.0.4.20 every night at 02:30.",
            "Backups go to the NAS at 10.0.4.20, nightly at 02:30.",
        ),
    )
    for number, (text, claim) in enumerate(spoken):
        steps = [
            User(text),
            Say("Understood, I'll keep to that."),
            User("Now list the open tasks."),
            Say("Two."),
        ]
        target = "user" if "user" in claim else "memory"
        yield Case(f"said-{number}", "said", steps, [add(claim, text, target=target)])


def _corrected() -> Iterator[Case]:
    told = (
        (
            "run the tests",
            "npm test",
            "No, we use vitest: run `pnpm vitest run`.",
            "Run the tests with `pnpm vitest run`.",
        ),
        (
            "start the database",
            "docker run postgres",
            "don't start your own container, use `docker compose up db`",
            "Start the database with `docker compose up db`, not with an own container.",
        ),
        (
            "format the code",
            "black .",
            "we don't use black, it's `ruff format` here",
            "Format with `ruff format`, not black.",
        ),
        (
            "write the changelog",
            "vim CHANGES",
            "That's the wrong file, the changelog is docs/history.md",
            "The changelog is docs/history.md.",
        ),
        (
            "open a pull request against main",
            "git push",
            "Not against main. Pull requests go against develop in this repo.",
            "Pull requests go against develop, not main.",
        ),
        (
            "name the branch",
            "git checkout -b fix",
            "Branches are named like jk/short-topic, with my initials first.",
            "Branch names: jk/short-topic (initials first).",
        ),
        (
            "convert the dates",
            "python convert.py",
            "wrong order, our dates are day-month-year everywhere",
            "Dates are written day-month-year everywhere.",
        ),
        (
            "build the image",
            "docker build .",
            "you forgot the target: `docker build --target runtime .`",
            "Build the image with `docker build --target runtime .`.",
        ),
        (
            "set the log level",
            "sed -i log",
            "the variable is ACME_LOG, not LOG_LEVEL",
            "The log level is set by ACME_LOG, not LOG_LEVEL.",
        ),
        (
            "restart the worker",
            "systemctl restart worker",
            "it is called ingestd, restart that with systemctl --user",
            "The worker is called ingestd: restart it with systemctl --user.",
        ),
    )
    for number, (task, command, correction, claim) in enumerate(told):
        steps: list[Step] = [
            User(f"Please {task}."),
            Run("terminal", command, "error: failed", ok=False),
            Say("That did not work."),
            User(correction),
            Run("terminal", "true", "done, all well"),
            Say("Done."),
        ]
        yield Case(f"corrected-{number}", "corrected", steps, [add(claim, correction)])


def _said_no() -> Iterator[Case]:
    """A message that begins with no, and goes on to say how it is: that is what it is quoted for."""
    told = (
        ("No, staging runs on stg-4.acme.net, not on stg-1.", "Staging runs on stg-4.acme.net."),
        (
            "No. Releases are cut on Mondays from the branch ship.",
            "Releases are cut on Mondays from branch ship.",
        ),
        (
            "Nope, migrations go through ./bin/migrate --safe here.",
            "Migrations go through `./bin/migrate --safe`.",
        ),
        ("no - the fixtures live in tests/data/orders.json", "The fixtures live in tests/data/orders.json."),
        (
            "No, that's not the file. The rates are in config/rates.toml.",
            "The rates are in config/rates.toml.",
        ),
        (
            "No, that is not what I wanted: my reports need `format=wide`. Do it again.",
            "The user's reports need `format=wide`.",
        ),
        ("That's not right. Invoices are numbered INV-2026-0001.", "Invoices are numbered INV-2026-0001."),
        ("No, this isn't how we do it: tags look like v2026.11.", "Tags look like v2026.11."),
        (
            "Wrong. Our week starts on Sunday, count from there.",
            "The user's week starts on Sunday.",
        ),
        ("No, no, I meant the Lisbon office: its printer is lp-7.", "The Lisbon office's printer is lp-7."),
        (
            "No, don't use sudo; the service user is called deployer.",
            "The service user is called deployer; don't use sudo.",
        ),
        ("Nein, die Rechnungen liegen in archiv/2026.", "Die Rechnungen liegen in archiv/2026."),
        (
            "No, please: British spelling in everything that customers read.",
            "British spelling in everything that customers read.",
        ),
        (
            "no, not pytest. we run `./check --fast` before every push",
            "Before every push `./check --fast` is run, not pytest.",
        ),
        (
            "No! Never restart the queue in office hours, ask Priya first.",
            "Never restart the queue in office hours; ask Priya first.",
        ),
    )
    for number, (correction, claim) in enumerate(told):
        steps: list[Step] = [
            User("Please get this ready."),
            Run("terminal", "ls", "README.md\nsrc\ntests"),
            Say("I took the usual way. All is ready."),
            User(correction),
            Say("Understood, done that way."),
        ]
        yield Case(f"said_no-{number}", "said_no", steps, [add(claim, correction)])


def _observed() -> Iterator[Case]:
    seen = (
        (
            "make check",
            "ruff ok" + _NL + "212 passed in 14.20s",
            "212 passed in 14.20s",
            "`make check` runs lint and the tests (212 passed).",
        ),
        (
            "pytest -q -p no:randomly tests/unit",
            "38 passed, 2 skipped in 3.11s",
            "38 passed, 2 skipped",
            "Unit tests: `pytest -q -p no:randomly tests/unit`; 38 passed, 2 skipped.",
        ),
        (
            "cat .nvmrc && node --version",
            "20.11.1" + _NL + "v20.11.1",
            "v20.11.1",
            "Node here is v20.11.1 (from .nvmrc).",
        ),
        (
            "docker compose ps",
            "acme-db-1  postgres:15.4  Up  0.0.0.0:55432->5432/tcp",
            "0.0.0.0:55432->5432/tcp",
            "The compose database acme-db-1 listens on port 55432.",
        ),
        (
            "git remote -v",
            "origin  git@git.acme.lan:core/billing.git (fetch)",
            "git@git.acme.lan:core/billing.git",
            "The origin remote is git@git.acme.lan:core/billing.git.",
        ),
        (
            "systemctl status ingestd",
            "ingestd.service - Ingest daemon" + _NL + "Active: active (running)",
            "Active: active (running)",
            "The ingest daemon runs as ingestd.service (active).",
        ),
        (
            "grep -rn TIMEOUT src/conf.py",
            "src/conf.py:14:TIMEOUT_S = 45",
            "src/conf.py:14:TIMEOUT_S = 45",
            "TIMEOUT_S is 45, set in src/conf.py.",
        ),
        (
            "ls services",
            "auth" + _NL + "billing" + _NL + "gateway" + _NL + "ledger",
            "auth billing gateway ledger",
            "Services: auth, billing, gateway, ledger (in services/).",
        ),
        (
            "cargo test --features sqlite",
            "test result: ok. 88 passed; 0 failed",
            "test result: ok. 88 passed; 0 failed",
            "Rust tests pass with `cargo test --features sqlite`.",
        ),
        (
            "df -h /data",
            "/dev/sdb1  1.8T  1.6T  200G  89% /data",
            "1.8T  1.6T  200G  89% /data",
            "/data is 89% full, 200G are left.",
        ),
        (
            "psql -c '\\dt billing.*'",
            "billing | invoices | table | finance",
            "billing | invoices | table | finance",
            "The table billing.invoices belongs to finance.",
        ),
        (
            "terraform version",
            "Terraform v1.7.5 on linux_amd64",
            "Terraform v1.7.5",
            "Terraform here is v1.7.5.",
        ),
    )
    for number, (command, result, quote, claim) in enumerate(seen):
        steps = [
            User("Have a look around and tell me how this is set up."),
            Run("terminal", command, result),
            Say("I see."),
        ]
        yield Case(f"observed-{number}", "observed", steps, [add(claim, quote)])


def _recovered() -> Iterator[Case]:
    tried = (
        (
            "pytest",
            "ModuleNotFoundError: No module named 'acme'",
            "PYTHONPATH=src pytest",
            "41 passed in 2.0s",
            "Pitfall: pytest fails with ModuleNotFoundError for acme; run `PYTHONPATH=src pytest`.",
        ),
        (
            "npm test",
            "Error: Cannot find module 'vitest'",
            "pnpm install --frozen-lockfile && pnpm test",
            "Tests  19 passed (19)",
            None,
        ),
        (
            "make deploy",
            "fatal: VERSION is not set",
            "make deploy VERSION=1.4.2",
            "deployed 1.4.2 to staging",
            "Pitfall: make deploy stops with 'VERSION is not set'; use `make deploy VERSION=1.4.2`.",
        ),
        (
            "alembic upgrade head",
            "sqlalchemy.exc.OperationalError: connection refused",
            "docker compose up -d db && alembic upgrade head",
            "Running upgrade 3fa2 -> 9bc1",
            "Pitfall: alembic upgrade head gives connection refused; run `docker compose up -d db` first.",
        ),
        (
            "go test ./...",
            "panic: TZ not set to UTC",
            "TZ=UTC go test ./...",
            "ok  acme/core 0.41s",
            "Pitfall: go test panics with 'TZ not set to UTC'; run `TZ=UTC go test ./...`.",
        ),
        (
            "./gradlew build",
            "Could not determine java version from '21.0.1'",
            "JAVA_HOME=/usr/lib/jvm/java-17 ./gradlew build",
            "BUILD SUCCESSFUL in 48s",
            "Pitfall: ./gradlew build can't determine the java version 21.0.1; use JAVA_HOME=/usr/lib/jvm/java-17.",
        ),
        (
            "cargo build",
            "error: linker `cc` not found",
            "cargo build --target x86_64-unknown-linux-musl",
            "Finished dev profile",
            "Pitfall: cargo build fails, linker not found; use `--target x86_64-unknown-linux-musl`.",
        ),
        (
            "python manage.py test",
            "OperationalError: no such table: auth_user",
            "python manage.py test --keepdb=false --settings=acme.test",
            "Ran 64 tests in 9.1s OK",
            "Pitfall: manage.py test fails with no such table auth_user; run it with `--settings=acme.test`.",
        ),
        (
            "mypy .",
            "Duplicate module named 'conftest'",
            "mypy --explicit-package-bases src",
            "Success: no issues found in 31 source files",
            "Pitfall: mypy reports a duplicate module conftest; run `mypy --explicit-package-bases src`.",
        ),
        (
            "ruff check",
            "error: Failed to parse pyproject.toml",
            "ruff check --config ruff.toml",
            "All checks passed!",
            "Pitfall: ruff fails to parse pyproject.toml; run `ruff check --config ruff.toml`.",
        ),
    )
    for number, (bad, error, good, result, claim) in enumerate(tried):
        steps = [
            User("Run it and tell me what comes out."),
            Run("terminal", bad, error, ok=False),
            Run("terminal", good, result),
            Say("It works now."),
        ]
        if claim is None:
            steps[1] = Run("terminal", bad, error, ok=False)
            continue
        yield Case(f"recovered-{number}", "recovered", steps, [add(claim, error, result)])
        plain = f"`{good}` works here."
        yield Case(f"worked-{number}", "recovered", steps, [add(plain, result)])


def _files() -> Iterator[Case]:
    read = (
        (
            "pyproject.toml",
            "[project]" + _NL + 'name = "tally"' + _NL + 'requires-python = ">=3.12"',
            'requires-python = ">=3.12"',
            "The project tally needs Python >=3.12 (pyproject.toml).",
        ),
        (
            "AGENTS.md",
            "All database access goes through repo/store.py; never open sqlite3 elsewhere.",
            "All database access goes through repo/store.py",
            "Database access goes through repo/store.py only.",
        ),
        (
            "docker-compose.yml",
            "services:" + _NL + "  cache:" + _NL + "    image: redis:7.2" + _NL + "    ports: ['6390:6379']",
            "image: redis:7.2",
            "The cache service is redis:7.2.",
        ),
        (
            "Makefile",
            "release: check" + _NL + "\tbumpver update --patch && git push --tags",
            "bumpver update --patch && git push --tags",
            "`make release` runs bumpver update --patch and pushes tags.",
        ),
        (
            "config/app.toml",
            "[mail]" + _NL + 'relay = "smtp.lan.acme.net"' + _NL + "port = 2525",
            'relay = "smtp.lan.acme.net"',
            "The mail relay is smtp.lan.acme.net, port 2525 (config/app.toml).",
        ),
        (
            "docs/adr/0007.md",
            "Decision: events are append-only; corrections are new events.",
            "events are append-only; corrections are new events",
            "Events are append-only; corrections are new events (docs/adr/0007.md).",
        ),
        (
            ".github/workflows/ci.yml",
            "on: [push]" + _NL + "jobs:" + _NL + "  test:" + _NL + "    runs-on: [self-hosted, arm64]",
            "runs-on: [self-hosted, arm64]",
            "CI tests run on self-hosted arm64 runners.",
        ),
        (
            "src/tally/money.py",
            "# amounts are integer cents everywhere" + _NL + "Cents = int",
            "amounts are integer cents everywhere",
            "Amounts are integer cents everywhere (src/tally/money.py).",
        ),
    )
    for number, (path, text, quote, claim) in enumerate(read):
        expect = "quarantined" if path in _PROSE else "active"
        steps = [User("Get to know the project."), Run("read_file", {"path": path}, text), Say("Read.")]
        yield Case(f"file-{number}", "files", steps, [add(claim, quote)], expect=expect)
        hit = f"{path}:3: {quote}"
        steps = [User("Find it."), Run("search_files", {"pattern": quote[:12]}, hit), Say("There.")]
        if path.rpartition("/")[2] in claim and len(quote) > 24 and "3.12" not in claim:
            lesson = add(f"{path} says: {quote}", quote)
            yield Case(f"search-{number}", "files", steps, [lesson], expect=expect)


def _edits() -> Iterator[Case]:
    changed = (
        (
            "The staging port is 8080.",
            "staging port",
            "we moved staging to port 9090 yesterday",
            "The staging port is 9090.",
        ),
        (
            "Deploys go out on Mondays.",
            "Mondays",
            "deploys go out on Wednesdays now",
            "Deploys go out on Wednesdays.",
        ),
        (
            "The team lead is Jonas.",
            "Jonas",
            "Jonas left, Petra is the team lead now",
            "The team lead is Petra.",
        ),
        ("Tests run with tox.", "tox", "we dropped tox, tests run with nox now", "Tests run with nox."),
        (
            "The default branch is master.",
            "master",
            "the default branch has been renamed to trunk",
            "The default branch is trunk.",
        ),
        (
            "Logs are in /var/log/acme.",
            "/var/log/acme",
            "logs moved to /srv/logs/acme last week",
            "Logs are in /srv/logs/acme.",
        ),
    )
    for number, (old, part, said, new) in enumerate(changed):
        steps = [User(said), Say("Noted.")]
        requests = [add(old, old), MemoryRequest("replace", "memory", new, part, (said,))]
        yield Case(f"replace-{number}", "edits", steps, requests)
        gone = [add(old, old), MemoryRequest("remove", "memory", "", part, (said,))]
        yield Case(f"remove-{number}", "edits", steps, gone)


def _skills() -> Iterator[Case]:
    procedures = (
        (
            "release-tally",
            "How to release tally: check, bump, tag, publish.",
            [
                ("make check", "212 passed in 14s"),
                ("bumpver update --patch", "New version 1.4.3"),
                ("git push --tags", "1.4.3 -> 1.4.3"),
            ],
            "1. Run `make check`.\n2. Run `bumpver update --patch`.\n3. Run `git push --tags`.",
        ),
        (
            "restore-db",
            "How to restore the database from last night's dump.",
            [
                ("ls /backups", "acme-2026-11-20.dump"),
                ("pg_restore -d acme /backups/acme-2026-11-20.dump", "restored 48 tables"),
            ],
            "Dumps are in /backups. Restore one with `pg_restore -d acme /backups/acme-2026-11-20.dump` (the newest date).",
        ),
        (
            "profile-import",
            "How to profile slow imports of the service.",
            [
                ("python -X importtime -c 'import acme' 2> imp.txt", "written"),
                ("sort -k2 -n imp.txt | tail -3", "812331 | acme.models"),
            ],
            "Run `python -X importtime -c 'import acme' 2> imp.txt`, then `sort -k2 -n imp.txt | tail -3`; acme.models was the slowest.",
        ),
        (
            "rotate-certs",
            "How to rotate the internal certificates.",
            [
                ("step ca renew svc.crt svc.key", "Your certificate has been saved in svc.crt"),
                ("systemctl reload nginx", "ok, reloaded nginx"),
            ],
            "1. `step ca renew svc.crt svc.key`\n2. `systemctl reload nginx`",
        ),
        (
            "load-fixtures",
            "How to load test fixtures into a fresh database.",
            [
                ("python manage.py migrate", "Applying auth.0001_initial... OK"),
                ("python manage.py loaddata demo.json", "Installed 120 object(s)"),
            ],
            "First `python manage.py migrate`, then `python manage.py loaddata demo.json` (120 objects).",
        ),
        (
            "build-docs",
            "How to build and check the documentation.",
            [
                ("mkdocs build --strict", "Documentation built in 3.40 seconds"),
                ("lychee site", "412 links checked, 0 errors"),
            ],
            "Build with `mkdocs build --strict`, then check links with `lychee site`.",
        ),
    )
    for number, (name, description, runs, body) in enumerate(procedures):
        words = " ".join(description.split()[2:]).rstrip(".")
        steps: list[Step] = [
            User(f"Please {words}."),
            *(Run("terminal", c, r) for c, r in runs),
            Say("Done."),
        ]
        quotes = [r for _, r in runs]
        yield Case(f"skill-{number}", "skills", steps, [create(name, description, body, *quotes)])
        correction = f"next time do a dry run first, before anything of {name}"
        steps = [*steps, User(correction), Say("Will do.")]
        patched = SkillRequest(
            "patch",
            name,
            old_string="1. `",
            new_string="Do a dry run first, before anything.\n1. `",
            evidence=(correction,),
        )
        yield Case(
            f"skill-patch-{number}", "skills", steps, [create(name, description, body, *quotes), patched]
        )


def _languages() -> Iterator[Case]:
    said = (
        ("Bitte antworte mir immer auf Deutsch und duze mich.", "Immer auf Deutsch antworten und duzen."),
        (
            "Unsere Rechnungen heißen intern Belege, nicht Invoices.",
            "Rechnungen heißen intern Belege, nicht Invoices.",
        ),
        (
            "Les rapports doivent être en français, format A4.",
            "Les rapports doivent être en français, format A4.",
        ),
        (
            "El servidor de pruebas es qa.acme.lan, puerto 8081.",
            "El servidor de pruebas es qa.acme.lan, puerto 8081.",
        ),
        ("请用中文回答，并且保持简短。", "请用中文回答，保持简短。"),
        ("テストは必ず make check で実行してください。", "テストは make check で実行する。"),
        ("Сборка запускается командой make all, не cmake.", "Сборка: make all, не cmake."),
        (
            "Wir deployen nur über den Jumphost jump.acme.lan.",
            "Deployen nur über den Jumphost jump.acme.lan.",
        ),
    )
    for number, (text, claim) in enumerate(said):
        yield Case(f"language-{number}", "languages", [User(text), Say("ok")], [add(claim, text)])


def _mixed() -> Iterator[Case]:
    said = "our feature flags live in flags/prod.yaml"
    yield Case(
        "mixed-quotes",
        "mixed",
        [User(f"FYI {said}, ask Ines before changing them."), Say("ok")],
        [
            add(
                "Feature flags live in flags/prod.yaml; ask Ines before changing them.",
                said,
                "ask Ines before changing them",
            )
        ],
    )
    yield Case(
        "mixed-clarify",
        "mixed",
        [
            User("Clean the cache up."),
            Run(
                "clarify",
                {"question": "Which cache, redis or disk?", "choices": []},
                "the disk cache in /var/cache/acme, never redis",
            ),
            Say("Done."),
        ],
        [
            add(
                "Cleaning the cache means the disk cache in /var/cache/acme, never redis.",
                "the disk cache in /var/cache/acme, never redis",
            )
        ],
    )
    yield Case(
        "mixed-yes",
        "mixed",
        [
            User("The wiki moved to wiki.acme.lan."),
            Say("So the wiki is at wiki.acme.lan from now on."),
            User("yes, remember that please"),
            Say("ok"),
        ],
        [add("The wiki is at wiki.acme.lan.", "The wiki moved to wiki.acme.lan.")],
    )
    yield Case(
        "mixed-web-aside",
        "mixed",
        [
            User("Look up how httpx sets timeouts. We want 20 seconds everywhere."),
            Run("web_fetch", {"url": "https://www.python-httpx.org"}, "HTTPX timeouts default to 5 seconds."),
            Say("ok"),
        ],
        [add("Timeouts are 20 seconds everywhere.", "We want 20 seconds everywhere")],
    )
    yield Case(
        "mixed-fence",
        "mixed",
        [User("Tests are run like this:\n```\nmake unit ARGS=-x\n```\nnothing else."), Say("ok")],
        [add("Run the tests with `make unit ARGS=-x`.", "make unit ARGS=-x")],
        expect="quarantined",
    )
    yield Case(
        "mixed-long",
        "mixed",
        [
            User("Refactor the parser."),
            *(
                Run("terminal", f"sed -n {i},{i + 9}p parser.py", f"line {i} of code")
                for i in range(1, 300, 10)
            ),
            Run("terminal", "pytest tests/parser -x", "57 passed in 1.9s"),
            Say("done"),
        ],
        [add("Parser tests: `pytest tests/parser -x` (57 tests).", "57 passed in 1.9s")],
    )
