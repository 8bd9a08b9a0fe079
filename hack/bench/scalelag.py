"""The time from a pod's change to the status write that follows from it, by the API server's audit log.

Both times are those of the server's response to a write: kubelets write a pod's status, first when it runs and then
when it has ended, and the controller writes a TFJob's status. The content of the status shows which change it follows
from.

- the master: from its start to the first status whose phase is Running or later, and from its end to the first whose
  `state` is Succeeded, on which other programs act;
- all replicas: from the k-th start of a job's pods to the first status with k of them `ready` (or succeeded), and from
  the k-th end to the first with k `succeededIndexes`. These are mere counts, which are debounced for up to 8 s
  (tfjob_controller.controller.reporter).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

Object = dict[str, Any]

_WRITES = ["patch", "update"]
# The requests that the API server logs.
RULES: tuple[Object, ...] = (
    {
        "level": "Request",
        "verbs": _WRITES,
        "resources": [{"group": "kubeflow.org", "resources": ["tfjobs/status"]}],
    },
    {"level": "Metadata", "verbs": _WRITES, "resources": [{"group": "", "resources": ["pods/status"]}]},
    {"level": "None"},
)
_OTHERS = ("kube-", "tfjob-controller/")
_POD = re.compile(r"^(.+)-(master|worker|ps)-[0-9a-z]{4}-\d+-[0-9a-z]+$")


@dataclass(slots=True)
class JobChanges:
    """The changes of one job: the times of the changes of each pod, and each status with its time, in order."""

    pods: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: list[tuple[float, Object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lags:
    """Lags in seconds."""

    master: Sequence[float]
    replicas: Sequence[float]


def lags_of(log: Path, namespace: str) -> Lags:
    """Returns the lags of all jobs of the namespace, from a log."""
    with log.open("rb") as lines:
        return lags_in(map(msgspec.json.decode, lines), namespace)


def lags_in(entries: Iterable[Object], namespace: str) -> Lags:
    """Returns the lags of all jobs of the namespace, from the entries of a log."""
    found = [_lags(job) for job in changes_of(entries, namespace).values()]
    return Lags([lag for each in found for lag in each.master], [lag for each in found for lag in each.replicas])


def changes_of(entries: Iterable[Object], namespace: str) -> dict[str, JobChanges]:
    """Returns the changes of each job."""
    changes: dict[str, JobChanges] = defaultdict(JobChanges)
    for entry in entries:
        reference = entry.get("objectRef") or {}
        if reference.get("namespace") != namespace or entry["responseStatus"]["code"] >= 300:
            continue
        at = datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
        if reference["resource"] == "tfjobs":
            status = (entry.get("requestObject") or {}).get("status") or {}
            changes[reference["name"]].statuses.append((at, status))
        elif not entry.get("userAgent", "").startswith(_OTHERS) and (match := _POD.match(reference["name"])):
            changes[match[1]].pods[reference["name"]].append(at)
    return changes


def _lags(job: JobChanges) -> Lags:
    statuses = _as_written(job)
    starts = sorted(min(times) for times in job.pods.values())
    ends = sorted(sorted(times)[1] for times in job.pods.values() if len(times) > 1)
    masters = [sorted(times) for pod, times in job.pods.items() if "-master-" in pod]
    started = [at for at, status in statuses if status.get("phase") in ("Running", "CleanUp", "Done")]
    ended = [at for at, status in statuses if status.get("state") == "Succeeded"]
    master = [
        *_until_first([times[0] for times in masters], started),
        *_until_first([times[1] for times in masters if len(times) > 1], ended),
    ]
    return Lags(master, [*_counted(starts, statuses, _ready), *_counted(ends, statuses, _succeeded)])


def _as_written(job: JobChanges) -> list[tuple[float, Object]]:
    """Returns the whole status after each write, which contains only the changes."""
    status: Object = {}
    found = []
    for at, change in sorted(job.statuses, key=lambda each: each[0]):
        ready = {**status.get("ready", {}), **change.get("ready", {})}
        status = {**status, **change, "ready": ready}
        found.append((at, status))
    return found


def _until_first(times: Sequence[float], statuses: Sequence[float]) -> list[float]:
    return [max(0.0, statuses[0] - at) for at in times if statuses]


def _counted(
    times: Sequence[float], statuses: Sequence[tuple[float, Object]], count: Callable[[Object], int]
) -> list[float]:
    """Returns the seconds from the k-th change to the first status that counts k."""
    lags: list[float] = []
    for written_at, status in statuses:
        # Pods that are stopped at their job's end are counted in no status; the others are counted in order.
        lags += [max(0.0, written_at - at) for at in times[len(lags) : count(status)]]
    return lags


def _ready(status: Object) -> int:
    return sum(int(text.partition("/")[0]) for text in status["ready"].values())


def _succeeded(status: Object) -> int:
    return len(status.get("succeededIndexes") or ())
