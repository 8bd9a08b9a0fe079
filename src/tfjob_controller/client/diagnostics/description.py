"""The description of a job, as `describe` of the plugin and of the Python client shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.common.checkpointstatus import CheckpointStatus
from tfjob_controller.api.common.core import Terminated
from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.client.diagnostics.diagnosis import job_hints
from tfjob_controller.client.diagnostics.timeline import pattern_of
from tfjob_controller.client.kinds import AnyJob, kind_of, status_of
from tfjob_controller.client.reader import Event
from tfjob_controller.client.text import age, ago, html_element, html_fields, html_table
from tfjob_controller.jobs.evaluation.silence import newest_warning
from tfjob_controller.jobs.state import replica_state
from tfjob_controller.jobs.state.podreasons import error_of, exit_text
from tfjob_controller.jobs.state.pods import blocking_init_container, failing_init_container, is_unheard
from tfjob_controller.jobs.state.replica_state import ReplicaState
from tfjob_controller.jobs.state.restarts import next_restart_counts, restarts_of
from tfjob_controller.jobs.status.checkpoints import named, restored_text, size_text
from tfjob_controller.jobs.trainingjob import ready_by_role
from tfjob_controller.util.text import shortened

# Events are read for this many waiting replicas; the others usually have the same cause.
MAX_REPLICAS_WITH_EVENTS = 3
MAX_EVENTS = 20
_BAR_LENGTH = 20


class ReplicaRow(msgspec.Struct, frozen=True, rename="camel"):
    """One replica. `restarts` counts those of existing pods; `last_exit` is empty if it never ended."""

    replica: str
    state: str
    pod: str
    node: str
    ready: bool
    restarts: int
    last_exit: str
    message: str


class EventRow(msgspec.Struct, frozen=True, rename="camel"):
    last_seen: str
    type: str
    reason: str
    about: str
    count: int
    note: str


class Description(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a job as `describe` shows it. `hints` have facts that the status lacks. Times are RFC 3339.

    `reported` is when the controller changed the status last; empty if it never did.
    """

    name: str
    namespace: str
    phase: str
    state: str
    reason: str
    runtime_id: str
    created: str
    started: str
    completed: str
    restarts: int
    backoff_limit: int | None
    ready: dict[str, str]
    workers: str
    progress: str
    progress_percentage: int | None
    metrics: dict[str, str]
    hints: list[str]
    replicas: list[ReplicaRow]
    conditions: list[JobCondition]
    events: list[EventRow]
    kind: str = TFJOBS.kind
    checkpoint: str = ""
    reported: str = ""

    def _repr_html_(self) -> str:
        return to_html(self)


def summary(description: Description) -> dict[str, str]:
    """Returns the fields that the plugin and the HTML output both show."""
    return {
        "Kind": description.kind,
        "Phase": description.phase or "(none yet)",
        "State": description.state,
        "Reason": description.reason,
        "Ready": _ready(description),
        "Workers": description.workers,
        "Progress": _bar(description.progress_percentage) + description.progress,
        "Checkpoint": description.checkpoint,
        "Metrics": ", ".join(f"{name} {_figure(value)}" for name, value in description.metrics.items()),
    }


def _ready(description: Description) -> str:
    """Returns the ready replicas of each role. The status of an ended job keeps what they were."""
    counts = ", ".join(f"{role} {ready}" for role, ready in description.ready.items())
    return f"{counts}, when it ended" if counts and description.completed else counts


def _figure(value: str) -> str:
    """Returns the number with 6 digits; any other text, which the API accepts as well, as it is."""
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return value


def _bar(percentage: int | None) -> str:
    """Returns `[########------------] ` for 40; empty if the percentage is not known."""
    if percentage is None:
        return ""
    done = _BAR_LENGTH * percentage // 100
    return f"[{'#' * done}{'-' * (_BAR_LENGTH - done)}] "


def reported_text(description: Description, now: datetime) -> str:
    """Returns a text such as `by the controller 12m ago`; empty before its first report."""
    return f"by the controller {ago(description.reported, now)}" if description.reported else ""


# Reads the events about the object with a UID.
EventsOf = Callable[[str], Iterable[Event]]


