"""The numbered steps that build the database's schema. Each is applied once, in order, in one transaction.

The file's `user_version` is the number of applied steps; its table `migrations` records when each was
applied.
"""

from __future__ import annotations

from whet.store.migrations import m001_m006, m007_m012, m013_m028, m029_m034

STEPS: dict[str, str] = {}
"""The SQL of each step by its name, in order."""
for _module in (m001_m006, m007_m012, m013_m028, m029_m034):
    for _name, _text in vars(_module).items():
        if _name.startswith("M0"):
            STEPS[_name.lower()] = _text
