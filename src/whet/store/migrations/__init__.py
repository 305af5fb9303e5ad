"""The schema's history: numbered steps, each applied once, in order, in one transaction.

The file's `user_version` is the number of the last one; its table `migrations` says what was applied when.
"""

from __future__ import annotations

from whet.store.migrations import m001_m006 as first
from whet.store.migrations import m007_m012 as later
from whet.store.migrations import m013_m015 as newest
from whet.store.migrations.m016 import M016_GOALS
from whet.store.migrations.m017 import M017_POSITIONS
from whet.store.migrations.m018 import M018_GOAL_SCHEDULES
from whet.store.migrations.m019 import M019_FORKS
from whet.store.migrations.m023 import M023_HELPERS
from whet.store.migrations.m024 import M024_PLANNING
from whet.store.migrations.m026 import M026_TITLES
from whet.store.migrations.m027 import M027_SHORT_PARTS

STEPS: dict[str, str] = {
    "m001_sessions": first.M001_SESSIONS,
    "m002_learning": first.M002_LEARNING,
    "m003_reviews": first.M003_REVIEWS,
    "m004_imports": first.M004_IMPORTS,
    "m005_warm": first.M005_WARM,
    "m006_outcomes": first.M006_OUTCOMES,
    "m007_people": later.M007_PEOPLE,
    "m008_schedules": later.M008_SCHEDULES,
    "m009_api": later.M009_API,
    "m010_gateway": later.M010_GATEWAY,
    "m011_moved": later.M011_MOVED,
    "m012_chosen_models": later.M012_CHOSEN_MODELS,
    "m013_rewinds": newest.M013_REWINDS,
    "m014_search": newest.M014_SEARCH,
    "m015_pointed": newest.M015_POINTED,
    "m016_goals": M016_GOALS,
    "m017_positions": M017_POSITIONS,
    "m018_goal_schedules": M018_GOAL_SCHEDULES,
    "m019_forks": M019_FORKS,
    "m023_helpers": M023_HELPERS,
    "m024_planning": M024_PLANNING,
    "m026_titles": M026_TITLES,
    "m027_short_parts": M027_SHORT_PARTS,
}
"""The SQL of each step by its name, in order."""
