"""Ways to get out of the sandbox, as data: each a few lines of shell or Python that try one way.

They run in a jail whose world is `tests/sandbox/world.py`; what they find outside is in variables: OUT (a
folder), SECRET (a file in it), HOME (with keys), WHET (Whet's home), SOCK and ABSTRACT (sockets that listen),
PORT and UDP (ports that listen), VICTIM and PARENT (process ids), WS (the workspace). An attempt has got out
when the world changed, heard of it, or its output holds the world's mark.
"""

# ruff: noqa: E501 - an attempt a line reads better

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["sh", "py"]


class Attempt(NamedTuple):
    """One way out: `name` is unique, `kind` says who runs `text`."""

    name: str
    group: str
    kind: Kind
    text: str


def attempts() -> list[Attempt]:
    """Give all of them, in a fixed order."""
    found: list[Attempt] = []
    for group, kind, texts in _GROUPS:
        for number, text in enumerate(texts):
            found.append(Attempt(f"{group}-{kind}-{number}", group, kind, text))
    return [*found, *_secrets(), *_protected()]


_READERS = ("cat {0}", "head -c 999 {0}", "dd if={0} 2>&1", "cp {0} $WS/got && cat $WS/got", "tar cO {0} 2>&1", "base64 {0} | base64 -d", "python3 -c 'print(open(\"{1}\").read())'", "grep -r . {0}", "curl -s file://{1}", "while read l; do echo $l; done < {0}")  # fmt: skip
_SECRET_FILES = (".ssh/id_rsa", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".bash_history", ".gnupg/key", ".kube/config", ".docker/config.json", ".npmrc", ".local/share/keyrings/login", ".mozilla/logins.json", "notes.txt")  # fmt: skip


def _secrets() -> Iterator[Attempt]:
    for number, name in enumerate(_SECRET_FILES):
        reader = _READERS[number % len(_READERS)]
        path = f"$HOME_OUT/{name}"
        text = reader.replace("{1}", "'$P'" if "python3" in reader else "$P").format(path)
        if "python3" in reader:
            text = f"P={path} python3 -c 'import os; print(open(os.environ[\"P\"]).read())'"
        yield Attempt(f"secrets-{number}", "secrets", "sh", f"P={path}; {text}")
    for number, reader in enumerate(_READERS):
        if "python3" not in reader:
            yield Attempt(
                f"secrets-whet-{number}",
                "secrets",
                "sh",
                "P=$WHET/state.db; " + reader.replace("{1}", "$P").format("$P"),
            )


_PROTECTED = (".git/hooks/pre-commit", ".git/hooks/post-checkout", ".git/config", ".vscode/tasks.json", ".envrc", ".claude/settings.json", ".whet/plugins/x", ".idea/x.xml")  # fmt: skip


def _protected() -> Iterator[Attempt]:
    for number, name in enumerate(_PROTECTED):
        make = f"mkdir -p $(dirname $WS/{name}); "
        yield Attempt(f"protected-write-{number}", "protected", "sh", make + f"echo ESCAPED >> $WS/{name}")
        yield Attempt(
            f"protected-move-{number}",
            "protected",
            "sh",
            make + f"echo ESCAPED > $WS/mv{number}; mv -f $WS/mv{number} $WS/{name}",
        )
        yield Attempt(
            f"protected-link-{number}",
            "protected",
            "sh",
            make + f"ln $WS/{name} $WS/ln{number} && echo ESCAPED >> $WS/ln{number}",
        )


