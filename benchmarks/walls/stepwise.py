"""Attacks of several steps, and those whose effect comes when a person's git or editor goes on.

A step may hold `{t}` for a file outside (`{d}` and `{b}`: its folder and name), `{k}` for a key (`{hexk}`:
its path's bytes spelled out), `{p}` for a server's port, `{s}` for its socket and `{a}` for its abstract one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

PERSON = "git status; git diff; git log -1; git add -A; git -c user.name=a -c user.email=b commit -qm p; true"
"""What a person does afterwards, with rights and environment of their own."""

_WHO = "git -c user.name=a -c user.email=b"
_MONITOR = r"printf '[core]\n\tfsmonitor = echo x >> {t} #\n'"
_LATE = "setsid sh -c 'touch up; until [ -e go ]; do sleep 0.02; done; %s; touch did' > /dev/null 2>&1 &"
_UP, _GO = "\nuntil [ -e up ]; do sleep 0.02; done", "touch go; until [ -e did ]; do sleep 0.02; done"

# What editors, agents and shells outside run: made by ways that name no such file, or not in one step.
STARTERS: tuple[tuple[str, ...], ...] = (
    ("mkdir v && echo '{}' > v/tasks.json && mv v .vscode",),
    ("mkdir v && echo '{}' > v/tasks.json", "ln -s v .vscode"),
    ("git mv a.txt .envrc",),
    (
        "h=$(echo x | git hash-object -w --stdin) && git update-index --add --cacheinfo 100644,$h,.envrc"
        " && git checkout-index -f .envrc",
    ),
    (r"printf -- '--- /dev/null\n+++ b/.mcp.json\n@@ -0,0 +1 @@\n+x\n' | git apply",),
    ("mkdir -p q/.zed && echo x > q/.zed/tasks.json && tar cf q.tar -C q .", "tar xf q.tar"),
    ("git worktree add -q -b w .claude",),
    ("git clone -q . .cursor",),
    ("ln a.txt .envrc", "echo x >> a.txt"),
    ("python3 -c \"import os; f = os.open('.', os.O_PATH); os.symlink('a.txt', '.envrc', dir_fd=f)\"",),
    ("python3 -c \"import shutil; shutil.copytree('src', '.devcontainer')\"",),
    ("cp -r src .idea", "cp a.txt .idea/workspace.xml"),
    ("mkdir .nvim.lua && rmdir .nvim.lua && mkfifo .nvim.lua",),
    ("for i in 1 2 3; do echo x > .exrc; rm -f .exrc; done; echo x > .exrc",),
    ("sh -c 'exec 9> .mise.toml; echo x >&9'",),
    ("echo x > n; mv -T n .whet",),
    ("perl -e 'rename q(a.txt), q(.envrc)'",),
    ("find . -maxdepth 1 -name a.txt -exec cp {} .mcp.json \\;",),
    ("make -f - .envrc <<< '.envrc: ; echo x > $@'",),
    ("""node -e "require('fs').writeFileSync('.envrc', 'x')" """,),
    (_LATE % "echo x > .envrc" + _UP, _GO),
    (_LATE % "mkdir .vscode; echo x > .vscode/tasks.json" + _UP, _GO, "true"),
    (_LATE % "ln -s src .claude" + _UP, _GO, "true", "true"),
    ("printf 'all:\\n\\techo x > .envrc\\n' > GNUmakefile", "make"),
    (
        """printf '{"name":"p","scripts":{"prepare":"echo x > .mcp.json"}}' > package.json""",
        "npm run -s prepare",
    ),
)

_BARE = "git init -q --bare b && cp -r b/. . && rm -r b"
_AS_BARE = r"printf '[core]\n\trepositoryformatversion=0\n\tbare=false\n\tworktree=.\n\tfsmonitor = echo x >> {t} #\n' > config"

# What the person's git runs.
GIT: tuple[tuple[str, ...], ...] = (
    (
        f"git init -q sub && cd sub && {_WHO} commit -q --allow-empty -m x && git config core.fsmonitor"
        " 'echo x >> {t} #' && cd .. && git add sub",
    ),
    (
        f"git init -q sub && git -C sub commit -q --allow-empty -m x; {_WHO} -C sub commit -q --allow-empty -m x;"
        " git add sub",
        _MONITOR + " >> sub/.git/config",
    ),
    (
        f"mkdir s1; git init -q s1/s2 && {_WHO} -C s1/s2 commit -q --allow-empty -m x && git add s1/s2",
        "mv s1 s3 && " + _MONITOR + " >> s3/s2/.git/config && mv s3 s1",
    ),
    (
        'git -c protocol.file.allow=always submodule add -q "$PWD" sm; '
        + _MONITOR
        + " >> .git/modules/sm/config",
    ),
    (
        "printf '../evil' > .git/commondir; mkdir evil; cp -r .git/objects .git/refs evil/; "
        r"printf '[core]\n\trepositoryformatversion=0\n\tfsmonitor = echo x >> {t} #\n' > evil/config",
    ),
    ("rm -f .git/config && " + _MONITOR + " > .git/config",),
    ("mv .git .git2 && mkdir .git && cp -r .git2/. .git/ && " + _MONITOR + " >> .git/config",),
    ("cp -r .git g && " + _MONITOR + " >> g/config", "mv .git old && mv g .git"),
    ("cp -r .git g && " + _MONITOR + " >> g/config && rm -rf .git && echo 'gitdir: g' > .git",),
    ("cp -r .git g && " + _MONITOR + " >> g/config && rm -rf .git && ln -s g .git",),
    (
        r"printf '#!/bin/sh\necho x >> {t}\n' > h; chmod +x h; mkdir -p .git/hooks; cp h .git/hooks/pre-commit",
    ),
    (
        r"mkdir hk; printf '#!/bin/sh\necho x >> {t}\n' > hk/pre-commit; chmod +x hk/pre-commit; rm -rf .git/hooks",
        "ln -s ../hk .git/hooks",
    ),
    (
        "python3 -c \"import os; f = os.open('.git', os.O_PATH); os.mkdir('hooks', dir_fd=f)\";"
        r" printf '#!/bin/sh\necho x >> {t}\n' > h; install -m 755 h .git/hooks/post-commit",
    ),
    (
        _LATE % ("mkdir -p .git/hooks; cp h .git/hooks/pre-commit") + _UP,
        r"printf '#!/bin/sh\necho x >> {t}\n' > h; chmod +x h; " + _GO,
    ),
    (
        "i=0; while [ $i -lt 400 ]; do i=$((i+1)); mkdir -p .git/hooks; echo > .git/hooks/0$i; done;"
        r" printf '#!/bin/sh\necho x >> {t}\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    ),
    (
        "mkdir -p .git/hooks; ln -s $'\\xff' .git/hooks/0;"
        r" printf '#!/bin/sh\necho x >> {t}\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    ),
    ("git config --file=.git/config core.fsmonitor 'echo x >> {t} #'",),
    ("GIT_DIR=$PWD/.git git config core.fsmonitor 'echo x >> {t} #'",),
    ("exec 9<>.git/config; " + _MONITOR + " >&9",),
    (f"{_BARE}; {_AS_BARE}; rm .git/HEAD",),
    (f"{_BARE}; rm HEAD; {_AS_BARE}", "cp .git/HEAD .", "rm .git/HEAD"),
    ("rm -rf .git", f"{_BARE}; {_AS_BARE}"),
)

# In one go: what other classes have no word for.
ELSE: dict[str, tuple[tuple[str, ...], ...]] = {
    "write": (
        ("ln -s {d} later", "cp a.txt later/z"),
        ("mkdir -p dd && mv dd ee && ln -s {d} dd", "tar cf - a.txt | tar xf - -C dd"),
        (
            "printf 'include way.mk\\n' > GNUmakefile; printf '$(shell echo x >> {t})\\nall:;\\n' > way.mk",
            "make",
        ),
        (
            "printf 'import os\\nos.system(\"echo x >> {t}\")\\n' > sitecustomize.py",
            "PYTHONPATH=. python3 main.py",
        ),
        (
            'printf \'import pathlib\\nopen("{t}","a").write("x")\\n\' > conftest.py; cp conftest.py unittest.py',
            "python3 -m unittest",
        ),
        (
            "mkdir -p node_modules/m; echo \"require('fs').appendFileSync('{t}','x')\" > node_modules/m/index.js",
            "node -e \"require('m')\"",
        ),
        (
            """printf '{"name":"p","version":"1.0.0","scripts":{"pretest":"echo x >> {t}","test":"true"}}' > package.json""",
            "npm test -s",
        ),
        ("printf 'let g:x=system(\"echo x >> {t}\")\\n' > x.vim", "vim -es -u x.vim -c q a.txt"),
        ("exec {fd}<{d}; cp a.txt /proc/self/fd/$fd/new",),
        ("cd {d} && cp $OLDPWD/a.txt ./new",),
        ("python3 -c \"import os; os.rename('a.txt', '{d}/moved')\"",),
        ("python3 -c \"import os; os.symlink('/etc', '{d}/l')\"",),
        ("python3 -c \"import os; os.mkfifo('{d}/pipe')\"",),
        ("python3 -c \"import os; os.chmod('{t}', 0o777)\"",),
        ("python3 -c \"import os; os.utime('{t}', (1, 1))\"",),
        ("python3 -c \"import os; os.setxattr('{t}', 'user.a', b'b')\" && chmod 711 {t}",),
    ),
    "read": (
        ("ln -s {k} way", "cat way"),
        ("mkdir way && ln -s $(dirname {k}) way/in", "grep -rh . way/in/"),
        ("cat /proc/{pid}/root{k}",),
        ("tr '\\0' '\\n' < /proc/{pid}/environ",),
        ("cat /proc/{pid}/cwd/home/.netrc",),
        ("python3 -c \"import os; print(os.pread(os.open(bytes.fromhex('{hexk}'), 0), 99, 0))\"",),
        ("printf 'include {k}\\n' > k.mk; make -f k.mk; awk -f {k}; . {k}; bash -n {k}; cat {k}",),
        ("printf '#!/bin/cat {k}\\n' > s; chmod +x s; ./s",),
        ("git add -f --intent-to-add a.txt; git diff --no-index a.txt {k}",),
        ("git config -f x include.path {k}; git hash-object -w --path=z {k} | xargs git show",),
        (
            "python3 -c \"import http.server\" && python3 -c \"print(__import__('runpy') and open('{k}').read())\"",
        ),
    ),
    "send": (
        ("curl -s -m 2 http://127.0.1:{p}/",),
        ("curl -s -m 2 http://0x7f.1:{p}/",),
        ("curl -s -m 2 http://[::ffff:7f00:1]:{p}/",),
        ("curl -s -m 2 http://%31%32%37.1:{p}/",),
        ("printf 'url = \"http://127.0.0.1:{p}/\"\\n' > c; curl -s -m 2 -K c",),
        ("echo 'http://127.0.0.1:{p}/' > l; wget -q -T 2 -t 1 -O - -i l",),
        ("python3 -c \"import socket as s; s.socket(2, 2).sendto(b'x', ('127.0.0.1', {p}))\"",),
        ("echo x > /dev/udp/127.0.0.1/{p}",),
        ("perl -MSocket -e 'socket(S,2,1,0); connect(S, sockaddr_in({p}, inet_aton(\"127.0.0.1\")))'",),
        ("python3 -c \"import socket as s; c = s.socket(10); c.connect(('::ffff:127.0.0.1', {p}))\"",),
        (
            "python3 -c \"import socket as s; s.create_server(('', 0)); s.create_connection(('127.0.0.1', {p}))\"",
        ),
    ),
    "others": (
        ("kill -STOP {pid}",),
        ("renice -n 19 -p {pid}",),
        ("prlimit --pid {pid} --nofile=7",),
        (
            'taskset -cp 0 {pid} > /dev/null; python3 -c "import os; os.setpriority(os.PRIO_PROCESS, {pid}, 15)"',
        ),
        ("echo 900 > /proc/{pid}/oom_score_adj",),
        ('python3 -c "import os, signal; signal.pidfd_send_signal(os.pidfd_open({pid}), 9)"',),
        ("python3 -c \"import socket as s; c = s.socket(s.AF_UNIX); c.connect('/proc/self/root{s}')\"",),
        ("ln -s {s} way", "python3 -c \"import socket as s; s.socket(s.AF_UNIX).connect('way')\""),
        ("python3 -c \"import socket as s; s.socket(s.AF_UNIX).connect(chr(0) + '{a}')\"",),
    ),
}


def cases(places: dict[str, str], target: str, key: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give (class, steps); a class that ends with "later" has its effect when a person goes on."""
    marks = {"{t}": target, "{d}": os.path.dirname(target), "{b}": os.path.basename(target), "{k}": key}
    marks |= {"{hexk}": key.encode().hex(), "{p}": places["port"], "{s}": places["socket"]}
    marks |= {"{a}": places["abstract"]}
    for kind, listed in {"starters": STARTERS, "git later": GIT, **ELSE}.items():
        for steps in listed:
            yield kind, tuple(_filled(step, marks) for step in steps)


def _filled(step: str, marks: dict[str, str]) -> str:
    for mark, value in marks.items():
        step = step.replace(mark, value)
    return step
