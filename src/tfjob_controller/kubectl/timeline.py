"""What happened to a job, in the order of time. Pure: from a case file to lines.

Each object tells of itself what it still knows: of a condition its last change, of a container its present and its last
run. Events tell the rest, for as long as the server keeps them (an hour). A line names its source, so that one knows
whom to ask further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tfjob_controller.kube.trace import RECONCILE_ID_ANNOTATION
from tfjob_controller.kubectl.casefile import CaseFile, Object, event_time
from tfjob_controller.trainer.labels import JOB_TYPE, TASK_INDEX
from tfjob_controller.trainer.pods import shortened

CONDITION, EVENT, OBJECT, CONTAINER, LOG = "condition", "event", "object", "container", "log"
# Events that say once more what the pod itself says, with the same time.
_SAID_BY_PODS = frozenset({"Scheduled", "Started"})
# The kubelet has this time for a container that ended without having started.
_NEVER = "1970-01-01T00:00:00Z"


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """One line. `time` and `last_time` (of what happened `count` times) are RFC 3339 in UTC."""

    time: str
    source: str
    kind: str
    text: str
    replica: str = ""
    count: int = 1
    last_time: str = ""
    is_warning: bool = False
    reconcile_id: str = ""


def timeline(case: CaseFile) -> list[Entry]:
    """All that is known, the oldest first."""
    replicas = {child["metadata"]["name"]: replica_of(child) for child in (*case.jobs, *case.pods)}
    alive = {pod["metadata"]["uid"] for pod in case.pods}
    found = [
        *_of_job(case),
        *(entry for gang in case.gangs for entry in _of_gang(gang)),
        *(entry for job in case.jobs for entry in _of_child("job", job)),
        *(entry for pod in case.pods for entry in _of_pod(pod)),
        *(_of_event(case, event, replicas) for event in case.events if not _is_said(event, alive)),
    ]
    return in_order(found)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """What has no time is left out. Of one second, what the object says itself comes first."""
    rank = {OBJECT: 0, CONDITION: 1, CONTAINER: 2, EVENT: 3, LOG: 4}
    return sorted(
        (each for each in entries if each.time), key=lambda each: (each.time[:19], rank[each.kind], each.time)
    )


def replica_of(child: Object) -> str:
    """Such as worker-3; empty for what is no replica's."""
    labels = child["metadata"].get("labels", {})
    return f"{labels[JOB_TYPE].lower()}-{labels.get(TASK_INDEX, '')}" if JOB_TYPE in labels else ""


def _of_job(case: CaseFile) -> Iterator[Entry]:
    manifest, word = case.seen.manifest, case.seen.kind.word
    source = f"{word}/{manifest['metadata']['name']}"
    yield from _life(source, manifest)
    yield from _conditions(source, manifest)
    status = manifest.get("status", {})
    if status.get("startTime"):
        yield Entry(status["startTime"], source, OBJECT, "started, or resumed")
    if status.get("completionTime"):
        yield Entry(status["completionTime"], source, OBJECT, f"ended: {status.get('reason') or status.get('state')}")


def _of_gang(gang: Object) -> Iterator[Entry]:
    source, status = f"gang/{gang['metadata']['name']}", gang.get("status", {})
    yield from _life(source, gang)
    yield from _conditions(source, gang)
    attempt = f"attempt {status.get('attempt', 0)}"
    said = (
        ("waitingSince", f"queued; now at position {status['position']}" if status.get("position") else "queued"),
        ("admittedTime", f"admitted ({attempt}): {_placed(status) or 'its place was given back since'}"),
        ("boundAt", f"all pods are bound ({attempt})"),
        ("lastResizeTime", f"members came or went ({attempt})"),
    )
    for name, text in said:
        if status.get(name):
            yield Entry(status[name], source, OBJECT, text)


def _placed(status: Object) -> str:
    return "; ".join(f"{each['node']}: {', '.join(each.get('members', ()))}" for each in status.get("placement") or ())


def _of_child(word: str, child: Object) -> Iterator[Entry]:
    source, replica = f"{word}/{child['metadata']['name']}", replica_of(child)
    yield from _life(source, child, replica)
    yield from _conditions(source, child, replica)


def _of_pod(pod: Object) -> Iterator[Entry]:
    source, replica, status = f"pod/{pod['metadata']['name']}", replica_of(pod), pod.get("status", {})
    yield from _life(source, pod, replica)
    for condition in status.get("conditions", ()):
        if condition["type"] in ("PodScheduled", "Ready", "DisruptionTarget"):
            yield _pod_condition(pod, source, replica, condition)
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            yield from _of_container(source, replica, container)


