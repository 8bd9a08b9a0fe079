"""A status of a pod or a Job as one line of text, with only what decisions read.

    pod: Running restartPolicy=Never PodScheduled=True@0 | node terminated:Error:137@5 restarts=1 | log running@2 ready
    Job: parallelism=1 suspend active=1 SuccessCriteriaMet=True@9 Complete=True:CompletionsReached@9

`@5` follows what happened 5 s after the creation of the TFJob or TrainJob. A condition is `type=status:reason@changed`.
A container is its name, after `init` for an init container, and `waiting:reason`, `running@started` or
`terminated:reason:code[:signal]@finished`, with `ready`, `restarts=` and `last=` (the last state) if they are set.
Zeros, empty texts and False are left out. `deleting@35 grace=30` is the deletionTimestamp with its grace period.

Of a pod, a recording has only the words before the first bar and the containers that its line before lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

Object = Mapping[str, Any]

POD_CONDITIONS = ("DisruptionTarget", "PodReadyToStartContainers", "PodScheduled")
JOB_NUMBERS = ("active", "ready", "terminating", "succeeded", "failed", "completedIndexes")


def pod_status(pod: Object, since: datetime) -> str:
    """Returns the line of a pod, with times relative to `since`."""
    status = pod.get("status") or {}
    words = [
        status.get("phase") or "-",
        f"restartPolicy={pod['spec']['restartPolicy']}",
        *([f"reason={status['reason']}"] if status.get("reason") else []),
        *_moment("started", status.get("startTime"), since),
        *_deletion(pod["metadata"], since),
        *_conditions((each for each in status.get("conditions") or () if each["type"] in POD_CONDITIONS), since),
    ]
    containers = [f"init {_container(each, since)}" for each in status.get("initContainerStatuses") or ()]
    containers += [_container(each, since) for each in status.get("containerStatuses") or ()]
    return " | ".join([" ".join(words), *containers])


def job_status(job: Object, since: datetime) -> str:
    """Returns the line of a child Job, with times relative to `since`."""
    spec, status = job["spec"], job.get("status") or {}
    words = [
        f"parallelism={spec.get('parallelism', 1)}",
        *(["suspend"] if spec.get("suspend") else []),
        *(f"{name}={status[name]}" for name in JOB_NUMBERS if status.get(name)),
        *_deletion(job["metadata"], since),
        *_conditions(status.get("conditions") or (), since),
    ]
    return " ".join(words)


def changed_parts(before: str, now: str) -> str:
    """Returns the words and containers of a pod's line that the line before lacks. None of them ever disappears."""
    first, *containers = now.split(" | ")
    old_first, *old_containers = before.split(" | ")
    words = [word for word in first.split(" ") if word not in old_first.split(" ")]
    return " | ".join([" ".join(words), *(each for each in containers if each not in old_containers)]).strip()


def _container(status: Object, since: datetime) -> str:
    last = _state(status.get("lastState") or {}, since)
    words = [
        status["name"],
        _state(status.get("state") or {}, since),
        *(["ready"] if status.get("ready") else []),
        *([f"restarts={status['restartCount']}"] if status.get("restartCount") else []),
        *([f"last={last}"] if last != "-" else []),
    ]
    return " ".join(words)


def _state(state: Object, since: datetime) -> str:
    for kind, value in state.items():
        parts = [kind, value.get("reason", "")]
        if kind == "terminated":
            parts += [str(value["exitCode"]), *([str(value["signal"])] if value.get("signal") else [])]
        text = ":".join(parts).rstrip(":")
        return text + _at(value.get("finishedAt" if kind == "terminated" else "startedAt"), since)
    return "-"


def _conditions(conditions: Iterable[Object], since: datetime) -> Iterator[str]:
    for each in sorted(conditions, key=lambda condition: str(condition["type"])):
        reason = f":{each['reason']}" if each.get("reason") else ""
        yield f"{each['type']}={each['status']}{reason}{_at(each.get('lastTransitionTime'), since)}"


def _deletion(meta: Object, since: datetime) -> list[str]:
    words = _moment("deleting", meta.get("deletionTimestamp"), since)
    return [*words, f"grace={meta.get('deletionGracePeriodSeconds', 0)}"] if words else []


def _moment(word: str, time: str | None, since: datetime) -> list[str]:
    return [word + _at(time, since)] if time else []


def _at(time: str | None, since: datetime) -> str:
    return f"@{(datetime.fromisoformat(time) - since).total_seconds():g}" if time else ""
