"""Reads the recordings of `make record-lives` in test/data/lives.

`hack/recordlives/statuses.py` describes the format. Times become those of a job that was created at CREATED.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from recordlives.matrix import Case
from tfjob_controller.api.common.core import (
    BatchJob,
    Condition,
    ContainerState,
    ContainerStatus,
    InitContainer,
    JobSpec,
    JobStatus,
    Pod,
    PodMeta,
    PodSpec,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)
from tfjob_controller.jobs.podtemplate.checkpoint import SAVER
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.util.timestamps import format_time

LIVES = Path(__file__).parents[1] / "data" / "lives"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)

# The init containers that are native sidecars.
NATIVE = ("log", SAVER)
# Messages are not recorded, but the controller reads those of containers that cannot start.
_MESSAGES = dict.fromkeys(("StartError", "RunContainerError"), 'exec: "/no-such-command": no such file or directory')
_STATES = {"waiting", "running", "terminated", "-"}


@dataclass(frozen=True, slots=True)
class Moment:
    """What a watch showed: `obj` is a Pod or BatchJob, or None once it is deleted.

    `name` is a replica and a number, such as worker-0.2, which is also the object's name and UID.
    """

    seconds: float
    kind: str
    name: str
    obj: Pod | BatchJob | None

    @property
    def replica(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Life:
    """One recording of a minor version of Kubernetes.

    It has the values of its case, by dimension, what was seen, in order, and comments with their times.

    The last comment is about the phase of the job.
    """

    minor: str
    inputs: Mapping[str, str]
    moments: Sequence[Moment]
    notes: Sequence[tuple[float, str]]

    @property
    def phase(self) -> str:
        """The last phase of the job."""
        return self.notes[-1][1].removeprefix("the job is in phase ").partition(" ")[0]

    @property
    def name(self) -> str:
        return f"{self.minor}/{Case(tuple(self.inputs.values())).name}"


def recorded_lives(minor: str = "*", pattern: str = "*/*") -> Iterator[Life]:
    """Yields the recordings of a minor version of Kubernetes whose name matches the pattern."""
    for path in sorted(LIVES.glob(f"{minor}/{pattern}.txt")):
        yield _read(path)


@functools.cache
def _read(path: Path) -> Life:
    return parse_life(path.read_text(), path.parts[-3])


def parse_life(text: str, minor: str = "") -> Life:
    """Raises ValueError for a line that has another form."""
    head, _, body = text.partition("\n\n")
    inputs = dict(line.split(": ", 1) for line in head.splitlines() if not line.startswith("#"))
    lines = [line.split(maxsplit=3) for line in body.splitlines()]
    notes = [(float(words[0]), " ".join(words[2:])) for words in lines if words[1] == "#"]
    return Life(minor, inputs, list(_moments(words for words in lines if words[1] != "#")), notes)


def parse_pod(name: str, text: str, created_at: float = 0.0) -> Pod:
    head, *containers = text.split(" | ")
    phase, *words = head.split(" ")
    values, times, conditions = _words(words)
    scheduled = any(each.type == "PodScheduled" and each.status == "True" for each in conditions)
    inits = [_container(each.removeprefix("init ")) for each in containers if each.startswith("init ")]
    mains = [_container(each) for each in containers if not each.startswith("init ")]
    natives = tuple(InitContainer(each.name, "Always") for each in inits if each.name in NATIVE)
    return Pod(
        PodMeta(
            name=name,
            uid=name,
            creation_timestamp=_time(created_at),
            deletion_timestamp=times.get("deleting"),
            deletion_grace_period_seconds=int(values.get("grace", 0)),
        ),
        PodSpec("node" if scheduled else "", values["restartPolicy"], natives),
        PodStatus(
            phase="" if phase == "-" else phase,
            reason=values.get("reason", ""),
            start_time=times.get("started"),
            conditions=conditions,
            init_container_statuses=tuple(inits),
            container_statuses=tuple(mains),
        ),
    )


def parse_job(name: str, text: str, created_at: float = 0.0) -> BatchJob:
    values, times, conditions = _words(text.split(" "))
    numbers = {each: int(values.get(each, 0)) for each in ("active", "ready", "succeeded", "failed")}
    return BatchJob(
        ObjectMeta(name=name, uid=name, creation_timestamp=_time(created_at), deletion_timestamp=times.get("deleting")),
        JobSpec(suspend="suspend" in values, parallelism=int(values["parallelism"])),
        JobStatus(**numbers, completed_indexes=values.get("completedIndexes", ""), conditions=conditions),
    )


def _moments(lines: Iterable[Sequence[str]]) -> Iterator[Moment]:
    created: dict[str, float] = {}
    known: dict[str, dict[str, str]] = {}
    for time, kind, name, text in lines:
        since = created.setdefault(f"{kind} {name}", float(time) // 1)
        obj: Pod | BatchJob | None = None
        if text != "gone" and kind == "job":
            obj = parse_job(name, text, since)
        elif text != "gone":
            obj = parse_pod(name, _completed(text, known.setdefault(name, {"": "-"})), since)
        yield Moment(float(time), kind, name, obj)


def _completed(text: str, known: dict[str, str]) -> str:
    """Returns the whole line of a pod, and keeps it for the next: words by their name, and containers after a bar."""
    head, *containers = f" {text}".split(" | ")
    for word in head.split():
        known[re.split("[=@]", word)[0] if re.search("[=@]", word) else ""] = word
    for container in containers:
        known["| " + container.removeprefix("init ").partition(" ")[0]] = f"| {container}"
    return " ".join(sorted(known.values(), key=lambda part: part.startswith("| ")))


def _words(words: Iterable[str]) -> tuple[dict[str, str], dict[str, str], tuple[Condition, ...]]:
    """Returns `name=value` and bare words, moments, and conditions, whose names begin with a capital letter."""
    values: dict[str, str] = {}
    times: dict[str, str] = {}
    conditions: list[Condition] = []
    for word in words:
        name, has_value, value = word.partition("=")
        if name[0].isupper():
            value, time = _split_time(value)
            status, _, reason = value.partition(":")
            conditions.append(Condition(name, status, reason, last_transition_time=time))
        elif has_value:
            values[name] = value
        else:
            name, time = _split_time(word)
            values[name] = ""
            if time is not None:
                times[name] = time
    return values, times, tuple(conditions)


def _container(text: str) -> ContainerStatus:
    name, state, *words = text.split(" ")
    values = {key: value for key, _, value in (word.partition("=") for word in words)}
    return ContainerStatus(
        name=name,
        ready="ready" in values,
        restart_count=int(values.get("restarts", 0)),
        state=_state(state),
        last_state=_state(values.get("last", "-")),
    )


def _state(text: str) -> ContainerState:
    text, time = _split_time(text)
    kind, *parts = text.split(":")
    if kind not in _STATES:
        raise ValueError(f"not the state of a container: {text}")
    reason = parts[0] if parts else ""
    message = _MESSAGES.get(reason, "")
    if kind == "terminated":
        return ContainerState(terminated=Terminated(int(parts[1]), reason, message, finished_at=time))
    return ContainerState(
        waiting=Waiting(reason, message) if kind == "waiting" else None,
        running=Running(time) if kind == "running" else None,
    )


def _split_time(word: str) -> tuple[str, str | None]:
    rest, _, seconds = word.partition("@")
    return rest, _time(float(seconds)) if seconds else None


def _time(seconds: float) -> str:
    return format_time(CREATED + timedelta(seconds=seconds))
