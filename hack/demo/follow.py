"""Follows one job to its end: a live table on a terminal, otherwise a line for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.live import Live

from demo.kubectl import Kubectl
from demo.picture import Object, Row, changes, facts, picture, rows_of, with_gone
from demo.screen import Screen

POLL_SECONDS = 0.5
FINISHED_PHASES = ("Done", "Failed")

# Called with the job, a row for each of its pods, and the seconds since the start.
Show = Callable[[Object, Iterable[Row], float], None]


# Called with the job.
Look = Callable[[Object], None]


def _nothing(job: Object) -> None:
    pass


class DemoError(Exception):
    """The demo cannot continue; the message contains reason and remedy."""


@dataclass(slots=True)
class Seen:
    """The last state of a job, and a row for each pod that it ever had, by name."""

    job: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        return [row.node for row in self.rows.values() if row.node]


@dataclass(frozen=True, slots=True)
class Subject:
    """A job: its kind on the command line of kubectl, its name, and the label that selects its pods."""

    kind: str
    name: str
    label: str

    @property
    def selector(self) -> str:
        return f"{self.label}={self.name}"


def follow(kubectl: Kubectl, subject: Subject, screen: Screen, timeout_seconds: float, look: Look = _nothing) -> Seen:
    """Shows the job until it has ended, and calls `look` after each poll. Raises `DemoError` after the timeout."""
    seen, began = Seen(), time.monotonic()
    with _live(screen) if screen.is_live else _lines(screen) as show:
        while time.monotonic() - began < timeout_seconds:
            _look(kubectl, subject, seen, show, time.monotonic() - began)
            look(seen.job)
            if seen.job.get("status", {}).get("phase") in FINISHED_PHASES:
                return seen
            time.sleep(POLL_SECONDS)
    reason = seen.job.get("status", {}).get("reason") or "see its events and the controller's log"
    raise DemoError(f"{subject.name} has not ended within {timeout_seconds:.0f} s: {reason}")


@contextmanager
def _live(screen: Screen) -> Iterator[Show]:
    with Live(console=screen.console, refresh_per_second=4, transient=False) as live:
        yield lambda job, rows, elapsed_seconds: live.update(picture(job, rows, elapsed_seconds))


@contextmanager
def _lines(screen: Screen) -> Iterator[Show]:
    known: dict[str, str] = {}

    def show(job: Object, rows: Iterable[Row], elapsed_seconds: float) -> None:
        now = facts(job, rows)
        for line in changes(known, now):
            screen.output(f"{elapsed_seconds:5.1f} s  {line}")
        known.clear()
        known.update(now)

    yield show


def _look(kubectl: Kubectl, subject: Subject, seen: Seen, show: Show, elapsed_seconds: float) -> None:
    seen.job = kubectl.get(subject.kind, subject.name)
    seen.rows = with_gone(seen.rows, rows_of(kubectl.items("pods", subject.selector)))
    show(seen.job, seen.rows.values(), elapsed_seconds)
