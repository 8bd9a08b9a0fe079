"""All rules, and how their violations are counted. Pure: a history in, violations out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from audit.jobs import children, states
from audit.jobs.history import History

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


def final(history: History, limits: Limits) -> list[Finding]:
    """What has gone wrong for good, whatever happens next."""
    rules: tuple[tuple[str, Rule], ...] = (
        (DUPLICATES, children.duplicates),
        (WRONG_STATES, lambda some: states.wrong_states(some, limits.skew_seconds)),
    )
    return [Finding(category, text) for category, rule in rules for text in rule(history)]


def pending(history: History, limits: Limits, now: float) -> list[Finding]:
    """What is wrong if it stays so: the product may still be at it."""
    rules: tuple[tuple[str, Rule], ...] = (
        (ORPHANS, children.orphans),
        (ORPHANS, children.leftovers),
    )
    return [Finding(category, text) for category, rule in rules for text in rule(history)]
