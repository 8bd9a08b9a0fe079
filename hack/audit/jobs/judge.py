"""Applies all rules and counts violations by category. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from audit.jobs import children, containers, gangs, runs, states, stuck
from audit.jobs.history import History
from audit.jobs.reruns import reruns

DUPLICATES, ORPHANS, PARTIAL_GANGS = "duplicates", "orphans", "partial_gangs"
WRONG_STATES, RERUNS, LATE_STARTS, STUCK = "wrong_states", "reruns", "late_starts", "stuck"
CATEGORIES = (DUPLICATES, ORPHANS, PARTIAL_GANGS, WRONG_STATES, RERUNS, LATE_STARTS, STUCK)

Rule = Callable[[History], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """`reaction_seconds` is the time for a reaction, outages excluded; `skew_seconds` is the allowed clock skew."""

    reaction_seconds: float = 60.0
    skew_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    category: str
    text: str

    def __str__(self) -> str:
        return f"{self.category}: {self.text}"


def final(history: History, limits: Limits, outages: Sequence[float]) -> list[Finding]:
    """Returns violations that nothing can correct any more. `outages` are the times of outages."""
    rules: tuple[tuple[str, Rule], ...] = (
        (DUPLICATES, children.duplicates),
        (DUPLICATES, containers.overlapping_containers),
        (PARTIAL_GANGS, lambda history: gangs.partial_for_too_long(history, outages, limits.reaction_seconds)),
        (WRONG_STATES, lambda history: states.wrong_states(history, limits.skew_seconds)),
        (WRONG_STATES, runs.wrong_ends),
        (WRONG_STATES, lambda history: runs.missed_successes(history, outages, limits.reaction_seconds)),
        (WRONG_STATES, runs.uncaused_restarts),
        (WRONG_STATES, runs.uncounted_restarts),
        (WRONG_STATES, runs.ends_counted_twice),
        (WRONG_STATES, runs.spent_limits),
        (RERUNS, lambda history: reruns(history, outages, limits.reaction_seconds)),
        (LATE_STARTS, containers.starts_after_the_end),
    )
    return [Finding(category, text) for category, rule in rules for text in rule(history)]


def pending(history: History, limits: Limits, now: float, outages: Sequence[float] = ()) -> list[Finding]:
    """Returns violations that the product or Kubernetes may still correct."""
    # The time for a reaction starts again after an outage.
    since = now - limits.reaction_seconds
    since = float("-inf") if any(at > since for at in outages) else since
    rules: tuple[tuple[str, Rule], ...] = (
        (ORPHANS, children.orphans),
        (ORPHANS, children.leftovers),
        (PARTIAL_GANGS, gangs.partial_now),
        (STUCK, lambda history: stuck.stuck(history, since)),
    )
    return [Finding(category, text) for category, rule in rules for text in rule(history)]
