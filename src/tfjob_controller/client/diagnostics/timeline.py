"""The timeline of a job, and how equal lines are folded. Pure.

Objects contribute what they still record: the last transition of each condition, the current and the last run of each
container. Events add the rest, for as long as the server keeps them (an hour). Each line names its source.

For people, events of children with one reason, whose messages differ in names and numbers only, are folded into one
line with their sum: a kubelet that pulls a wrong image for three replicas writes five events for each. Events about the
job itself are folded only if they are equal, because their numbers matter. Entries of several children in one second
are one line, too. The reason of a job's end is shown once: its conditions with the same message are left out, and its
events lose the reason. A condition with the message of an event is left out. Ends of containers and log lines are never
folded.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.api.gang import index_of, kind_of
from tfjob_controller.client.diagnostics.collection import Diagnostics, Object, child_names, event_time
from tfjob_controller.client.text import replica_ranges
from tfjob_controller.jobs.evaluation.silence import AGGREGATED
from tfjob_controller.jobs.naming import replica_id, replica_id_of
from tfjob_controller.jobs.state.podreasons import error_of
from tfjob_controller.jobs.status.checkpoints import named, restored_text, size_text
from tfjob_controller.kube.trace import RECONCILE_ID_ANNOTATION
from tfjob_controller.util.text import shortened

CONDITION, EVENT, OBJECT, CONTAINER, LOG = "condition", "event", "object", "container", "log"
# Events that repeat the status of the pod, with the same time.
_IN_PODS = frozenset({"Scheduled", "Started"})
_POD_CREATED = "Created pod: "
# The Job controller's event that repeats the condition Complete of the Job, and the condition that precedes it.
_JOB_COMPLETED, _PRECEDES_END = "Completed", "SuccessCriteriaMet"
# Reasons for which a pod that has ended is not ready.
_POD_ENDED = frozenset({"PodCompleted", "PodFailed"})
_ENDED = "ended: "
# The kubelet's start time of a container that ended without having started.
_NEVER = "1970-01-01T00:00:00Z"
# The name of a child (at least two hyphens), or a number with its unit or port, such as 1.5s or 10.0.0.1:5000.
_VARIABLE = re.compile(r"[\w.]+(?:-[\w.]+){2,}|\d[\w.:]*")
_CHILDREN = ("pod", "job")
_BEFORE_WHY = ": "
_KUBELET = "kubelet"


class TimelineEntry(msgspec.Struct, frozen=True, rename="camel"):
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


def timeline(case: Diagnostics) -> list[TimelineEntry]:
    """All entries, the oldest first."""
    replicas = {child["metadata"]["name"]: replica_of(child) for child in (*case.jobs, *case.pods)}
    child_name = child_names(case.seen)
    entries = [
        *_of_job(case),
        *(entry for gang in case.gangs for entry in _of_gang(gang)),
        *(entry for job in case.jobs for entry in _of_child("job", job)),
        *(entry for pod in case.pods for entry in _of_pod(pod)),
        *(_of_event(event, replicas, child_name) for event in _events(case)),
    ]
    return sort_entries(entries)


def sort_entries(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    """Sorts by time, and within a second by kind. Entries without a time are left out."""
    rank = {OBJECT: 0, CONDITION: 1, CONTAINER: 2, EVENT: 3, LOG: 4}
    timed = (entry for entry in entries if entry.time)
    return sorted(timed, key=lambda entry: (entry.time[:19], rank[entry.kind], entry.time))


def replica_of(child: Object) -> str:
    """The replica of a child, such as worker-3; empty if it has none."""
    return replica_id_of(child["metadata"].get("labels", {}))


def _of_job(case: Diagnostics) -> Iterator[TimelineEntry]:
    manifest, word = case.seen.manifest, case.seen.kind.word
    source = f"{word}/{manifest['metadata']['name']}"
    yield from _life(source, manifest)
    yield from _conditions(source, manifest)
    status = manifest.get("status", {})
    yield TimelineEntry(status.get("startTime") or "", source, OBJECT, "started, or resumed")
    yield from _of_checkpoints(source, status.get("checkpoint"))
    why = case.seen.reason or case.seen.job.status.state
    yield TimelineEntry(status.get("completionTime") or "", source, OBJECT, f"{_ENDED}{why}")


def _of_checkpoints(source: str, recorded: Object | None) -> Iterator[TimelineEntry]:
    checkpoint = msgspec.convert(recorded or {}, CheckpointStatus)
    size = size_text(checkpoint.size)
    yield TimelineEntry(checkpoint.time or "", source, OBJECT, f"saved {named(checkpoint)}, {size}")
    restored, failure = checkpoint.restored, checkpoint.failure
    if restored is not None:
        yield TimelineEntry(restored.time or "", source, OBJECT, f"training {restored_text(restored)}")
    if failure is not None:
        text = f"{failure.name or 'a checkpoint'} is not saved: {failure.reason}"
        yield TimelineEntry(failure.time, source, OBJECT, shortened(text), is_warning=True)


def _of_gang(gang: Object) -> Iterator[TimelineEntry]:
    source, status = f"gang/{gang['metadata']['name']}", gang.get("status", {})
    yield from _life(source, gang)
    yield from _conditions(source, gang)
    attempt = f"attempt {status.get('attempt', 0)}"
    entries = (
        ("queuedTime", f"queued; now at position {status['position']}" if status.get("position") else "queued"),
        ("admittedTime", f"admitted ({attempt}): {_placed(status) or 'its placement was released since'}"),
        ("boundTime", f"all pods are bound ({attempt})"),
        ("lastResizeTime", f"resized ({attempt})"),
    )
    for name, text in entries:
        yield TimelineEntry(status.get(name) or "", source, OBJECT, text)


def _placed(status: Object) -> str:
    return "; ".join(
        f"{placement['node']}: {', '.join(placement.get('members', ()))}" for placement in status.get("placement") or ()
    )


def _of_child(word: str, child: Object) -> Iterator[TimelineEntry]:
    source, replica = f"{word}/{child['metadata']['name']}", replica_of(child)
    yield from _life(source, child, replica)
    yield from _conditions(source, child, replica)


def _of_pod(pod: Object) -> Iterator[TimelineEntry]:
    source, replica, status = f"pod/{pod['metadata']['name']}", replica_of(pod), pod.get("status", {})
    yield from _life(source, pod, replica)
    for condition in status.get("conditions", ()):
        if condition["type"] == "Ready" and condition.get("reason") in _POD_ENDED:
            if status.get("reason"):
                text = _with_why("ended by the kubelet", status["reason"], status.get("message", ""))
                moment = condition.get("lastTransitionTime") or ""
                yield TimelineEntry(moment, source, CONDITION, text, replica, is_warning=True)
            continue
        if condition["type"] in ("PodScheduled", "Ready", "DisruptionTarget"):
            yield _pod_condition(pod, source, replica, condition)
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            yield from _of_container(source, replica, container)


def _pod_condition(pod: Object, source: str, replica: str, condition: Object) -> TimelineEntry:
    is_true = condition["status"] == "True"
    text = f"{condition['type']} is {condition['status']}"
    if condition["type"] == "PodScheduled":
        text = f"scheduled to {pod['spec'].get('nodeName', 'a node')}" if is_true else "not scheduled"
    elif condition["type"] == "Ready":
        text = "ready" if is_true else "not ready"
    text = _with_why(text, "" if is_true else condition.get("reason", ""), condition.get("message", ""))
    moment = condition.get("lastTransitionTime") or ""
    is_bad = not is_true and condition["type"] == "PodScheduled"
    return TimelineEntry(moment, source, CONDITION, text, replica, is_warning=is_bad)


def _of_container(source: str, replica: str, container: Object) -> Iterator[TimelineEntry]:
    name, restarts = container["name"], container.get("restartCount", 0)
    for state in (container.get("lastState", {}), container.get("state", {})):
        ended = state.get("terminated")
        if ended:
            if ended.get("startedAt") not in (None, _NEVER):
                yield TimelineEntry(ended["startedAt"], source, CONTAINER, f"{name} started", replica)
            yield _end(source, replica, name, ended)
        elif state.get("running"):
            text = f"{name} started (restart {restarts})" if restarts else f"{name} started"
            yield TimelineEntry(state["running"].get("startedAt") or "", source, CONTAINER, text, replica)


def _end(source: str, replica: str, name: str, ended: Object) -> TimelineEntry:
    code = ended.get("exitCode", 0)
    reason = ended.get("reason", "")
    word = f" ({reason})" if reason not in ("", "Error", "Completed") else ""
    text = _with_why(f"{name} ended with exit code {code}{word}", "", error_of(ended.get("message", "")))
    return TimelineEntry(ended.get("finishedAt") or "", source, CONTAINER, text, replica, is_warning=code != 0)


def _life(source: str, obj: Object, replica: str = "") -> Iterator[TimelineEntry]:
    meta = obj["metadata"]
    yield TimelineEntry(meta.get("creationTimestamp") or "", source, OBJECT, "created", replica)
    yield TimelineEntry(meta.get("deletionTimestamp") or "", source, OBJECT, "deletion deadline", replica)


def _conditions(source: str, obj: Object, replica: str = "") -> Iterator[TimelineEntry]:
    for condition in obj.get("status", {}).get("conditions") or ():
        if condition["type"] == _PRECEDES_END:
            continue
        text = _with_why(
            f"{condition['type']} is {condition['status']}", condition.get("reason", ""), condition.get("message", "")
        )
        is_bad = condition["type"] == "Failed" and condition["status"] == "True"
        moment = condition.get("lastTransitionTime") or ""
        yield TimelineEntry(moment, source, CONDITION, text, replica, is_warning=is_bad)


def is_routine(entry: TimelineEntry) -> bool:
    """Whether it is a Normal event of the kubelet, such as Pulled: the states of containers tell the same."""
    return entry.kind == EVENT and not entry.is_warning and f" [{_KUBELET}]" in entry.text.partition(":")[0]


def _events(case: Diagnostics) -> Iterator[Object]:
    """The events that do not repeat what the children's statuses record."""
    pods = {pod["metadata"]["uid"] for pod in case.pods}
    created = {_POD_CREATED + pod["metadata"]["name"] for pod in case.pods}
    completed = {job["metadata"]["uid"] for job in case.jobs if _is_complete(job)}
    for event in case.events:
        reason, uid = event.get("reason"), event.get("involvedObject", {}).get("uid")
        is_repeated = (
            (reason in _IN_PODS and uid in pods)
            or event.get("message") in created
            or (reason == _JOB_COMPLETED and uid in completed)
        )
        if not is_repeated:
            yield event


