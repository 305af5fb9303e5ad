"""Judge the cases of a file, or write the prompts of their reviews:
`python -m benchmarks.outcomes [dump] FILE.jsonl [FOLDER]`."""

import sys
from pathlib import Path

from benchmarks.outcomes import KINDS, cases, find_path, read_items, run_all
from benchmarks.outcomes.replies import case_id, write_prompt


def dump(path: str, folder: Path) -> None:
    """Write the review's prompt of each case of a file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases(path):
        (folder / f"{case_id(case)}.txt").write_text(write_prompt(read_items(case)), "utf-8")


def report(path: str, *, reviewed: bool) -> None:
    """Print what is recognised of the cases of a file."""
    tally = run_all(path, reviewed=reviewed)
    print("with recorded replies:" if reviewed else "the program alone:")
    for kind in KINDS:
        if total := tally.total.get(kind):
            print(f"  {kind}: {round(tally.recall(kind) * total)} of {total}")
    print(f"  false alarms: {len(tally.alarms)} of {tally.calls}; pointers dropped: {tally.dropped}")
    if "-v" in sys.argv:
        print(*tally.missed, *tally.alarms, sep="\n")


if sys.argv[1] == "dump":
    dump(sys.argv[2], Path(sys.argv[3]))
else:
    report(sys.argv[1], reviewed=False)
    if find_path(sys.argv[1]).with_suffix(".replies.jsonl").exists():
        report(sys.argv[1], reviewed=True)
