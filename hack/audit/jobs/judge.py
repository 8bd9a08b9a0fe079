"""Applies all rules and counts violations by category. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from audit.jobs import children, containers, restarts, results
from audit.jobs.facts import is_managed
from audit.jobs.family import Family, families
from audit.jobs.history import History
from audit.jobs.reruns import reruns
from audit.jobs.states import wrong_states
from audit.jobs.stuck import stuck

DUPLICATES, ORPHANS, WRONG_STATES = "duplicates", "orphans", "wrong_states"
RERUNS, LATE_STARTS, STUCK = "reruns", "late_starts", "stuck"
CATEGORIES = (DUPLICATES, ORPHANS, WRONG_STATES, RERUNS, LATE_STARTS, STUCK)


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


class Rule(NamedTuple):
    """A rule yields what is wrong with a job. One that `needs_all_changes` does not judge a job with a gap."""

    category: str
    judge: Callable[[Family], Iterator[str]]
    needs_all_changes: bool = False


def final(history: History, limits: Limits, outages: Sequence[float]) -> list[Finding]:
    """Returns violations that nothing can correct any more. `outages` are the times of outages."""
    reaction = limits.reaction_seconds
    rules = (
        Rule(DUPLICATES, children.duplicates),
        Rule(DUPLICATES, containers.overlapping_pods),
        Rule(DUPLICATES, containers.overlapping_containers),
        Rule(WRONG_STATES, lambda family: wrong_states(family, limits.skew_seconds)),
        Rule(WRONG_STATES, results.wrong_ends, needs_all_changes=True),
        Rule(WRONG_STATES, lambda job: results.missed_successes(job, outages, reaction), needs_all_changes=True),
        Rule(WRONG_STATES, restarts.uncaused_restarts, needs_all_changes=True),
        Rule(WRONG_STATES, restarts.uncounted_restarts, needs_all_changes=True),
        Rule(WRONG_STATES, restarts.ends_counted_twice),
        Rule(WRONG_STATES, restarts.spent_limits, needs_all_changes=True),
        Rule(RERUNS, lambda family: reruns(family, outages, reaction)),
        Rule(LATE_STARTS, containers.starts_after_the_end),
    )
    return _findings(history, rules)


def pending(history: History, limits: Limits, now: float, outages: Sequence[float] = ()) -> list[Finding]:
    """Returns violations that the product or Kubernetes may still correct."""
    # The time for a reaction starts again after an outage.
    since = now - limits.reaction_seconds
    since = float("-inf") if any(at > since for at in outages) else since
    rules = (Rule(ORPHANS, children.leftovers), Rule(STUCK, lambda family: stuck(family, since)))
    orphans = [Finding(ORPHANS, text) for text in children.orphans(history)]
    return [*orphans, *_findings(history, rules)]


def _findings(history: History, rules: Iterable[Rule]) -> list[Finding]:
    """Applies rules to all jobs, except those that another controller manages."""
    judged = [family for family in families(history) if is_managed(family.job.last)]
    return [
        Finding(rule.category, text)
        for rule in rules
        for family in judged
        if not (rule.needs_all_changes and family.may_lack_changes)
        for text in rule.judge(family)
    ]
