"""The number of examples of property tests, by hypothesis profile.

`make unit` and `make test` use the profile `fast`, `make test-all` the profile `thorough`, which is also for changes of
rules: HYPOTHESIS_PROFILE=thorough. A profile's own number of examples is for tests that do not set one;
test/conftest.py loads it before any test is imported. `fast` tries the same examples in each run, so that a new failure
is due to the change; `thorough` generates others each time.
"""

from __future__ import annotations

from hypothesis import settings

PROFILES = {"fast": 30, "thorough": 100}
DEFAULT_PROFILE = "fast"


def examples(thorough: int, *, fast: int = 0) -> int:
    """For `max_examples`: the given number in each profile; without one for `fast` its share, but no fewer than 30."""
    share = settings().max_examples / PROFILES["thorough"]
    if fast:
        return fast if share < 1 else thorough
    return max(min(thorough, PROFILES["fast"]), round(thorough * share))