def _is_complete(job: Object) -> bool:
    return any(condition["type"] == "Complete" for condition in job.get("status", {}).get("conditions") or ())


def _of_event(event: Object, replicas: dict[str, str], child_name: re.Pattern[str] | None) -> TimelineEntry:
    about, series = event.get("involvedObject", {}), event.get("series") or {}
    count = max(series.get("count", 0), event.get("count") or 0, 1)
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or ""
    reporter = event.get("reportingComponent") or event.get("source", {}).get("component") or "unknown"
    word = str(about.get("kind", "")).lower()
    replica = replicas.get(about.get("name", ""), "")
    if not replica and child_name is not None and (found := child_name.match(about.get("name", ""))):
        replica = replica_id(found[1], int(found[2]))
    return TimelineEntry(
        event_time(event),
        f"{word}/{about.get('name', '')}",
        EVENT,
        _with_why(f"{event.get('reason', '')} [{reporter}]", "", event.get("message", "")),
        replica,
        count,
        last if count > 1 else "",
        event.get("type") == "Warning",
        (event["metadata"].get("annotations") or {}).get(RECONCILE_ID_ANNOTATION, ""),
    )


def _with_why(text: str, reason: str, message: str) -> str:
    return _BEFORE_WHY.join(part for part in (text, reason, shortened(message)) if part)


