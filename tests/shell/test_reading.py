"""What a command runs and names, whatever it is wrapped in: the reading that approval and memory share."""

from __future__ import annotations

import subprocess
import sys

from tests.support import each
from whet.shell.fetches import find_fetched_packages, find_left_names, reaches_out
from whet.shell.reading import file_names, read


@each(
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


@each(
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


@each(
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
    assert find_fetched_packages("sudo -E pip install 'Pandas>=2' -q") == {"pandas"}
    mixed = "pip install -r a.txt -c b.txt ./here evil==1.0.0 zope.x"
    assert find_fetched_packages(mixed) == {"evil", "zope.x"}
    assert find_fetched_packages("npm i @evil/pkg@2 owner/repo") == {"@evil/pkg", "owner/repo"}
    assert find_fetched_packages("git pull") == set()
    assert find_fetched_packages("git pull origin main") is None
    assert "out.json" in find_left_names("cat a.ini; sh -c 'curl -s $U > out.json'")
    assert "a.ini" not in find_left_names("cat a.ini; curl -s $U > out.json")
    assert "EOF" not in find_left_names("curl x; cat <<EOF > y\nz\nEOF")


@each(
    ("command", "parts", "programs", "files", "bare", "is_doubtful"),
    [
        ("ls a/b", "ls a/b", "ls", "a/b", "", False),
        ("d=x; cat $d/a", "cat x/a", "cat", "x x/a", "", False),
        ("cat a > b < c", "cat a", "cat", "b c a", "", False),
        ("sh -c 'cat a | sort > b'", "sh -c cat a | sort > b; cat a; sort", "cat sh sort", "b a", "", False),
        ("python -c \"open('a/b')\"", "python -c open('a/b') | open('a/b')", "python", "a/b", "", False),
        (
            "python - <<E\nopen('c/d')\nE",
            "python | open('c/d')\n",
            "python",
            "c/d",
            "python - <<E\n___________\n_",
            False,
        ),
        ("timeout 5 ./x a", "timeout 5 ./x a; x a", "./x timeout", "5 ./x a", "", False),
        ("a --in=b/c -x", "a --in=b/c -x", "a", "b/c", "", False),
        ("env A=1 b c", "env A=1 b c; b c", "b env", "1 c", "", False),
        ("uv run --x x y z", "uv run --x x y z; x y z; y z?", "uv x", "run y z", "", False),
        ("source ./a", "source ./a", "./a", "./a", "", False),
        ("(a; b)", "a; b", "a b", "", "", False),
        ("a 'b c' \"d e\"", "a b c d e", "a", "", "a __ __ __ __", False),
        ('echo "a $(b c)"', "b c; echo a $(b c)", "b echo", "c", "", False),
        ("sh -c 'a b'", "sh -c a b; a b", "a sh", "b", "", False),
        ("cat <<E\na b\nE", "cat", "cat", "a b", "cat <<E\n_ _\n_", False),
        ("cat <<E | sh\na b\nE", "cat; sh", "cat sh", "a b", "cat <<E | sh\n_ _\n_", False),
        ("a {b,c}/d", "a b/d c/d", "a", "b/d c/d", "", False),
        ("if then ( cat a.ini", "cat a.ini", "cat", "a.ini if then cat", "", True),
        ("$X a", "$X a", "$X", "a", "", False),
        ("cat ${a}b/c", "cat ${a}b/c", "cat", "${a}b/c *b/c", "", False),
        ("cat $(date).x", "date; cat $(date).x", "cat date", "$(date).x *.x", "", False),
        ("cat *.py", "cat *.py", "cat", "*.py", "", False),
        ("echo 'a/b c'", "echo a/b c", "echo", "a/b", "echo ____ __", False),
        ("f 'x y' 'z'", "f x y z", "f", "z", "f __ __ 'z'", False),
        ("make; ./make a", "make; make a", "./make make", "./make a", "", False),
        ("/bin/cat a", "cat a", "/bin/cat", "/bin/cat a", "", False),
    ],
)
def test_a_command_is_read_as_its_parts_and_the_files_that_they_name(
    command: str, parts: str, programs: str, files: str, bare: str, is_doubtful: bool
) -> None:
    """An empty `bare` is the command itself."""
    reading = read(command)
    lines = [part.line + (" | " + part.code) * bool(part.code) + "?" * part.guessed for part in reading.parts]
    assert ("; ".join(lines), " ".join(sorted(reading.programs))) == (parts, programs)
    assert (" ".join(reading.files), reading.bare) == (files, bare or command)
    assert reading.is_doubtful is is_doubtful


def test_texts_that_run_texts_are_read_up_to_a_depth() -> None:
    for depth, is_doubtful in ((6, False), (7, True)):
        reading = read("eval " * depth + "a")
        assert [part.line for part in reading.parts] == ["eval " * n + "a" for n in range(depth, -1, -1)]
        assert (reading.files, reading.is_doubtful) == (("eval", "a"), is_doubtful)


def test_strings_are_positions_of_which_none_is_inside_another() -> None:
    assert read("f 'a b''c d'").strings == ((2, 7, False), (7, 12, False))
    assert read("echo \"a $(b 'c d')\" 'e f'").strings == ((5, 19, False), (20, 25, False))
    assert read("x='a b' c").bare == "x=__ __ c"
    assert read("git commit -m 'a bc' x").bare == "git commit -m __ ___ x"
    assert read("sh -c 'a bc' \"d e\"").bare == "sh -c 'a bc' __ __"
    assert read("cat > x <<E\na b\nE\nls").bare == "cat > x <<E\n_ _\n_\nls"


@each(
    ("word", "files"),
    [
        ("a", ["a"]),
        ("a=b", ["b"]),
        ("-x", []),
        ("--x=y", ["y"]),
        ("--x", []),
        ("<a>", ["a"]),
        ("a b/c d", ["b/c"]),
        ("open('x')", ["x"]),
        ('f"{a}/b"', ['f"{a}/b', 'f"*/b']),
        ("{a}/b", ["{a}/b", "*/b"]),
        ("$A/b", ["$A/b", "*/b"]),
        ("a/%s.x", ["a/%s.x", "a/*.x"]),
        ("$(a b)/c", ["$(a b)/c", "*/c"]),
        ("a  'b'", ["b"]),
        ("$A", ["$A"]),
        ("*", ["*"]),
        ("x=$A/y", ["$A/y", "*/y"]),
        ("a*{b}c", ["a*{b}c", "a*c"]),
        ("(x)", []),
    ],
)
def test_a_word_may_name_files(word: str, files: list[str]) -> None:
    assert list(file_names([word])) == files


def test_a_command_that_is_too_long_is_doubtful_only_in_its_words() -> None:
    long = read("a " + "x" * 100_000)
    assert long.files[-1] == "x" * 100_000 and not read("a " + "x" * 99_998).files[1:]
    assert len(read("; ".join(["a"] * 30)).parts) == 30


def test_reading_a_command_loads_only_the_compiled_part_of_the_grammars_package() -> None:
    code = (
        "import sys; from whet.shell import parse\n"
        "assert not parse._parser().parse(b'true').root_node.has_error\n"
        "print(*({'importlib.resources', 'tempfile', 'shutil'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (process.stdout, process.stderr) == ("\n", "")
