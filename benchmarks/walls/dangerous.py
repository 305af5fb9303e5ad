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
HOSTS = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1")

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