def log_entry(pod: str, line: Object) -> TimelineEntry:
    """The entry of a line of the controller's log."""
    left_out = {"timestamp", "level", "logger", "event", "key", "reconcile_id"}
    fields = " ".join(
        f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in line.items()
        if name not in left_out
    )
    return TimelineEntry(
        str(line.get("timestamp", "")),
        f"pod/{pod}",
        LOG,
        f"{line.get('event', '')} {shortened(fields)}".rstrip(),
        is_warning=line.get("level") in ("warning", "error", "critical"),
        reconcile_id=str(line.get("reconcile_id", "")),
    )


def fold_entries(entries: Sequence[TimelineEntry], *, keep_reconciles_apart: bool = False) -> list[TimelineEntry]:
    """Folds equal entries, in the order of the first of each; with `keep_reconciles_apart` only within a reconcile.

    A condition with the message of an event, or with the reason of the job's end, is left out.
    """
    groups: dict[Hashable, list[TimelineEntry]] = {}
    messages = {entry.text.partition("]: ")[2] for entry in entries if entry.kind == EVENT}
    ends = {entry.source: entry.text.removeprefix(_ENDED) for entry in entries if _is_end(entry)}
    for index, entry in enumerate(entries):
        why = ends.get(entry.source, "")
        if entry.kind == CONDITION and any(text in messages or _is_shortened(why, text) for text in _messages(entry)):
            continue
        if why and entry.kind == EVENT:
            entry = msgspec.structs.replace(entry, text=entry.text.removesuffix(_BEFORE_WHY + why))
        key = _key(entry)
        apart = entry.reconcile_id if keep_reconciles_apart else ""
        groups.setdefault((key, apart) if key is not None else index, []).append(entry)
    return [_one(group) for group in groups.values()]


