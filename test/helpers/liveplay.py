"""Replays a simulation on a live control plane: the same jobs arrive and end, and the live programs decide which jobs
start and which are resized.

Theory of operation. A simulated run is split into moments: inputs (jobs that arrive, jobs whose work is done), and the
decisions that followed. `Play` applies the inputs, one moment after the other, and waits for as many decisions of the
live gang scheduler as the simulated one took. So nothing depends on the speed of the machine, provided that no delay
was running in the simulation when an input came (`restless`): such a delay could expire earlier in the slower live run.

Threads: the test's own, and one that watches the Gangs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import urllib3

from helpers.cluster import set_pod_terminated
from helpers.controller import Jobs
from helpers.gangowner import GANGS
from helpers.poll import eventually, never
from localcluster.api import Api, RefusedError

PATIENCE_SECONDS = 600.0
PERIOD_SECONDS = 0.05
ARRIVES, ENDS, STARTS, RESIZE = "arrives", "end", "start", "resize"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Decision:
    """A job starts, or continues, with so many workers."""

    what: str
    job: str
    workers: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The inputs in order (`arrives` or `end`, and the job), and the decisions that followed."""

    seconds: float
    outside: Sequence[tuple[str, str]]
    decisions: Sequence[Decision]


def moments(arrivals: Iterable[tuple[float, str]], decisions: Iterable[Object]) -> list[Moment]:
    """`decisions` as `tfjob-controller simulate -o json` writes them; they are in order, and ends come first."""
    arriving = [(seconds, (ARRIVES, job)) for seconds, job in arrivals]
    outside = [*arriving, *((each["seconds"], (ENDS, each["job"])) for each in decisions if each["what"] == ENDS)]
    decided = [
        (each["seconds"], Decision(each["what"], each["job"], each["workers"]))
        for each in decisions
        if each["what"] in (STARTS, RESIZE)
    ]
    return [
        Moment(
            seconds,
            [what for moment, what in outside if moment == seconds],
            [decision for moment, decision in decided if moment == seconds],
        )
        for seconds in sorted({moment for moment, _ in [*outside, *decided]})
    ]


def restless(found: Sequence[Moment], rest_seconds: float) -> list[Moment]:
    """Returns the moments with inputs that came less than so many seconds after the last moment."""
    pairs = itertools.pairwise(found)
    return [moment for before, moment in pairs if moment.outside and moment.seconds - before.seconds < rest_seconds]


class Diary:
    """Decisions of the live gang scheduler, in order, from the Gangs' placements."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = GANGS.format(namespace)
        self._entries: list[Decision] = []
        self._members: dict[str, frozenset[str]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="diary", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The watch ends with its connection."""
        self._is_over.set()

    def entries(self) -> list[Decision]:
        return list(self._entries)

    def _watch(self) -> None:
        while not self._is_over.is_set():
            try:
                for kind, gang in self._api.watch(self._path):
                    if self._is_over.is_set():
                        return
                    if kind in ("ADDED", "MODIFIED", "DELETED"):
                        self._note(kind, gang)
            except (urllib3.exceptions.HTTPError, RefusedError, ValueError, OSError):
                self._is_over.wait(PERIOD_SECONDS)

    def _note(self, kind: str, gang: Object) -> None:
        status, job = gang.get("status") or {}, job_of(gang)
        if kind == "DELETED" or status.get("phase") not in ("Admitted", "Bound"):
            self._members.pop(job, None)
            return
        workers = frozenset(workers_of(status))
        before = self._members.get(job)
        if workers and workers != before:
            self._entries.append(Decision(STARTS if before is None else RESIZE, job, len(workers)))
            self._members[job] = workers


def job_of(gang: Object) -> str:
    """The Gang's name is the job's and four random characters."""
    name: str = gang["metadata"]["name"]
    return name.rpartition("-")[0]


def workers_of(status: Object) -> Iterator[str]:
    for place in status.get("placement") or ():
        yield from (member for member in place["members"] if member.startswith("worker-"))


@dataclass(slots=True)
class Play:
    """See the module. `manifests` are the TFJobs, by name."""

    jobs: Jobs
    diary: Diary
    manifests: dict[str, Object]
    rest_seconds: float
    seen: int = field(default=0)

    def run(self, found: Sequence[Moment]) -> None:
        """Replays all moments. Raises AssertionError where the live gang scheduler decides differently."""
        for number, moment in enumerate(found):
            for what, job in moment.outside:
                self._arrive(job) if what == ARRIVES else self._end(job)
            self._compare(moment, found[:number])
            if number + 1 < len(found) and found[number + 1].outside:
                self._rest()

    def _arrive(self, job: str) -> None:
        """Submits a job and waits until it is queued, so that jobs that arrive together are queued in order."""
        self.jobs.submit(self.manifests[job])
        eventually(lambda: any(job_of(gang) == job for gang in self._gangs()), PATIENCE_SECONDS, PERIOD_SECONDS)

    def _end(self, job: str) -> None:
        """The job's chief succeeds; the controller does the rest."""
        labels = {"tf_job_name": job, "job_type": "WORKER", "task_index": "0"}

        def chief() -> str:
            for name, pod in self.jobs.children("pods").items():
                is_it = labels.items() <= pod["metadata"]["labels"].items()
                if is_it and pod.get("status", {}).get("phase") == "Running":
                    return name
            return ""

        name = eventually(chief, PATIENCE_SECONDS, PERIOD_SECONDS)
        set_pod_terminated(self.jobs.api, self.jobs.namespace, name, container="tensorflow")
        self.jobs.await_phase("Done", job, PATIENCE_SECONDS)

    def _compare(self, moment: Moment, before: Sequence[Moment]) -> None:
        """Decisions of one kind in one instant may come in any order: several owners follow at the same time."""
        wanted = list(moment.decisions)
        eventually(lambda: len(self.diary.entries()) >= self.seen + len(wanted), PATIENCE_SECONDS, PERIOD_SECONDS)
        decided = self.diary.entries()[self.seen : self.seen + len(wanted)]
        self.seen += len(wanted)
        told = f"at {moment.seconds} s: simulated {wanted}, live {decided}, after {before[-3:]}"
        assert _by_kind(decided) == _by_kind(wanted), told

    def _rest(self) -> None:
        """Waits until nothing is in progress and no delay can be running; fails if there are further decisions."""
        eventually(lambda: all(is_calm(gang) for gang in self._gangs()), PATIENCE_SECONDS, PERIOD_SECONDS)
        never(lambda: self.diary.entries()[self.seen :], self.rest_seconds, PERIOD_SECONDS)

    def _gangs(self) -> list[Object]:
        return self.jobs.api.list(GANGS.format(self.jobs.namespace))


def is_calm(gang: Object) -> bool:
    """Whether the gang waits, has ended, or is bound with all placed members and without a resize request."""
    status = gang.get("status") or {}
    bound, _, _ = str(status.get("members", "")).partition("/")
    placed = sum(len(each["members"]) for each in status.get("placement") or ())
    if status.get("phase") != "Bound":
        return status.get("phase") in ("Waiting", "Released")
    return bound == str(placed) and not status.get("targetMembers")


def _by_kind(decisions: Iterable[Decision]) -> list[list[Decision]]:
    return [sorted(some) for _, some in itertools.groupby(decisions, key=lambda each: each.what)]
