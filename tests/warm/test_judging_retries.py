"""What the next call and the person's next words show of a call that ended with 0."""

from __future__ import annotations

from tests.support import each
from tests.warm.test_judging import edit, outcomes, run


@each(
    ("first", "output", "again", "result", "is_vain"),
    [
        (
            "psql -c 'update a set b=c where id=7'",
            "UPDATE 0",
            "psql -c 'update a set b=c where no=7'",
            "UPDATE 1",
            True,
        ),
        ("psql -c 'select count(*) from a'", "0", "psql -c 'select count(*) from b'", "4", False),
        ("./sell --kind car", "0 of 12 cars", "./sell --kind bike", "3 of 12 bikes", True),
        ("python -c 'print(0)'", "0", "python -c 'print(2)'", "2", False),
        (
            "python load.py",
            "No se pudo abrir ventas.csv",
            "python load.py data/ventas.csv",
            "318 filas",
            True,
        ),
        ("./load a.csv", "212 clients importés", "./load data/b.csv", "40 clients importés", False),
        ("./load a.csv", "a.csv: ok", "./load b.csv", "b.csv: 3 columns", False),
        ("./out --as parquet", "unknown format 'parquet'", "./out --as pq", "120 rows", True),
        ("./out --as json", '{"as": "json"}', "./out --as csv", "a,b", False),
        ("./out --as json", "wrote it as json", "./out --as csv", "wrote it as csv", False),
        ("curl -s a.test/v1", "(no output)", "curl -s a.test/v2", "[1]", False),
        ("./put a", "(no output)", "./put b", "kept", False),
        ("ninja app", "ninja: no work to do.", "touch a.c && ninja app", "[1/2] CXX a.o", True),
        ("mypy src", "Success: no issues in 4 files", "mypy src -v", "LOG: all is well", False),
        ("cat a.txt", "nothing about b.txt", "cat a.txt data/b.txt", "lines", False),
    ],
)
def test_the_next_try_shows_that_a_command_had_done_nothing(
    first: str, output: str, again: str, result: str, is_vain: bool
) -> None:
    outcome = outcomes(run(first, output), run(again, result))[0]
    assert (outcome == "failed") is is_vain
    assert outcomes(run(first, output), "Go on.", run(again, result))[0] in ("ok", "failed" * is_vain)


def test_what_git_takes_back_may_be_named_by_its_folder_or_by_the_command_that_changed_it() -> None:
    assert outcomes(edit("src/a.py", "x", "y"), run("git checkout HEAD -- src/"))[0] == "undone"
    assert outcomes(edit("lib/a.py", "x", "y"), run("git checkout HEAD -- src/"))[0] == "ok"
    assert outcomes(run("sed -i s/a/b/ x.py"), run("git checkout x.py"))[0] == "undone"
    assert outcomes(run("python x.py"), run("git checkout x.py"))[0] == "ok"
    assert outcomes(run("git merge fix"), run("git reset --hard ORIG_HEAD"))[0] == "undone"
