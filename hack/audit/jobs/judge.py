"""All rules, and how their violations are counted. Pure: a history in, violations out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from audit.jobs import children, gangs, runs, states, stuck
from audit.jobs.history import History
from audit.jobs.reruns import reruns

DUPLICATES, ORPHANS, PARTIAL_GANGS = "duplicates", "orphans", "partial_gangs"
WRONG_STATES, RERUNS, STUCK = "wrong_states", "reruns", "stuck"
CATEGORIES = (DUPLICATES, ORPHANS, PARTIAL_GANGS, WRONG_STATES, RERUNS, STUCK)

Rule = Callable[[History], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """`reaction_seconds`: so long the product may take to act, outages not counted. `skew_seconds`: of its clock."""

    reaction_seconds: float = 60.0
    skew_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    category: str
    text: str

    def __str__(self) -> str:
        return f"{self.category}: {self.text}"


def final(history: History, limits: Limits, outages: Sequence[float]) -> list[Finding]:
    """What has gone wrong for good, whatever happens next. `outages`: times at which one just happened."""
    rules: tuple[tuple[str, Rule], ...] = (
        (DUPLICATES, children.duplicates),
        (PARTIAL_GANGS, lambda some: gangs.partial_for_too_long(some, outages, limits.reaction_seconds)),
        (WRONG_STATES, lambda some: states.wrong_states(some, limits.skew_seconds)),
        (WRONG_STATES, runs.wrong_ends),
        (WRONG_STATES, lambda some: runs.missed_successes(some, outages, limits.reaction_seconds)),
        (WRONG_STATES, runs.uncaused_restarts),
        (RERUNS, lambda some: reruns(some, outages, limits.reaction_seconds)),
    )
    return [Finding(category, text) for category, rule in rules for text in rule(history)]


def pending(history: History, limits: Limits, now: float, outages: Sequence[float] = ()) -> list[Finding]:
    """What is wrong if it stays so: the product may still be at it."""
    # Whoever could do nothing for a while has his time from then on.
    since = now - limits.reaction_seconds
    since = float("-inf") if any(at > since for at in outages) else since
    rules: tuple[tuple[str, Rule], ...] = (
        (ORPHANS, children.orphans),
        (ORPHANS, children.leftovers),
        (PARTIAL_GANGS, gangs.partial_now),
        (STUCK, lambda some: stuck.stuck(some, since)),
    )
    return [Finding(category, text) for category, rule in rules for text in rule(history)]