def _is_end(entry: TimelineEntry) -> bool:
    return entry.kind == OBJECT and entry.text.startswith(_ENDED)


def _messages(condition: TimelineEntry) -> Iterator[str]:
    """What may be the message of the condition, which follows its reason."""
    parts = condition.text.split(_BEFORE_WHY)
    return (_BEFORE_WHY.join(parts[index:]) for index in range(1, len(parts)))


def _is_shortened(short: str, text: str) -> bool:
    """Whether `short` is the text, perhaps without its middle."""
    head, middle, tail = short.rpartition("…")
    if not middle:
        return short == text
    return len(short) <= len(text) and text.startswith(head) and text.endswith(tail)


def _key(entry: TimelineEntry) -> Hashable | None:
    """The key of an entry's group; None for an entry that is never folded."""
    word, _, name = entry.source.partition("/")
    if entry.kind == EVENT:
        if word not in _CHILDREN:
            return EVENT, entry.source, entry.text, entry.is_warning
        return EVENT, word, pattern_of(entry.text, name), entry.is_warning
    if entry.kind in (OBJECT, CONDITION) and word in _CHILDREN:
        return entry.kind, word, entry.text, entry.is_warning, entry.time[:19]
    return None


def pattern_of(text: str, name: str) -> str:
    """The text about a child of that name without names and numbers, which is equal for events of one cause.

    Names are replaced as a whole first: that of a pod begins with that of its Job, and ends with random letters.
    """
    text = text.replace(AGGREGATED, "")
    return _VARIABLE.sub("#", text).replace(name, "#") if name else _VARIABLE.sub("#", text)


def _one(group: Sequence[TimelineEntry]) -> TimelineEntry:
    """One entry for a group: the time of the first, the text of the last."""
    if len(group) == 1:
        return group[0]
    first, last = group[0], max(group, key=lambda entry: entry.last_time or entry.time)
    sources = dict.fromkeys(entry.source for entry in group)
    word = first.source.partition("/")[0]
    is_event = first.kind == EVENT
    return msgspec.structs.replace(
        last,
        time=first.time,
        source=first.source if len(sources) == 1 else f"{len(sources)} {word}s",
        replica=_replicas(group),
        count=sum(entry.count for entry in group) if is_event else 1,
        last_time=(last.last_time or last.time) if is_event else "",
        reconcile_id=first.reconcile_id,
    )


def _replicas(group: Sequence[TimelineEntry]) -> str:
    replicas = {entry.replica for entry in group}
    indexed = sorted((kind_of(replica), index) for replica in replicas if (index := index_of(replica)) is not None)
    return replica_ranges([f"{role}-{index}" for role, index in indexed])
