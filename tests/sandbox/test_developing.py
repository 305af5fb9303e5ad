"""Ordinary developer commands, in a jail without network: each ends as it ends outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.system_folders import default_policy
from whet.tools.shell import command_environment

pytestmark = pytest.mark.slow

# What Landlock alone can't do: shared memory, and /tmp by its name.
_NEEDS_MOUNTS = ("multiprocessing", "> /tmp/")
_COMMANDS = r"""
git init -q . ; echo ok
git status
echo a > a.txt && git add a.txt && git -c user.name=x -c user.email=x@y commit -qm one
git log --oneline
git checkout -q -b topic && git checkout -q -
git stash list
git diff HEAD
git branch -a
git tag v1
git clone -q . cl && rm -rf cl
python3 -c 'print(1)'
python3 -m venv v && v/bin/python -c 'import sys; print(sys.prefix)'
python3 -m venv v2 && v2/bin/pip --version
pip --version
pip list | head -3
python3 -c 'import multiprocessing as m; p=m.Pool(2); print(p.map(abs,[-1,2])); p.close(); p.join()'
python3 -c 'import tempfile; print(tempfile.mkdtemp())'
python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'
python3 -c 'import sqlite3; c=sqlite3.connect("x.db"); c.execute("create table t(a)"); c.commit()'
python3 -c 'import socket; a,b=socket.socketpair(); a.send(b"x"); print(b.recv(1))'
python3 -c 'import ctypes; print(ctypes.CDLL(None).getpid())'
python3 -c 'import os,pty; print(os.openpty())'
printf 'all:\n\techo made\n' > Makefile && make
printf 'int main(){return 0;}' > m.c && gcc m.c -o m && ./m
g++ --version
gcc -c m.c -o m.o && ar rcs lib.a m.o
cmake --version
node -e 'console.log(1)'
npm --version
npm init -y
npm ls
npm pack --dry-run
node -e 'require("child_process").execSync("echo x")'
node -e 'new (require("worker_threads").Worker)("1",{eval:true})'
npx --version
cargo --version
rustc --version
cargo init -q --name zz cr --vcs none && cd cr && cargo build -q --offline
go version
java -version
javac -version
perl -e 'print 1'
ruby -v
tar czf a.tgz a.txt && tar tzf a.tgz
zip q.zip a.txt
find . -name '*.txt' | xargs grep -l a
sed -i s/a/b/ a.txt
awk '{print}' a.txt
sort a.txt | uniq -c
rm -rf v v2
mkdir -p d/e && cp -r d d2 && mv d2 d3 && chmod -R u+x d3 && rm -r d3
ln -s a.txt l && readlink l && ln a.txt h
touch -d yesterday a.txt
cp -p a.txt b2.txt
diff <(echo a) <(echo a)
cat <<< hi
echo x > /tmp/zz && cat /tmp/zz
mktemp
nproc
free -m
df -h .
ps aux
date
curl --version
which python3
jq --version
sleep 0.1 & wait
timeout 5 true
sh -c 'echo $HOME; cd ~ && touch foo && ls'
tee out.txt <<< z
xxd a.txt
sha256sum a.txt
openssl rand -hex 4
ssh -V
vim --version
less --version
man --version
strace -V
docker --version
systemctl --version
crontab -l; true
getent passwd root
id -un
whoami
hostname
uname -a
locale
python3 -m http.server --help
git config --get user.name
git config -l
rg --version
fd --version
tree --version
""".strip().splitlines()
_QUICK = _COMMANDS[::20]


def test_the_list_is_long_enough() -> None:
    assert len(_COMMANDS) >= 60


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_sample_works(case: EngineCase, tmp_path: Path) -> None:
    assert _different(case, ["git init -q .", *_QUICK], tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_all_work(case: EngineCase, tmp_path: Path) -> None:
    alone = str(case) == "Landlock"  # gives no terminals: a person's would be in reach
    wanted = [text for text in _COMMANDS if not (alone and "openpty" in text)]
    assert _different(case, wanted, tmp_path) == []


def _different(case: EngineCase, commands: Sequence[str], tmp_path: Path) -> list[str]:
    """Give the commands that end otherwise inside; the suite's own interpreter is first on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**command_environment(os.environ), "PATH": path}
    engine = case.engine()
    inner, outer, scratch = tmp_path / "inner", tmp_path / "outer", Scratch()
    inner.mkdir()
    outer.mkdir()
    jail = Jail(JailPlan(engine, default_policy(inner, tmp_path / "whet", environment), scratch, Path.home()))
    failures: list[str] = []
    try:
        inside = jail.environment(environment)
        for text in commands:
            if not engine.own_network and any(mount in text for mount in _NEEDS_MOUNTS):
                continue
            plain = subprocess.run(
                ["bash", "-c", text],
                cwd=outer,
                env={**environment, "HOME": str(tmp_path)} if "cd ~" in text else environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            ).returncode
            code, output = jail.run(JailedCommand(["bash", "-c", text], inside, inner), 120)
            if code != plain:
                failures.append(f"{text}: {code} instead of {plain}: {output[-300:]}")
    finally:
        jail.close()
        scratch.close()
    return failures