def _pod_condition(pod: Object, source: str, replica: str, condition: Object) -> Entry:
    is_true = condition["status"] == "True"
    text = f"{condition['type']} is {condition['status']}"
    if condition["type"] == "PodScheduled":
        text = f"scheduled to {pod['spec'].get('nodeName', 'a node')}" if is_true else "not scheduled"
    elif condition["type"] == "Ready":
        text = "ready" if is_true else "not ready"
    text = _with_why(text, "" if is_true else condition.get("reason", ""), condition.get("message", ""))
    moment = condition.get("lastTransitionTime") or ""
    is_bad = not is_true and condition["type"] == "PodScheduled"
    return Entry(moment, source, CONDITION, text, replica, is_warning=is_bad)


def _of_container(source: str, replica: str, container: Object) -> Iterator[Entry]:
    name, restarts = container["name"], container.get("restartCount", 0)
    for state in (container.get("lastState", {}), container.get("state", {})):
        ended = state.get("terminated")
        if ended:
            if ended.get("startedAt") not in (None, _NEVER):
                yield Entry(ended["startedAt"], source, CONTAINER, f"{name} started", replica)
            yield _end(source, replica, name, ended)
        elif state.get("running"):
            again = f" (restart {restarts})" if restarts else ""
            yield Entry(state["running"].get("startedAt") or "", source, CONTAINER, f"{name} started{again}", replica)


def _end(source: str, replica: str, name: str, ended: Object) -> Entry:
    code = ended.get("exitCode", 0)
    reason = ended.get("reason", "")
    word = f" ({reason})" if reason not in ("", "Error", "Completed") else ""
    text = _with_why(f"{name} ended with exit code {code}{word}", "", ended.get("message", ""))
    return Entry(ended.get("finishedAt") or "", source, CONTAINER, text, replica, is_warning=code != 0)


def _life(source: str, obj: Object, replica: str = "") -> Iterator[Entry]:
    meta = obj["metadata"]
    yield Entry(meta.get("creationTimestamp") or "", source, OBJECT, "created", replica)
    if meta.get("deletionTimestamp"):
        yield Entry(meta["deletionTimestamp"], source, OBJECT, "to be gone by then: it is being deleted", replica)


def _conditions(source: str, obj: Object, replica: str = "") -> Iterator[Entry]:
    for each in obj.get("status", {}).get("conditions") or ():
        text = _with_why(f"{each['type']} is {each['status']}", each.get("reason", ""), each.get("message", ""))
        is_bad = each["type"] == "Failed" and each["status"] == "True"
        moment = each.get("lastTransitionTime") or ""
        yield Entry(moment, source, CONDITION, text, replica, is_warning=is_bad)


def _is_said(event: Object, alive: set[str]) -> bool:
    return event.get("reason") in _SAID_BY_PODS and event.get("involvedObject", {}).get("uid") in alive


def _of_event(case: CaseFile, event: Object, replicas: dict[str, str]) -> Entry:
    about, series = event.get("involvedObject", {}), event.get("series") or {}
    count = max(series.get("count", 0), event.get("count") or 0, 1)
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or ""
    reporter = event.get("reportingComponent") or event.get("source", {}).get("component") or "unknown"
    word = str(about.get("kind", "")).lower()
    return Entry(
        event_time(event),
        f"{word}/{about.get('name', '')}",
        EVENT,
        _with_why(f"{event.get('reason', '')} [{reporter}]", "", event.get("message", "")),
        replicas.get(about.get("name", ""), ""),
        count,
        last if count > 1 else "",
        event.get("type") == "Warning",
        (event["metadata"].get("annotations") or {}).get(RECONCILE_ID_ANNOTATION, ""),
    )


def _with_why(text: str, reason: str, message: str) -> str:
    return ": ".join(part for part in (text, reason, shortened(message)) if part)


def of_log(line: dict[str, Any], pod: str) -> Entry:
    """A line of the controller's log as it stands in JSON."""
    left_out = {"timestamp", "level", "logger", "event", "key", "reconcile_id"}
    fields = " ".join(f"{name}={_shown(value)}" for name, value in line.items() if name not in left_out)
    return Entry(
        str(line.get("timestamp", "")),
        f"pod/{pod}",
        LOG,
        f"{line.get('event', '')} {shortened(fields)}".rstrip(),
        is_warning=line.get("level") in ("warning", "error", "critical"),
        reconcile_id=str(line.get("reconcile_id", "")),
    )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
