"""How long it takes from a pod's change to the status write that follows from it, by the API server's audit log.

Both moments are those at which the server had answered a write: kubelets' of a pod's status, the first of which says
that it runs and the second that it has ended, and the controller's of a TFJob's status. Which status follows from which
change is read from what it says.

- of the master: from its start to the first status whose phase is Running or later, and from its end to the first whose
  `state` is Succeeded: what others decide by;
- of all replicas: from the k-th start of a job's pods to the first status with k of them `ready` (or ended well), and
  from the k-th end to the first with k `succeededIndexes`. These are mere figures, which rest for up to 8 s on purpose
  (tfjob_controller.controller.reporter).
"""

from __future__ import annotations

import math
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
# What the API server writes down for this.
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
class Course:
    """Of one job. Of each pod the moments of its changes; each status with its moment, in order."""

    pods: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: list[tuple[float, Object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lags:
    """Seconds."""

    master: Sequence[float]
    replicas: Sequence[float]


def lags_of(log: Path, namespace: str) -> Lags:
    """Of all jobs of the namespace."""
    with log.open("rb") as lines:
        return lags_in(map(msgspec.json.decode, lines), namespace)


def lags_in(entries: Iterable[Object], namespace: str) -> Lags:
    """The same, of the log's entries."""
    found = [_lags(course) for course in courses_of(entries, namespace).values()]
    return Lags([lag for each in found for lag in each.master], [lag for each in found for lag in each.replicas])


def courses_of(entries: Iterable[Object], namespace: str) -> dict[str, Course]:
    """By job."""
    courses: dict[str, Course] = defaultdict(Course)
    for entry in entries:
        reference = entry.get("objectRef") or {}
        if reference.get("namespace") != namespace or entry["responseStatus"]["code"] >= 300:
            continue
        moment = datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
        if reference["resource"] == "tfjobs":
            status = (entry.get("requestObject") or {}).get("status") or {}
            courses[reference["name"]].statuses.append((moment, status))
        elif not entry.get("userAgent", "").startswith(_OTHERS) and (match := _POD.match(reference["name"])):
            courses[match[1]].pods[reference["name"]].append(moment)
    return courses


def _lags(course: Course) -> Lags:
    said = _as_written(course)
    starts = sorted(min(moments) for moments in course.pods.values())
    ends = sorted(sorted(moments)[1] for moments in course.pods.values() if len(moments) > 1)
    masters = [sorted(moments) for pod, moments in course.pods.items() if "-master-" in pod]
    started = [moment for moment, status in said if status.get("phase") in ("Running", "CleanUp", "Done")]
    ended = [moment for moment, status in said if status.get("state") == "Succeeded"]
    master = [
        *_until_first([moments[0] for moments in masters], started),
        *_until_first([moments[1] for moments in masters if len(moments) > 1], ended),
    ]
    return Lags(master, [*_counted(starts, said, _ready), *_counted(ends, said, _succeeded)])


def _as_written(course: Course) -> list[tuple[float, Object]]:
    """The whole status after each write, which says what it changes."""
    status: Object = {}
    found = []
    for moment, change in sorted(course.statuses, key=lambda each: each[0]):
        ready = {**status.get("ready", {}), **change.get("ready", {})}
        status = {**status, **change, "ready": ready}
        found.append((moment, status))
    return found


def _until_first(moments: Sequence[float], said: Sequence[float]) -> list[float]:
    return [max(0.0, said[0] - moment) for moment in moments if said]


def _counted(
    moments: Sequence[float], said: Sequence[tuple[float, Object]], count: Callable[[Object], int]
) -> list[float]:
    """From the k-th moment to the first status that counts k."""
    lags: list[float] = []
    for said_at, status in said:
        # A pod that is stopped at its job's end counts in no status; the rest are seen in order.
        lags += [max(0.0, said_at - moment) for moment in moments[len(lags) : count(status)]]
    return lags


def _ready(status: Object) -> int:
    return sum(int(text.partition("/")[0]) for text in status["ready"].values())


def _succeeded(status: Object) -> int:
    return len(status.get("succeededIndexes") or ())


def rank(values: Sequence[float], share: float) -> float:
    """Nearest rank: the least value that so many are at or below."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
