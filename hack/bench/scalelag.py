"""How long it takes from a pod's change to the status write that follows from it, by the API server's audit log.

Both moments are those at which the server had answered a write: kubelets' of a pod's status, the first of which says
that it runs and the second that it has ended, and the controller's of a TFJob's status. Which status follows from which
change is read from what it says: its `state` is the chief's, and `replicaStatuses` count the replicas that run or have
run (`started`) and those that have ended well.

- of the chief: from its start and from its end to the status that says so: what others decide by;
- of all replicas: from the k-th start of a job's pods to the first status that counts k of them, and the same for ends.
  These are mere figures, which rest for up to 8 s on purpose (tfjob_controller.controller.restingstatus).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
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

    chief: Sequence[float]
    replicas: Sequence[float]


def lags_of(log: Path, namespace: str) -> Lags:
    """Of all jobs of the namespace."""
    with log.open("rb") as lines:
        return lags_in(map(msgspec.json.decode, lines), namespace)


def lags_in(entries: Iterable[Object], namespace: str) -> Lags:
    """The same, of the log's entries."""
    found = [_lags(course) for course in courses_of(entries, namespace).values()]
    return Lags([lag for each in found for lag in each.chief], [lag for each in found for lag in each.replicas])


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
    course.statuses.sort(key=lambda each: each[0])
    starts = sorted(min(moments) for moments in course.pods.values())
    ends = sorted(sorted(moments)[1] for moments in course.pods.values() if len(moments) > 1)
    masters = [sorted(moments) for pod, moments in course.pods.items() if "-master-" in pod]
    chief = [
        *_first_after([moments[0] for moments in masters], course, "Running"),
        *_first_after([moments[1] for moments in masters if len(moments) > 1], course, "Succeeded"),
    ]
    return Lags(chief, [*_counted(starts, course, ("Running", "Succeeded")), *_counted(ends, course, ("Succeeded",))])


def _first_after(moments: Sequence[float], course: Course, state: str) -> list[float]:
    said = [moment for moment, status in course.statuses if status.get("state") == state]
    return [max(0.0, min(said) - moment) for moment in moments if said]


def _counted(moments: Sequence[float], course: Course, states: Sequence[str]) -> list[float]:
    """From the k-th moment to the first status that counts k replicas in these states."""
    lags: list[float] = []
    for said_at, status in course.statuses:
        count = _count(status, states)
        # A pod that is stopped at its job's end counts in no status; the rest are seen in order.
        lags += [max(0.0, said_at - moment) for moment in moments[len(lags) : count]]
    return lags


def _count(status: Object, states: Sequence[str]) -> int:
    counts = [each.get("ReplicasStates") or {} for each in status.get("replicaStatuses") or ()]
    return sum(each.get(state, 0) for each in counts for state in states)


def rank(values: Sequence[float], share: float) -> float:
    """Nearest rank: the least value that so many are at or below."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
