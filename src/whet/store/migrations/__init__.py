"""The schema's history: numbered steps, each applied once, in order, in one transaction.

The file's `user_version` is the number of the last one; its table `migrations` says what was applied when.
"""

from __future__ import annotations

from whet.store.migrations import m001_m006, m007_m012, m013_m027

STEPS: dict[str, str] = {
    name.lower(): text
    for module in (m001_m006, m007_m012, m013_m027)
    for name, text in vars(module).items()
    if name.startswith("M0")
}
"""The SQL of each step by its name, in order."""
