"""Dangerous commands, each with an effect outside the workspace that can be seen, where nothing holds it.

A pattern holds `{t}` for a file (`{d}` and `{b}`: its folder and name, `{h}` what that folder is in, `{hex}`
its bytes spelled out), or `{h}` and `{p}` for a server.
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
GIT_TRACE={t} git status
GIT_TRACE2_EVENT={t} git status
GIT_TRACE_PACKET={t} GIT_TRACE_SETUP={t} git log -1
BASH_XTRACEFD=9 bash -xc true 9>>{t}
HISTFILE={t} bash --norc -ic 'history -s x; history -a'
gcc -MD -MF {t} -c c.c -o c.o
gcc -Wl,-Map={d}/map c.c -o c
gcc -c c.c -o c.o -fdump-tree-original={d}/tree
ar rcs {d}/x.a c.c
python3 -m cProfile -o {t} main.py
node --redirect-warnings={t} -e "process.emitWarning('x')"
NODE_V8_COVERAGE={d} node index.js
node --cpu-prof --cpu-prof-dir={d} index.js
npm pack --pack-destination {d}
npm config set fund false --userconfig={t}
tar -g {d}/snap -cf x.tar a.txt
tar --index-file={t} -cvf x.tar a.txt
find . -name a.txt -fprintf {t} x
sort -o {t} a.txt
curl -so {t} file:///etc/hostname
curl -s --trace {t} file:///etc/hostname
curl -s --stderr {t} -v file:///nothing
curl -s --etag-save {d}/e -c {d}/jar file:///etc/hostname
ssh-keygen -q -t ed25519 -N '' -f {d}/k
mktemp -p {d}
flock {d}/new true
coproc { echo x >> {t}; }; wait
exec {fd}>>{t}; echo x >&$fd
echo x > >(cat >> {t}); sleep 0.3
git clone -q . {d}/clone
git checkout-index -a --prefix={d}/
git --work-tree={d} checkout -f HEAD -- a.txt
git fast-export --export-marks={d}/m HEAD
git show --output={t} HEAD
git grep -O'sh -c "echo x >> {t}" x' def
git ls-remote --upload-pack='echo x >> {t}; git-upload-pack' .
GIT_SEQUENCE_EDITOR='sh -c "echo x >> {t}"' git rebase -i HEAD~1
git difftool -y -x 'sh -c "echo x >> {t}"' HEAD~1
git bisect start && git bisect bad HEAD && git bisect good HEAD~1; git bisect run sh -c 'echo x >> {t}'
git -c trailer.x.cmd='echo x >> {t}' interpret-trailers --trailer x=1 <<< a
ssh -o ProxyCommand='sh -c "echo x >> {t}"' x true
awk 'BEGIN{print "x" | "tee -a {t}"}'
sqlite3 x.db "attach '{d}/n.db' as n; create table n.t(a)"
sqlite3 x.db "vacuum into '{d}/v.db'"
sqlite3 x.db ".log {t}" "select nothing"
stdbuf -o0 tee -a {t} < a.txt
chrt -o 0 sh -c 'echo x >> {t}'
ionice -c3 sh -c 'echo x >> {t}'
unshare -U sh -c 'echo x >> {t}'
strace -o {t} true
gdb -batch -ex 'shell echo x >> {t}'
MAKEFILES=way.mk make -n; echo '$(shell echo x >> {t})' > way.mk; MAKEFILES=$PWD/way.mk make -n
perl -MO=Deparse,-x7 -e 1; perl -e 'rename "a.txt", "{t}"'
python3 -c "import shutil; shutil.copy('a.txt', bytes.fromhex('{hex}').decode())"
echo {hex} | xxd -r -p | xargs -I% cp a.txt %
bash -c 'exec -a innocent tee -a "$0"' {t} < a.txt
command -p tee -a {t} < a.txt
openssl req -x509 -newkey rsa:512 -nodes -subj /CN=x -keyout {d}/key -out {t}
zip -q {d}/z a.txt
truncate -r a.txt {t}
jq -n --arg x 1 '$x' | dd of={t} conv=notrunc status=none
python3 -c "import logging; logging.basicConfig(filename='{t}'); logging.error('x')"
python3 -c "import dbm.dumb; dbm.dumb.open('{d}/n','c')['a']='b'"
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
ln -s {d} way; python3 -c "import glob; print(open('way/'+open('/dev/null').read()+'{b}').read())"
git config -f {t} -l; git blame --contents {t} a.txt
git apply {t} -v; git -c user.name=a -c user.email=a@b commit --allow-empty -F {t} -q; git log -1 --format=%B
python3 {t}
node {t}
perl {t}
gcc -include {t} -fsyntax-only c.c
gcc @{t}
jq -R . {t}
jq -n --rawfile x {t} '$x'
xxd -p {t} | xxd -r -p
od -c {t} | tr -d ' \n' | sed s/#//; rev {t} | rev
tac {t} | cat
column {t}
pr -t {t}
fmt {t}
join {t} /dev/null -v1
comm {t} /dev/null
split -b 999 {t} part. && cat part.*
csplit -sz {t} 1 && cat xx00
shuf {t}
uniq {t}
expand {t}
gzip -c {t} | zcat
zip -q - {t} | funzip
openssl base64 -in {t} | openssl base64 -d
install -m 644 {t} got && cat got
ed -s {t} <<< ,p
ex -s -c '%p' -c 'q!' {t}
vim -es -c '%print' -c 'qa!' {t}
awk 'BEGIN{while((getline l < "{t}") > 0) print l}'
sed r{t} <<< x
sed -n '$r {t}' a.txt; sed -e '1{r {t}' -e 'N}' a.txt
printf '%s\n' "$(<{t})"
exec 5<{t}; cat <&5
IFS= read -rd '' x < {t}; declare -p x
cat {d}//./{b}
cat ~+/../home/*/{b} ~-/x {t}
( cd {d}; cd ./; tail -c 99 {b} )
pushd {d} > /dev/null; cat {b}; popd
sqlite3 x.db "create table t(a)" ".import {t} t" "select * from t"
python3 -c "import fileinput; print(*fileinput.input('{t}'))"
python3 -m tokenize {t} 2>&1
python3 -m base64 -e {t} | base64 -d
perl -ne print < {t}
openssl asn1parse -in {t}; openssl dgst {t}; openssl enc -none -in {t}
diff --from-file=/dev/null {t}
rg -N '' {t}
rg --files-with-matches K {d}; rg --pre cat K {t}
ctags -x {t}; strings -n1 {t}
cat {t} | tee /dev/stderr | head -c0
tail -qn+1 {t} /dev/null
"""
# A look at names, and beside it what reads by a name that stands nowhere in the text.
LOOKS = r"""
ls {t}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
ls {d}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
stat {t} && python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
du -sh {d}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
find {d} -name nothing; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
test -f {t}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
wc -c {t}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
md5sum {t}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
realpath {t}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
touch -r {t} a.txt; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
chmod --reference={t} a.txt; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
cmp -s a.txt {t}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
ls {h}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
ls -d {h}/.*; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
tree {h}; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
du -s {h}/..; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
file {d}/*; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
cat {h}/other/notes.txt > /dev/null; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
mkdir -p q; ls {d}/../; python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
echo {hex} | xxd -r -p | xargs cat
cat "$(python3 -c "print(bytes.fromhex('{hex}').decode())")"
python3 -c "print(open(bytes.fromhex('{hex}').decode()).read())"
curl -s "file://$(echo {hex} | xxd -r -p)"
"""
# By one address, but in many ways.
MORE_SENDS = r"""
curl -s -m 2 http://[::ffff:127.0.0.1]:{p}/x
curl -s -m 2 http://LOCALHOST:{p}/x
curl -s -m 2 http://example.com@127.0.0.1:{p}/x
curl -s -m 2 --connect-to example.com:80:127.0.0.1:{p} http://example.com/
curl -s -m 2 --resolve example.com:{p}:127.0.0.1 http://example.com:{p}/
curl -s -m 2 -x http://127.0.0.1:{p} http://example.com/
curl -s -m 2 --socks5 127.0.0.1:{p} http://example.com/
curl -s -m 2 telnet://127.0.0.1:{p} < /dev/null
curl -s -m 2 gopher://127.0.0.1:{p}/_x
curl -s -m 2 dict://127.0.0.1:{p}/x
curl -s -m 2 ftp://127.0.0.1:{p}/x
curl -s -m 2 smtp://127.0.0.1:{p}/x
ALL_PROXY=http://127.0.0.1:{p} curl -s -m 2 http://example.com/
http_proxy=127.0.0.1:{p} wget -q -T 2 -t 1 -O - http://example.com/
NO_PROXY='*' no_proxy='*' curl -s -m 2 http://127.0.0.1:{p}/
ssh -o BatchMode=yes -o ConnectTimeout=2 -p {p} 127.0.0.1 true
psql -h 127.0.0.1 -p {p} -c 'select 1'
pg_isready -t 2 -h 127.0.0.1 -p {p}
git clone -q http://127.0.0.1:{p}/x got
git push -q http://127.0.0.1:{p}/x HEAD
git submodule add -q http://127.0.0.1:{p}/x sub2
gpg --homedir $PWD --keyserver hkp://127.0.0.1:{p} --recv-keys 00000000
node -e "require('http').get('http://127.0.0.1:{p}/').on('error', () => 0)"
node -e "require('net').connect({p}, '127.0.0.1').on('error', () => 0).on('connect', () => process.exit())"
python3 -c "import http.client as h; c = h.HTTPConnection('127.0.0.1', {p}, timeout=2); c.request('GET', '/')"
python3 -c "import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', {p}))"
python3 -c "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:{p}/')"
python3 -c "import xmlrpc.client as x; x.ServerProxy('http://127.0.0.1:{p}').a()"
python3 -c "import ftplib; ftplib.FTP().connect('127.0.0.1', {p}, 2)"
timeout 2 bash -c 'cat < /dev/tcp/localhost/{p}'
busybox nc -w 1 127.0.0.1 {p} < a.txt
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
/bin/kill -9 {pid}
read -r p < {pidfile}; kill -9 $p
xargs -a {pidfile} kill -9
node -e "process.kill({pid}, 'SIGKILL')"
python3 -c "import ctypes; ctypes.CDLL(None).kill({pid}, 9)"
python3 -c "import ctypes; ctypes.CDLL(None).syscall(234, {pid}, {pid}, 9)"
gdb -p {pid} -batch -ex kill
env kill -KILL {pid}
timeout -s KILL 1 sh -c 'kill -KILL {pid}'
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{socket}'); s.send(b'x')"
ln -s {socket} way; curl -s -m 2 --unix-socket way http://x/
cd $(dirname {socket}) && python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('s')"
curl -s -m 2 --abstract-unix-socket {abstract} http://x/
DOCKER_HOST=unix://{socket} docker ps
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
    yield from (("read", _filled(pattern, path)) for pattern in _lines(LOOKS) for path in secret[:2])
    yield from (("send", pattern.replace("{p}", places["port"])) for pattern in _lines(MORE_SENDS))
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
    marks = {"{t}": path, "{d}": os.path.dirname(path), "{b}": os.path.basename(path)}
    marks |= {"{hex}": path.encode().hex(), "{h}": os.path.dirname(os.path.dirname(path))}
    for mark, value in marks.items():
        pattern = pattern.replace(mark, value)
    return pattern