def describe(
    job: AnyJob, views: Sequence[ReplicaState], events_of: EventsOf, reported: str = "", notices: Sequence[str] = ()
) -> Description:
    """The description; `notices` name the programs that report about the job and no longer run."""
    kind, meta, status = kind_of(job), job.metadata, status_of(job)
    counts = next_restart_counts(views, status.restart_counts)
    child_events = _child_events(views, meta.uid, events_of)
    warnings = (event for events in child_events.values() for event in events if event.type == "Warning")
    return Description(
        name=meta.name,
        namespace=meta.namespace,
        phase=status.phase,
        state=status.summary or job.status.state,
        reason=status.reason,
        runtime_id=kind.runtime_id_of(job),
        created=meta.creation_timestamp or "",
        started=status.start_time or "",
        completed=status.completion_time or "",
        restarts=status.restarts,
        backoff_limit=kind.restart_limit_of(job),
        ready=ready_by_role(status),
        workers=kind.size_of(job),
        progress=kind.progress_of(job),
        progress_percentage=kind.percentage_of(job),
        metrics=dict(kind.metrics_of(job)),
        hints=[*job_hints(job), *(f"{notice}." for notice in notices if notice)],
        replicas=[_row(view, counts, child_events, is_suspended=job.spec.suspend) for view in views],
        conditions=list(job.status.conditions),
        events=_folded(event_rows(meta.name, chain(events_of(meta.uid), warnings)))[-MAX_EVENTS:],
        kind=kind.resource.kind,
        checkpoint=_checkpoint(status.checkpoint),
        reported=reported,
    )


def _checkpoint(checkpoint: CheckpointStatus | None) -> str:
    """Returns the last saved checkpoint, why saving fails, and what was restored; empty if nothing is known."""
    if checkpoint is None:
        return ""
    saved = f"{named(checkpoint)}, {size_text(checkpoint.size)}, saved {checkpoint.time}" if checkpoint.name else ""
    failure = checkpoint.failure
    failed = f"{failure.name or 'a checkpoint'} is not saved: {failure.reason}" if failure is not None else ""
    restored = f"training {restored_text(checkpoint.restored)}" if checkpoint.restored is not None else ""
    return "; ".join(sentence for sentence in (saved, failed, restored) if sentence)


def _row(
    view: ReplicaState, restart_counts: Mapping[str, int], events: Mapping[str, Sequence[Event]], *, is_suspended: bool
) -> ReplicaRow:
    pod, exited = view.pod, view.exited or _failing_init(view)[1]
    return ReplicaRow(
        replica=view.replica.id,
        state=_display_state(view, is_suspended=is_suspended),
        pod=pod.metadata.name if pod is not None else "",
        node=pod.spec.node_name if pod is not None else "",
        ready=view.is_ready and not _is_terminating(view),
        restarts=restarts_of(view.replica.id, restart_counts),
        last_exit=exit_text(exited) if exited is not None else "",
        message=_warning(view, events) or _message(view),
    )


def _is_terminating(view: ReplicaState) -> bool:
    """Reports whether the pod is being deleted although nothing has ended the replica, as on a node that is drained."""
    return view.pod is not None and view.pod.metadata.deletion_timestamp is not None and view.is_up


def _failing_init(view: ReplicaState) -> tuple[str, Terminated | None]:
    """Returns the name of an init container that has failed and is started again, and how it ended."""
    failing = failing_init_container(view.pod, "") if view.pod is not None and not view.is_up else None
    return failing or ("", None)


def _display_state(view: ReplicaState, *, is_suspended: bool) -> str:
    """Returns the state of a replica; of one whose program does not run yet, why, in the words of `kubectl get pods`.

    For the controller all of those are Running, since nothing has ended them, or Unknown while they are stopped.
    """
    if _is_terminating(view):
        return "Terminating"
    if view.state == replica_state.UNKNOWN:
        return "Suspended" if is_suspended else "Pending"
    if view.state != replica_state.RUNNING or view.is_up:
        return view.state
    reason, failing = view.pending.partition(":")[0], _failing_init(view)[0]
    if view.pod is not None and reason.isalpha() and reason != failing:
        return reason
    if view.is_restarting or failing:
        return "Restarting"
    return "Pending" if view.pod is None or view.pending else "Starting"


def _warning(view: ReplicaState, events: Mapping[str, Sequence[Event]]) -> str:
    """Returns the newest warning about a replica without a pod, or whose pod has no reason why it does not start."""
    if view.pod is not None and view.pending:
        return ""
    about = view.pod or view.job
    return newest_warning(events.get(about.metadata.uid, ())) if about is not None else ""


