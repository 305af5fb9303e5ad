"""The schema's history: numbered steps, each applied once, in order, in one transaction.

The file's `user_version` is the number of the last one; its table `migrations` says what was applied when.
"""

from __future__ import annotations

from whet.store.migrations import m001_m006 as first
from whet.store.migrations import m007_m012 as later
from whet.store.migrations import m013_m015 as search
from whet.store.migrations import m016_m027 as newest

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
    "m013_rewinds": search.M013_REWINDS,
    "m014_search": search.M014_SEARCH,
    "m015_pointed": search.M015_POINTED,
    "m016_goals": newest.M016_GOALS,
    "m017_positions": newest.M017_POSITIONS,
    "m018_goal_schedules": newest.M018_GOAL_SCHEDULES,
    "m019_forks": newest.M019_FORKS,
    "m023_helpers": newest.M023_HELPERS,
    "m024_planning": newest.M024_PLANNING,
    "m026_titles": newest.M026_TITLES,
    "m027_short_parts": newest.M027_SHORT_PARTS,
}
"""The SQL of each step by its name, in order."""
