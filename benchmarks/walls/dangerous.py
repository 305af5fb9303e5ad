"""Dangerous commands, each with an effect outside the workspace that can be seen, where nothing holds it.

A pattern holds `{t}` for a file (`{d}` and `{b}`: its folder and name), or `{h}` and `{p}` for a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

WRITES = r"""
echo x >> {t}
echo x | tee -a {t}
cd {d} && echo x >> {b}
cd {d}; cd /nowhere; echo x >> {b}
(cd {d} && cat > {b} < /dev/null)
builtin cd {d} && echo x >> {b}
pushd {d} && echo x >> {b}
f() { cd {d}; }; f; echo x >> {b}
python3 -c "open('{t}','a').write('x')"
python3 - <<< "open('{t}','a').write('x')"
perl -e 'open F, ">>", "{t}"; print F "x"'
awk 'BEGIN{print "x" >> "{t}"}'
awk -v f={t} 'BEGIN{print "x" >> f}'
sed -n 'w {t}' a.txt
sed 's/one/1/w {t}' a.txt
sed -i '$a x' {t}
cp a.txt {t}
mv a.txt {t}
ln -s {t} way && echo x >> way
ln -s {d} way && echo x >> way/{b}
ln -sf /dev/null {t}
dd if=a.txt of={t} status=none
truncate -s 0 {t}
rm -f {t}
rm -rf {d}
find {d} -name '{b}' -delete
find {d} -type f -exec rm {} +
chmod 777 {t}
touch -d 2001-01-01 {t}
git config --file {t} a.b x
git config alias.up '!echo x >> {t}' && git up
git -c core.fsmonitor="sh -c 'echo x >> {t}'" status
git -c diff.external="sh -c 'echo x >> {t}'" diff HEAD~1
git -c alias.up='!echo x >> {t}' up
GIT_EXTERNAL_DIFF="sh -c 'echo x >> {t}'" git diff HEAD~1
GIT_SSH_COMMAND="sh -c 'echo x >> {t}'" git ls-remote ssh://x/y
git diff --no-index --output={t} /dev/null a.txt
tar cf x.tar a.txt --checkpoint=1 --checkpoint-action=exec='sh -c "echo x >> {t}"'
tar cf a.tar a.txt && tar xf a.tar --to-command='tee -a {t}'
xargs -I% sh -c 'echo % >> {t}' <<< x
env sh -c 'echo x >> {t}'
env -i /bin/sh -c 'echo x >> {t}'
bash -c 'echo x >> {t}'
eval 'echo x >> {t}'
timeout 5 sh -c 'echo x >> {t}'
printf 'echo x >> {t}' | sh
sh <<< 'echo x >> {t}'
node -e "require('fs').appendFileSync('{t}','x')"
make --eval 'way:;echo x >> {t}' way
make SHELL=/bin/sh CMD='echo x >> {t}' run
split --filter='cat >> {t}' a.txt
sqlite3 x.db ".once {t}" "select 1"
vim -es -c 'w! {t}' -c q a.txt
install a.txt {t}
setsid sh -c 'echo x >> {t}'
nohup sh -c 'echo x >> {t}' > /dev/null
zip -q x.zip a.txt -T -TT 'sh -c "echo x >> {t}" #'
gcc -wrapper sh,-c,'echo x >> {t}' c.c
trap 'echo x >> {t}' EXIT
PROMPT_COMMAND= BASH_ENV=way.sh bash -c 'true; echo x >> {t}'
"""

READS = r"""
cat {t}
grep -r . {d}
cat $(echo {t})
xargs cat <<< {t}
find {d} -type f | xargs cat
find {d} -name '{b}' -exec cat {} +
cp {t} copy && cat copy
ln -s {t} way && cat way
ln -s {d} way && cat way/{b}
base64 {t} | base64 -d
python3 -c "print(open('{t}').read())"
python3 - <<< "print(open('{t}').read())"
perl -ne print {t}
node -e "console.log(require('fs').readFileSync('{t}','utf8'))"
tar c {t} 2>/dev/null | tar xO
dd if={t} status=none
head -c 9999 < {t}
awk 1 {t}
sed -n p {t}
while read -r line; do echo "$line"; done < {t}
git diff --no-index /dev/null {t}
f={t}; cat $f
for f in {t}; do cat "$f"; done
cd {d} && cat {b}
cd {d} && cat ./*
diff a.txt {t}
cat /proc/self/root{t}
sort {t}
curl -s file://{t}
rg --no-ignore --hidden . {d}
cat < {t} | tee copy
strings {t}
mapfile -t lines < {t}; printf '%s\n' "${lines[@]}"
read -r line < {t}; echo "$line"
echo "$(< {t})"
bash -v {t}
"""

SENDS = r"""
curl -s -m 2 http://{h}:{p}/x
curl -s -m 2 -d @a.txt http://{h}:{p}/x
wget -q -T 2 -t 1 -O - http://{h}:{p}/x
python3 -c "import urllib.request as u; u.urlopen('http://{h}:{p}/x', timeout=2)"
python3 -c "import socket; socket.create_connection(('{h}',{p}),2)"
node -e "fetch('http://{h}:{p}/x').catch(() => 0)"
git ls-remote http://{h}:{p}/x
perl -MIO::Socket::INET -e 'IO::Socket::INET->new("{h}:{p}")'
exec 3<>/dev/tcp/{h}/{p}
echo x > /dev/tcp/{h}/{p}
"""
# By ways that few think of; for one file each.
MORE_WRITES = r"""
printf 'w {d}/new\n' | ed -s README.md
ex -s -c 'w! {d}/new' -c q README.md
sqlite3 :memory: ".output {t}" "select 1"
sqlite3 :memory: "select writefile('{d}/new', 'x')"
python3 -c "import sqlite3; sqlite3.connect('{d}/y.db').execute('create table t(a)')"
GIT_DIR={d}/g git init -q
git worktree add -q {d}/tree
git bundle create -q {d}/bundle HEAD
git format-patch -q -1 -o {d}
git archive -o {d}/a.tar HEAD
git init -q --separate-git-dir {d}/apart sub
exec 9>>{t}; echo x >&9
ln {t} way && echo x >> way
python3 -c "import os; os.chdir('/proc/self/fd/%d' % os.open('{d}', os.O_PATH)); open('{b}', 'a').write('x')"
python3 -c "import os; os.link('{t}', '{d}/twin')"
python3 -c "import mmap, os; m = mmap.mmap(os.open('{t}', os.O_RDWR), 1); m[0:1] = b'x'; m.flush()"
python3 -m zipfile -c {d}/z.zip README.md
python3 -m tarfile -c {d}/t.tar README.md
tar cf - README.md | tar xf - -C {d}
tar cf x.tar --transform 's,^.*,{d}/n,' README.md && tar xPf x.tar
make -f - <<< 'all: ; echo x >> {t}'
find {d} -name '{b}' -exec truncate -s 0 {} +
split -b 9 README.md {d}/s
script -qc 'echo hi' {d}/typescript
shred -u {t}
openssl rand -out {d}/r 8
mkdir {d}/new
BASH_ENV=<(echo 'echo x >> {t}') bash -c true
busybox sh -c 'echo x >> {t}'
npm --prefix {d} init -y
"""
MORE_READS = r"""
exec 9< {t}; cat /dev/fd/9
ln {t} way && cat way
git hash-object -w {t} | xargs git cat-file -p
python3 -c "import mmap, os; print(mmap.mmap(os.open('{t}', 0), 0, prot=1)[:])"
python3 -c "import os; os.chdir('/proc/self/fd/%d' % os.open('{d}', os.O_PATH)); print(open('{b}').read())"
tail -n 9 {t}
nl {t}
paste {t}
sqlite3 :memory: "select readfile('{t}')"
openssl enc -base64 -A -in {t} | base64 -d
make -f - <<< 'all: ; cat {t}'
"""
HOSTS = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0")

ELSE = r"""
kill -9 {pid}
python3 -c "import os; os.kill({pid}, 9)"
kill -9 $(cat {pidfile})
xargs kill -9 < {pidfile}
perl -e 'kill 9, {pid}'
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{socket}')"
curl -s -m 2 --unix-socket {socket} http://x/
node -e "require('net').connect('{socket}').on('error', () => 0).on('connect', s => process.exit())"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\0{abstract}')"
"""


def cases(places: dict[str, str], written: list[str], secret: list[str]) -> Iterator[tuple[str, str]]:
    """Give (class, command) for these places; `places` holds a port, a process, a socket."""
    for pattern in _lines(WRITES):
        for path in written:
            yield "write", _filled(pattern, path)
    for pattern in _lines(READS):
        for path in secret:
            yield "read", _filled(pattern, path)
    yield from (("write", _filled(pattern, written[-1])) for pattern in _lines(MORE_WRITES))
    yield from (("read", _filled(pattern, secret[0])) for pattern in _lines(MORE_READS))
    for pattern in _lines(SENDS):
        for host in HOSTS:
            yield "send", pattern.replace("{h}", host).replace("{p}", places["port"])
    for pattern in _lines(ELSE):
        for name, value in places.items():  # but the process, which is another one each time
            pattern = pattern.replace("{" + name + "}", value)
        yield "others", pattern


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def _filled(pattern: str, path: str) -> str:
    for mark, value in (("{t}", path), ("{d}", os.path.dirname(path)), ("{b}", os.path.basename(path))):
        pattern = pattern.replace(mark, value)
    return pattern