_SOCK = "import socket,os\n"
_GROUPS: tuple[tuple[str, Kind, tuple[str, ...]], ...] = (
    (
        "files",
        "sh",
        (
            "echo ESCAPED > $OUT/new",
            "echo ESCAPED >> $SECRET",
            "rm -f $OUT/victim",
            "rm -rf $OUT",
            "mv $OUT/victim $OUT/moved",
            "truncate -s 0 $OUT/victim",
            ": > $OUT/victim",
            "chmod 777 $OUT/victim",
            "chmod 000 $OUT",
            "chown 1:1 $OUT/victim",
            "touch -d 2000-01-01 $OUT/victim",
            "mkdir $OUT/dir",
            "sed -i s/a/ESCAPED/ $OUT/victim",
            "tee $OUT/tee <<< ESCAPED",
            "cp /bin/true $OUT/bin",
            "dd if=/dev/zero of=$OUT/victim bs=1 count=1",
            "setfattr -n user.x -v 1 $OUT/victim",
            "mknod $OUT/pipe p",
            "mkfifo $OUT/fifo",
            "install -m 755 /bin/true $OUT/inst",
            "tar xf /dev/null -C $OUT; tar cf $OUT/t.tar /etc/hostname",
            "echo ESCAPED > $HOME_OUT/.bashrc",
            "mkdir -p $HOME_OUT/.ssh; echo ESCAPED >> $HOME_OUT/.ssh/authorized_keys",
            "echo ESCAPED > $WHET/config.yaml",
            "rm -rf $WHET",
            "cat $SECRET",
            "find $OUT -type f -exec cat {} +",
            "echo ESCAPED > /etc/whet-escaped",
            "echo ESCAPED > /usr/bin/whet-escaped",
            "cd $OUT && echo ESCAPED > rel",
            "cd / && echo ESCAPED > ./$OUT/rel2",
            "rsync -a $WS/ $OUT/ 2>/dev/null; cat $OUT/victim",
            "ls $OUT | sed s/victim/MARK-LISTED/",
            "echo ESCAPED > /var/tmp/whet-escaped",
        ),
    ),
    (
        "links",
        "sh",
        (
            "ln -s $OUT $WS/l1 && echo ESCAPED > $WS/l1/new",
            "ln -s $SECRET $WS/l2 && cat $WS/l2",
            "ln -s / $WS/l3 && cat $WS/l3$SECRET",
            "cat $WS/../$(basename $OUT)/secret",
            "cat $WS/../../$SECRET",
            "ln -s /proc/self/root $WS/l4 && cat $WS/l4$SECRET",
            "ln -s $HOME_OUT $WS/l5 && cat $WS/l5/.ssh/id_rsa",
            "cd $WS && ln -s ../ up && cat up/$(basename $OUT)/secret",
            "ln -s $OUT/victim $WS/l6 && chmod 777 $WS/l6",
            "ln -s $OUT/victim $WS/l7 && rm $WS/l7/../victim",
            "cp -rL $OUT $WS/copied && cat $WS/copied/secret",
            "ln -s $SOCK $WS/l8 && python3 -c \"import socket;s=socket.socket(socket.AF_UNIX);s.connect('$WS/l8');s.send(b'ESCAPED')\"",
        ),
    ),
    (
        "hard links",
        "sh",
        (
            "ln $SECRET $WS/h1 && cat $WS/h1",
            "ln $OUT/victim $WS/h2 && echo ESCAPED > $WS/h2",
            "ln $WS/a.txt $OUT/h3",
            "ln -L $SECRET $WS/h4 && cat $WS/h4",
            "ln /etc/shadow $WS/h5 && cat $WS/h5",
            "cp -al $OUT $WS/h6 && cat $WS/h6/secret",
        ),
    ),
    (
        "hard links",
        "py",
        (
            "import os\nos.link(os.environ['SECRET'], os.environ['WS']+'/p1')\nprint(open(os.environ['WS']+'/p1').read())",
            "import os\nf=os.open(os.environ['WS'],os.O_RDONLY)\nos.link(os.environ['SECRET'],'p2',dst_dir_fd=f)\nprint(open(os.environ['WS']+'/p2').read())",
            "import os\nf=os.open(os.environ['OUT']+'/victim',os.O_PATH)\nos.link(f'/proc/self/fd/{f}',os.environ['WS']+'/p3',follow_symlinks=True)\nopen(os.environ['WS']+'/p3','w').write('ESCAPED')",
            "import os\nos.rename(os.environ['OUT']+'/victim',os.environ['WS']+'/p4')",
            "import os\nos.rename(os.environ['WS']+'/a.txt',os.environ['OUT']+'/p5')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint(l.syscall(316,-100,(os.environ['WS']+'/a.txt').encode(),-100,(os.environ['OUT']+'/victim').encode(),2))",
        ),
    ),
    (
        "races",
        "py",
        (
            "import os,threading\nw=os.environ['WS'];s=os.environ['SECRET']\nopen(w+'/r','w').write('x')\nstop=[]\ndef swap():\n  for i in range(300):\n    try: os.symlink(s,w+'/t'); os.rename(w+'/t',w+'/r'); os.unlink(w+'/r'); open(w+'/r','w').write('x')\n    except OSError: pass\nt=threading.Thread(target=swap);t.start()\nfor i in range(300):\n  try: print(open(w+'/r').read())\n  except OSError: pass\nt.join()",
            "import os,threading\nw=os.environ['WS'];o=os.environ['OUT']\nos.makedirs(w+'/rd',exist_ok=True)\ndef swap():\n  for i in range(300):\n    try: os.rename(w+'/rd',w+'/rx'); os.symlink(o,w+'/rd'); os.unlink(w+'/rd'); os.rename(w+'/rx',w+'/rd')\n    except OSError: pass\nt=threading.Thread(target=swap);t.start()\nfor i in range(300):\n  try: open(w+'/rd/raced','w').write('ESCAPED')\n  except OSError: pass\nt.join()",
            "import os\nw=os.environ['WS']\nd=os.open(w,os.O_RDONLY)\nos.makedirs(w+'/q/z',exist_ok=True)\nos.chdir(w+'/q/z')\nos.rename(w+'/q/z',w+'/z2')\nprint(open('../../'+os.path.basename(os.environ['OUT'])+'/secret').read())",
            "import os\nfor i in range(50):\n  if os.fork()==0:\n    try: open(os.environ['OUT']+'/race','w').write('ESCAPED')\n    except OSError: pass\n    os._exit(0)\n",
            "import os,signal\nif os.fork()==0:\n  os.setsid()\n  if os.fork()==0:\n    import time\n    for i in range(20):\n      try: open(os.environ['OUT']+'/late','w').write('ESCAPED')\n      except OSError: pass\n      time.sleep(0.01)\n  os._exit(0)",
        ),
    ),
    (
        "proc",
        "sh",
        (
            "cat /proc/1/environ",
            "cat /proc/$PARENT/environ",
            "cat /proc/$VICTIM/environ",
            "cat /proc/*/environ",
            "cat /proc/$PPID/environ",
            "cat /proc/self/root$SECRET",
            "cat /proc/1/root$SECRET",
            "cat /proc/$VICTIM/root$SECRET",
            "cat /proc/$VICTIM/cwd/secret",
            "cat /proc/$PARENT/cwd/secret",
            "ls -l /proc/$PARENT/fd; cat /proc/$PARENT/fd/*",
            "for p in /proc/[0-9]*; do cat $p/root$SECRET; done",
            "cat /proc/*/cwd/secret",
            "echo ESCAPED > /proc/$VICTIM/mem",
            "echo 1 > /proc/sys/kernel/core_pattern; echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
            "echo b > /proc/sysrq-trigger-not-there; ls /proc/kcore && head -c 16 /proc/kcore",
            "head -c 64 /dev/mem",
            "cat /proc/kmsg | head -1",
            "echo 1000 > /proc/$VICTIM/oom_score_adj",
            "echo x > /proc/$VICTIM/comm",
            "cat /proc/1/maps | head -1; cat /proc/$PARENT/maps",
            "cat /dev/vda | head -c 16; cat /dev/sda | head -c 16",
            "cat /proc/self/../$PARENT/environ",
            "cat /proc/$PARENT/task/$PARENT/environ",
            "cat /proc/thread-self/root$SECRET",
        ),
    ),
    (
        "sockets",
        "py",
        tuple(
            _SOCK + text
            for text in (
                "s=socket.socket(socket.AF_UNIX);s.connect(os.environ['SOCK']);s.send(b'ESCAPED')",
                "s=socket.socket(socket.AF_UNIX);s.connect('\\0'+os.environ['ABSTRACT']);s.send(b'ESCAPED')",
                "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM);s.sendto(b'ESCAPED',os.environ['SOCK']+'.d')",
                "s,t=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM);s.connect(os.environ['SOCK']+'.d');s.send(b'ESCAPED')",
                "s,t=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM);s.sendto(b'ESCAPED',os.environ['SOCK']+'.d')",
                "s,t=socket.socketpair(socket.AF_UNIX,socket.SOCK_RAW);s.sendmsg([b'ESCAPED'],[],0,os.environ['SOCK']+'.d')",
                "s,t=socket.socketpair(socket.AF_UNIX,socket.SOCK_STREAM);s.connect(os.environ['SOCK']);s.send(b'ESCAPED')",
                "s,t=socket.socketpair(socket.AF_UNIX,socket.SOCK_SEQPACKET);s.sendmsg([b'ESCAPED'],[],0,os.environ['SOCK']+'.d')",
                "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM);s.sendto(b'ESCAPED','\\0'+os.environ['ABSTRACT']+'d')",
                "s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET);s.connect(os.environ['SOCK']);s.send(b'ESCAPED')",
                "s=socket.socket(socket.AF_UNIX);s.bind(os.environ['OUT']+'/bound')",
                "os.chdir(os.environ['OUT']);s=socket.socket(socket.AF_UNIX);s.connect('sock');s.send(b'ESCAPED')",
                "s=socket.socket(socket.AF_UNIX);s.connect('/proc/self/root'+os.environ['SOCK']);s.send(b'ESCAPED')",
                "s=socket.socket(socket.AF_UNIX);s.connect('/var/run/docker.sock');s.send(b'GET /info HTTP/1.0\\r\\n\\r\\n');print('MARK-DOCKER')",
                "s=socket.socket(socket.AF_UNIX);s.connect('/run/dbus/system_bus_socket');print('MARK-DBUS')",
                "a=os.environ.get('SSH_AUTH_SOCK') or os.environ['SOCK'];s=socket.socket(socket.AF_UNIX);s.connect(a);s.send(b'ESCAPED')",
                "d=os.open(os.environ['OUT'],os.O_PATH);s=socket.socket(socket.AF_UNIX);s.connect(f'/proc/self/fd/{d}/sock');s.send(b'ESCAPED')",
            )
        ),
    ),
    (
        "network by address",
        "py",
        tuple(
            _SOCK + text
            for text in (
                "s=socket.create_connection(('127.0.0.1',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('0.0.0.0',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('127.1',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('2130706433',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('::ffff:127.0.0.1',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('::1',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('0x7f.1',int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.sendto(b'ESCAPED',('127.0.0.1',int(os.environ['UDP'])))",
                "s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM);s.sendto(b'ESCAPED',('::ffff:127.0.0.1',int(os.environ['UDP'])))",
                "s=socket.create_connection((os.environ['HOSTIP'],int(os.environ['PORT'])),2);s.send(b'ESCAPED')",
                "s=socket.create_connection(('169.254.169.254',80),1);print('MARK-METADATA')",
                "s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_ICMP);print('MARK-RAW')",
                "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);print('MARK-PACKET')",
                "s=socket.socket(40,socket.SOCK_STREAM);s.connect((2,1024));print('MARK-VSOCK')",
                "s=socket.socket(38,socket.SOCK_SEQPACKET);print('MARK-ALG')",
                "s=socket.socket(socket.AF_INET);s.sendto(b'ESCAPED',0x20000000,('127.0.0.1',int(os.environ['PORT'])))",
                "s=socket.socket(socket.AF_INET,socket.SOCK_STREAM,132);s.settimeout(1);s.connect(('127.0.0.1',int(os.environ['PORT'])));s.send(b'ESCAPED')",
                "s=socket.socket(16,3,9);print('MARK-NETLINK-AUDIT')",
            )
        ),
    ),
    (
        "network by name and DNS",
        "sh",
        (
            "curl -s -m 2 http://localhost:$PORT/ESCAPED",
            "curl -s -m 2 http://127.0.0.1:$PORT/ESCAPED",
            "wget -q -T 2 -t 1 http://localhost:$PORT/ESCAPED -O -",
            "exec 3<>/dev/tcp/127.0.0.1/$PORT; echo ESCAPED >&3",
            "echo ESCAPED > /dev/udp/127.0.0.1/$UDP",
            "curl -s -m 2 http://$(hostname):$PORT/ESCAPED",
            "curl -s -m 1 http://metadata.google.internal/ && echo MARK-METADATA",
            "curl -s -m 1 http://169.254.169.254/ && echo MARK-METADATA",
            "python3 -c \"import socket;print('MARK-DNS',socket.gethostbyname('example.com'))\"",
            "getent hosts example.com && echo MARK-DNS",
            "curl -s -m 2 --proxy http://127.0.0.1:$PORT http://x/ESCAPED",
            "git ls-remote git://127.0.0.1:$PORT/ESCAPED",
            "curl -s -m 2 http://[::1]:$PORT/ESCAPED",
            "python3 -c \"import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.sendto(b'ESCAPED',('127.0.0.53',53));s.settimeout(1);print('MARK-DNS',s.recv(9))\"",
            "curl -s -m 2 --unix-socket $SOCK http://x/ESCAPED",
        ),
    ),
    (
        "environment",
        "sh",
        (
            "env | grep -i mark",
            "printenv CANARY_API_KEY",
            "cat /proc/self/environ",
            "echo $CANARY_API_KEY",
            "set | grep -i mark",
            "ps auxeww | grep -o CANARY_API_KEY=M[A]RK-KEY",
            "echo 'echo ESCAPED > $OUT/rc' >> ~/.bashrc; bash -ic true",
            "LD_PRELOAD=$OUT/victim cat $SECRET",
            "PATH=$OUT:$PATH; cat $SECRET",
            "echo ESCAPED > $HOME_OUT/.profile",
            "echo ESCAPED > $HOME_OUT/.gitconfig",
            "git config --global core.pager ESCAPED; cat $HOME_OUT/.gitconfig | sed s/ESCAPED/x/",
            "python3 -c \"import os;print(open('/proc/%d/environ'%os.getppid()).read())\"",
        ),
    ),
    (
        "terminal",
        "py",
        (
            "import fcntl\nfor c in b'echo ESCAPED\\n': fcntl.ioctl(0,0x5412,bytes([c]))",
            "import fcntl,os\nf=os.open('/dev/tty',os.O_RDWR)\nfcntl.ioctl(f,0x5412,b'E')",
            "import fcntl,os\nfcntl.ioctl(0,0x541C,b'\\x03')\nprint('MARK-LINUX')",
            "import os\nfor n in range(20):\n  try:\n    f=os.open(f'/dev/pts/{n}',os.O_WRONLY|os.O_NOCTTY);os.write(f,b'ESCAPED');print('MARK-PTS')\n  except OSError: pass",
            "import os\nf=os.open('/dev/console',os.O_WRONLY|os.O_NOCTTY);print('MARK-CONSOLE')",
            "import os\nf=os.open('/dev/tty1',os.O_WRONLY|os.O_NOCTTY);print('MARK-TTY1')",
            "import fcntl,ctypes\nl=ctypes.CDLL(None,use_errno=True)\nr=l.ioctl(0,ctypes.c_ulong(0x100005412),b'E')\nprint('MARK-STI' if r==0 else '')",
        ),
    ),
    (
        "namespaces",
        "sh",
        (
            "unshare -Ur cat $SECRET",
            "unshare -Urm sh -c 'mount --bind / /mnt && cat /mnt$SECRET'",
            "unshare -Urn true && echo MARK-NS",
            "unshare -Urp --fork true && echo MARK-NS",
            "nsenter -t 1 -m cat $SECRET",
            "nsenter -t $PARENT -m -n -p cat $SECRET",
            "mount -t tmpfs x $WS && echo MARK-MOUNT",
            "mount --bind $OUT $WS; cat $WS/secret",
            "umount /tmp; umount -l /proc; cat $SECRET",
            "mount -o remount,rw /usr && echo MARK-REMOUNT",
            "chroot / cat $SECRET",
            "bwrap --bind / / cat $SECRET",
            "pivot_root . . && echo MARK-PIVOT",
            "umount $HOME; cat $HOME_OUT/.ssh/id_rsa",
            "mount -t proc p /proc && cat /proc/$VICTIM/environ",
        ),
    ),
    (
        "namespaces",
        "py",
        (
            "import ctypes\nl=ctypes.CDLL(None)\nprint('MARK-NS' if l.unshare(0x10000000)==0 else '')",
            "import ctypes\nl=ctypes.CDLL(None)\nprint('MARK-NS' if l.unshare(0x00020000)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\np=l.syscall(56,0x10000000|17,0,0,0,0)\nif p==0: os.write(1,b'MARK-CLONE'); os._exit(0)",
            "import ctypes,os,struct\nl=ctypes.CDLL(None)\na=struct.pack('QQQQQQQQ',0x10000000,0,0,0,17,0,0,0)\np=l.syscall(435,a,64)\nif p==0: os.write(1,b'MARK-CLONE3'); os._exit(0)",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-OPENTREE' if l.syscall(428,-100,b'/',1)>=0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-FSOPEN' if l.syscall(430,b'tmpfs',0)>=0 else '')",
            "import ctypes,os\nf=os.open('/proc/1/ns/mnt',os.O_RDONLY)\nl=ctypes.CDLL(None)\nprint('MARK-SETNS' if l.setns(f,0)==0 else '')",
            "import os\nos.chroot('/')\nprint('MARK-CHROOT')",
            "import os\nos.write(os.open('/proc/self/uid_map',os.O_WRONLY),b'0 0 1')\nprint('MARK-MAP')",
        ),
    ),
    (
        "ptrace and signals",
        "py",
        (
            "import os,signal\nos.kill(int(os.environ['VICTIM']),signal.SIGKILL)",
            "import os,signal\nos.kill(int(os.environ['PARENT']),signal.SIGUSR1)",
            "import os,signal\nos.killpg(int(os.environ['VICTIM']),signal.SIGKILL)",
            "import os,signal\nf=os.pidfd_open(int(os.environ['VICTIM']));signal.pidfd_send_signal(f,9)",
            "import os,signal\nfor p in range(2,400):\n  if p!=os.getpid() and p==int(os.environ['VICTIM']): os.kill(p,9)",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-PTRACE' if l.ptrace(16,int(os.environ['VICTIM']),0,0)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-SEIZE' if l.ptrace(0x4206,os.getppid(),0,0)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-TRACEME' if l.ptrace(0,0,0,0)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nb=ctypes.create_string_buffer(64)\nprint('MARK-VMREAD' if l.syscall(310,os.getpid(),b,1,b,1,0)>=0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nf=os.pidfd_open(int(os.environ['VICTIM']))\nprint('MARK-GETFD' if l.syscall(438,f,0,0)>=0 else '')",
            "import os\nopen('/proc/%s/mem'%os.environ['VICTIM'],'r+b').write(b'x')",
            "import os,resource\nresource.prlimit(int(os.environ['VICTIM']),resource.RLIMIT_NOFILE,(1,1))\nprint('MARK-PRLIMIT')",
            "import os\nos.setpriority(os.PRIO_PROCESS,int(os.environ['VICTIM']),19)\nprint('MARK-NICE')",
            "import os\nos.sched_setaffinity(int(os.environ['VICTIM']),{0})\nprint('MARK-AFFINITY')",
        ),
    ),
    (
        "kernel calls",
        "py",
        tuple(
            "import ctypes,os\nl=ctypes.CDLL(None)\nb=ctypes.create_string_buffer(256)\n" + text
            for text in (
                "print('MARK-URING' if l.syscall(425,8,b)>=0 else '')",
                "print('MARK-URING' if l.syscall(426,0,0,0,0,0,0)>=0 else '')",
                "print('MARK-URING' if l.syscall(427,0,0,0,0)>=0 else '')",
                "print('MARK-BPF' if l.syscall(321,0,b,64)>=0 else '')",
                "print('MARK-UFFD' if l.syscall(323,1)>=0 else '')",
                "print('MARK-KEYCTL' if l.syscall(250,0,-3,1)>=0 else '')",
                "print('MARK-ADDKEY' if l.syscall(248,b'user',b'x',b'y',1,-3)>=0 else '')",
                "print('MARK-REQKEY' if l.syscall(249,b'user',b'x',0,-3)>=0 else '')",
                "print('MARK-PERF' if l.syscall(298,b,0,-1,-1,0)>=0 else '')",
                "print('MARK-HANDLE' if l.syscall(304,-100,b,0)>=0 else '')",
                "print('MARK-MODULE' if l.syscall(175,b,0,b'')>=0 else '')",
                "print('MARK-KEXEC' if l.syscall(246,0,0,0,0)>=0 else '')",
                "print('MARK-SYSLOG' if l.syscall(103,3,b,255)>=0 else '')",
                "print('MARK-IOPL' if l.syscall(172,3)>=0 else '')",
                "print('MARK-SWAP' if l.syscall(168,b'/x')>=0 else '')",
                "print('MARK-ACCT' if l.syscall(163,0)>=0 else '')",
                "print('MARK-HOST' if l.sethostname(b'escaped',7)==0 else '')",
                "print('MARK-FANOTIFY' if l.syscall(300,0,0)>=0 else '')",
                "print('MARK-X32' if l.syscall(0x40000000+41,2,1,0)>=0 else '')",
                "print('MARK-CAP' if l.capset(b,b)==0 and l.syscall(126,b,b)==99 else '')",
                "l.prctl(38,0,0,0,0)\nprint('MARK-NNP' if l.prctl(39,0,0,0,0)==0 else '')",
                "print('MARK-DUMP' if l.prctl(22,0,0,0,0)==0 else '')",
            )
        ),
    ),
    (
        "memfd, exec and setuid",
        "sh",
        (
            "su -c 'cat $SECRET' nobody </dev/null",
            "sudo -n cat $SECRET",
            "pkexec cat $SECRET",
            "cp /bin/cat $WS/c; chmod u+s $WS/c; $WS/c $SECRET",
            "setpriv --reuid 1 cat $SECRET",
            "chsh -s /bin/sh root; passwd -d root",
            "mount; newgrp root <<< 'cat $SECRET'",
            "/usr/bin/su root -c 'cat /etc/shadow'",
            "runuser -u nobody cat $SECRET",
            "at now <<< 'echo ESCAPED > $OUT/at'",
            "crontab - <<< '* * * * * echo ESCAPED > $OUT/cron'",
            "systemd-run --user sh -c 'echo ESCAPED > $OUT/unit'",
            "systemctl --user daemon-reload && echo MARK-SYSTEMD",
            "mkdir -p $HOME_OUT/.config/autostart; echo ESCAPED > $HOME_OUT/.config/autostart/x",
        ),
    ),
    (
        "memfd, exec and setuid",
        "py",
        (
            "import os\nf=os.memfd_create('x')\nos.write(f,open('/bin/cat','rb').read())\nos.execv(f'/proc/self/fd/{f}',['cat',os.environ['SECRET']])",
            "import os\nf=os.memfd_create('x')\nos.write(f,open('/bin/cat','rb').read())\nos.execve(f,['cat',os.environ['SECRET']],{})",
            "import os\nos.setuid(1)\nprint(open(os.environ['SECRET']).read())",
            "import os\nos.setgroups([0])\nprint('MARK-GROUPS')",
            "import os\nfor fd in range(3,64):\n  try: print(os.readlink(f'/proc/self/fd/{fd}'),os.read(fd,999))\n  except OSError: pass",
            "import os\nfor fd in range(3,64):\n  try: print(os.listdir(fd)); print(open(os.open('secret',os.O_RDONLY,dir_fd=fd)).read())\n  except OSError: pass",
        ),
    ),
    (
        "exhaustion",
        "py",
        (
            "import os\nf=open(os.environ['WS']+'/big','wb')\nf.truncate(1<<44)\nprint('MARK-BIG')",
            "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE,(-1,-1))\nprint('MARK-RLIMIT')",
            "import resource\nresource.setrlimit(resource.RLIMIT_NPROC,(-1,-1))\nprint('MARK-RLIMIT')",
            "a=[]\ntry:\n  for i in range(64): a.append(bytearray(64<<20))\n  print('MARK-MEMORY')\nexcept MemoryError: print('held')",
            "import mmap\nm=mmap.mmap(-1,4<<30,mmap.MAP_PRIVATE)\nprint('MARK-MEMORY')",
            "import resource\nresource.setrlimit(resource.RLIMIT_CORE,(-1,-1))\nprint('MARK-CORE')",
            "import os\nos.nice(-5)\nprint('MARK-NICE')",
        ),
    ),
    (
        "shared by the machine",
        "py",
        (
            "import ctypes,os\nl=ctypes.CDLL(None)\ni=l.shmget(int(os.environ['KEY']),0,0)\nprint('MARK-SHM' if i>=0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nl.shmat.restype=ctypes.c_long\nprint('MARK-SHMID' if l.shmat(int(os.environ['SHM']),None,0)!=-1 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-SHMRM' if l.shmctl(int(os.environ['SHM']),0,0)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\ni=l.semget(int(os.environ['KEY']),0,0)\nprint('MARK-SEM' if i>=0 and l.semctl(i,0,16,7)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-SEMID' if l.semctl(int(os.environ['SEM']),0,16,7)==0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\ni=l.msgget(int(os.environ['KEY']),0)\nprint('MARK-MSG' if i>=0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nprint('MARK-MSGID' if l.msgctl(int(os.environ['MSG']),0,0)==0 else '')",
            "import fcntl,os\nfor name in ('/etc/passwd','/etc/hosts','/usr/bin/env'):\n  try:\n    fcntl.fcntl(os.open(name,os.O_RDONLY),1024,1); print('MARK-LEASE')\n  except OSError: pass",
            "import fcntl,os\nfor name in ('/etc/passwd','/etc/hosts'):\n  f=os.open(name,os.O_RDONLY); b=bytearray(8)\n  try:\n    fcntl.ioctl(f,0x80086601,b); fcntl.ioctl(f,0x40086602,bytes(b)); print('MARK-FLAGS')\n  except OSError: pass",
            "import ctypes,os\nl=ctypes.CDLL(None)\nb=ctypes.create_string_buffer(32)\nif l.syscall(468,-100,b'/etc/hosts',b,24,0)==0: print('MARK-ATTR' if l.syscall(469,-100,b'/etc/hosts',b,24,0)==0 else '')",
            "for name in ('vm/swappiness','kernel/core_pattern','kernel/domainname','fs/suid_dumpable'):\n  try:\n    old=open('/proc/sys/'+name).read(); f=open('/proc/sys/'+name,'w'); f.write(old); f.close(); print('MARK-SYSCTL')\n  except OSError: pass",
            "import os\np=os.getppid()\nwhile p:\n  try:\n    os.open(f'/proc/{p}/mem',os.O_RDWR); print('MARK-MEM' if p!=os.getppid() else '')\n  except OSError: pass\n  p=int(open(f'/proc/{p}/stat').read().rpartition(')')[2].split()[1])",
            "import os\nfor name in ('oom_score_adj','coredump_filter','autogroup','sched','clear_refs','comm'):\n  try:\n    os.open('/proc/%s/'%os.environ['VICTIM']+name,os.O_WRONLY); print('MARK-PROC')\n  except OSError: pass",
            "import ctypes,os\nl=ctypes.CDLL(None)\nopen(os.environ['WS']+'/e','w').write('ESCAPED')\nl.renameat2(-100,(os.environ['WS']+'/e').encode(),-100,(os.environ['OUT']+'/victim').encode(),2)",
            "import os\nf=os.open(os.environ['WS'],os.O_TMPFILE|os.O_RDWR)\nos.write(f,b'ESCAPED')\nos.link(f'/proc/self/fd/{f}',os.environ['OUT']+'/linked',follow_symlinks=True)",
            "import os\nfor name in (os.environ['OUT']+'/victim',os.environ['SECRET'],'/usr/bin/env'):\n  try:\n    os.link(name,os.environ['WS']+'/hl'); print('MARK-HARD')\n  except OSError: pass",
            "import fcntl,os,signal,time\nr,w=os.pipe()\nfcntl.fcntl(r,8,int(os.environ['VICTIM'])); fcntl.fcntl(r,10,signal.SIGKILL); fcntl.fcntl(r,4,os.O_NONBLOCK|0o20000)\nos.write(w,b'x'); time.sleep(.1)",
            "import ctypes,os\nl=ctypes.CDLL(None)\nb=ctypes.create_string_buffer(120)\nprint('MARK-URING' if l.syscall(425,8,b)>=0 else '')",
            "import os\nos.open('/dev/userfaultfd',os.O_RDWR); print('MARK-UFFD')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nf=os.pidfd_open(int(os.environ['VICTIM']))\nprint('MARK-GETFD' if l.syscall(438,f,0,0)>=0 else '')",
            "import ctypes,os\nl=ctypes.CDLL(None)\nb=ctypes.create_string_buffer(8); v=(ctypes.c_size_t*2)(ctypes.addressof(b),8)\np=os.getppid()\nprint('MARK-VMWRITE' if l.process_vm_writev(p,v,1,v,1,0)>=0 else '')",
            "import socket\nsocket.socket(38,5,0); print('MARK-ALG')",
        ),
    ),
)