def _message(view: ReplicaState) -> str:
    """Returns why the replica waits, or else the last message of its program, or else its activity."""
    if view.pod is not None and _is_terminating(view) and is_unheard(view.pod):
        return f"its node {view.pod.spec.node_name} does not report; the pod stays until it does, or is deleted"
    if view.pending:
        return view.pending
    if view.exited is not None and view.exited.message:
        return shortened(error_of(view.exited.message))
    if view.is_up or view.state != replica_state.RUNNING:
        return ""
    if view.is_restarting:
        return "restarting"
    if view.pod is None:
        return "waiting for its pod"
    container = blocking_init_container(view.pod)
    return "starting" if container is None else f"init container {container.name} runs"


def _child_events(views: Sequence[ReplicaState], own: str, events_of: EventsOf) -> dict[str, Sequence[Event]]:
    """Returns the events about the Jobs and pods of waiting replicas, by the UID of the Job or pod.

    The job, which has the UID `own`, stands for the child Job if it owns the pods itself.
    """
    waiting = [view for view in views if view.state == replica_state.RUNNING and not view.is_up]
    children = chain.from_iterable((view.job, view.pod) for view in waiting[:MAX_REPLICAS_WITH_EVENTS])
    uids = (child.metadata.uid for child in children if child is not None and child.metadata.uid != own)
    return {uid: list(events_of(uid)) for uid in dict.fromkeys(uids)}


def event_rows(job_name: str, events: Iterable[Event]) -> list[EventRow]:
    """Returns a row for each event, oldest first."""
    return sorted((_event_row(job_name, event) for event in events), key=lambda row: row.last_seen)


def _folded(rows: Iterable[EventRow]) -> list[EventRow]:
    """Returns one row for the events of one cause about children: the newest, with the sum of the counts."""
    groups: dict[tuple[str, ...], EventRow] = {}
    for row in rows:
        key = (row.type, row.reason, pattern_of(row.note, row.about) if row.about else row.note)
        before = groups.pop(key, None)
        groups[key] = row if before is None else replace(row, count=before.count + row.count)
    return list(groups.values())


def _event_row(job_name: str, event: Event) -> EventRow:
    series = event.series
    about = event.involved_object.name
    return EventRow(
        last_seen=event.last_seen,
        type=event.type,
        reason=event.reason,
        about="" if about == job_name else about,
        count=max(series.count if series else 0, event.count or 0, 1),
        note=shortened(event.message),
    )


def sections_of(description: Description, now: datetime) -> list[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Returns title, headers and rows of each table of a description; tables without rows are left out."""
    replicas = [
        [
            replica.replica,
            replica.state,
            "yes" if replica.ready else "no",
            str(replica.restarts),
            replica.last_exit,
            replica.node,
            replica.pod,
            replica.message,
        ]
        for replica in description.replicas
    ]
    conditions = [
        [
            condition.type,
            condition.status,
            ago(condition.last_transition_time, now),
            condition.reason,
            condition.message,
        ]
        for condition in description.conditions
    ]
    events = [
        [
            ago(event.last_seen, now),
            event.type,
            event.reason,
            f"{event.count}x" if event.count > 1 else "",
            f"{event.about}: {event.note}" if event.about else event.note,
        ]
        for event in description.events
    ]
    sections = (
        ("Replicas", ["Replica", "State", "Ready", "Restarts", "Last exit", "Node", "Pod", "Message"], replicas),
        ("Conditions", ["Type", "Status", "Since", "Reason", "Message"], conditions),
        ("Events", ["Last seen", "Type", "Reason", "Times", "Note"], events),
    )
    return [section for section in sections if section[2]]


def to_html(description: Description, now: datetime | None = None) -> str:
    now = now or datetime.now(UTC)
    fields = {
        "Name": f"{description.namespace}/{description.name}",
        **summary(description),
        "Restarts": str(description.restarts),
        "Age": age(description.created, now),
        "Reported": reported_text(description, now),
    }
    parts = [html_fields(fields), *(html_element("p", hint) for hint in description.hints)]
    for title, headers, rows in sections_of(description, now):
        parts += [html_element("h4", title), html_table(headers, rows)]
    return "".join(parts)
