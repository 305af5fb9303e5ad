"""What a command runs and names, whatever it is wrapped in: the reading that approval and memory share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from whet.shell.fetches import fetched_packages, left_names, reaches_out
from whet.shell.reading import read


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("timeout -k 5 10 env A=b nice ./x | tail -3", {"timeout", "env", "nice", "./x", "tail"}),
        ("sh -c 'cd a && make'", {"sh", "cd", "make"}),
        ("bash <<'E'\nmake all\nE", {"bash", "make"}),
        ("cat <<'E' > a.sh\nmake all\nE", {"cat"}),
        ("source .venv/bin/activate && (pytest -q)", {".venv/bin/activate", "pytest"}),
        ("x=$(curl a.b) && echo `id`", {"curl", "echo", "id"}),
        ("git commit -m 'ls; rm x'", {"git"}),
        ("nc = 3", {"nc"}),
        ("A=$(id) B=`pwd` make", {"id", "pwd", "make"}),
        ("$'\\x6cs' $'\\U110000' && $'\\154s' $'\\u263a'", {"ls"}),
    ],
)
def test_what_runs_is_seen_through_wrappers_and_substitutions(command: str, programs: set[str]) -> None:
    assert read(command).programs == programs


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("d=dl; tar xzf $d/a.tgz", "dl/a.tgz"),
        ("cat <conf.ini", "conf.ini"),
        ("sh -c 'cat a.ini | sort > b.ini'", "b.ini"),
        ("python3 - <<'E'\nprint(open('dl/a.ini').read())\nE", "dl/a.ini"),
        ("python3 -c 'open(f\"dl/{name}.ini\")'", "dl/*.ini"),
        ("cat dl/$NAME.ini", "dl/*.ini"),
        ("python3 - <<'E'\nimport os\nprint([open(os.path.join('dl', x)).read() for x in y])\nE", "dl"),
        ("cat dl/$(date +%F).ini", "dl/*.ini"),
        ("prog --in=a.ini", "a.ini"),
        ("cat {a,b}.ini", "b.ini"),
        ("if then ( cat a.ini", "a.ini"),
    ],
)
def test_files_are_named_by_variables_redirections_and_code(command: str, name: str) -> None:
    assert name in read(command).files


def test_strings_are_covered_unless_a_shell_runs_them() -> None:
    assert read("git commit -m 'a bc' x").bare == "git commit -m __ ___ x"
    assert read("sh -c 'a bc' \"d e\"").bare == "sh -c 'a bc' __ __"
    assert read("cat > x <<E\na b\nE\nls").bare == "cat > x <<E\n_ _\n_\nls"
    assert read('echo "a $(b c)"').bare == 'echo "a $(b c)"'
    assert read("echo \"a $(b 'c d')\" 'e f'").strings == ((5, 19, False), (20, 25, False))


@pytest.mark.parametrize(
    ("command", "reaches"),
    [
        ("env A=b curl x", True),
        ("sh -c 'pip install x'", True),
        ("python3 -m pip install x", True),
        ("git -C a pull", True),
        ("python3 - <<'E'\nimport subprocess\nsubprocess.run(['pip', 'install', 'x'])\nE", True),
        ("curl localhost:80 http://localhost:80/x", False),
        ("nc_total=3; echo $nc_total", False),
        ("cat > x.py <<'E'\nnc = 3\nE", False),
        ("if then ( pip install x", True),
    ],
)
def test_what_reaches_the_network_is_told_by_programs_and_verbs(command: str, reaches: bool) -> None:
    assert reaches_out(command) is reaches


def test_packages_and_what_is_left_are_told_from_the_words() -> None:
    assert fetched_packages("sudo -E pip install 'Pandas>=2' -q") == {"pandas"}
    assert fetched_packages("pip install -r a.txt -c b.txt ./here evil==1.0.0 zope.x") == {"evil", "zope.x"}
    assert fetched_packages("npm i @evil/pkg@2 owner/repo") == {"@evil/pkg", "owner/repo"}
    assert fetched_packages("git pull") == set() and fetched_packages("git pull origin main") is None
    assert "out.json" in left_names("cat a.ini; sh -c 'curl -s $U > out.json'")
    assert "a.ini" not in left_names("cat a.ini; curl -s $U > out.json")
    assert "EOF" not in left_names("curl x; cat <<EOF > y\nz\nEOF")


def test_reading_a_command_loads_only_the_compiled_part_of_the_grammars_package() -> None:
    code = (
        "import sys; from whet.shell import parse\n"
        "assert not parse._parser().parse(b'true').root_node.has_error\n"
        "print(*({'importlib.resources', 'tempfile', 'shutil'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("\n", "")
