"""Judge the cases of a file: `python -m benchmarks.outcomes FILE.jsonl`."""

import sys

from benchmarks.outcomes import KINDS, run_all

tally = run_all(sys.argv[1])
for kind in KINDS:
    if total := tally.total.get(kind):
        print(f"{kind}: {round(tally.recall(kind) * total)} of {total}")
print(f"false alarms: {len(tally.alarms)} of {tally.calls}")
print(*tally.missed, *tally.alarms, sep="\n")
