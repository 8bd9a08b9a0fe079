"""Makes the record of a job from what the API server still has of it: the job, its children and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from tfjob_controller.api.common.core import JOBS, PODS
from tfjob_controller.client.diagnostics.collection import NEW_EVENTS, Diagnostics, collect_objects
from tfjob_controller.client.diagnostics.description import Description, describe
from tfjob_controller.client.diagnostics.replicas import has_ended, replica_views
from tfjob_controller.client.diagnostics.timeline import TimelineEntry, fold_entries, is_routine, timeline
from tfjob_controller.client.history.record import DELETED, Record
from tfjob_controller.client.kinds import recorded_kind, snapshot_decoder
from tfjob_controller.client.reader import EVENTS, Event, observed_of
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import Object, Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.timestamps import format_time, parse_time_or_none

log = structlog.get_logger(__name__)

MAX_TIMELINE = 1000
_DELETED_HINT = "It was deleted before it had ended; its phase and its replicas are as they were when it was recorded."
_PATIENCE: dict[str, Any] = {"timeout_seconds": 10.0, "retry": False}


def client_kind(resource: Resource[Any]) -> ClientKind:
    """The kind as clients read it, which all kinds of jobs have."""
    kind = recorded_kind(resource.api_version, resource.kind)
    if kind is None:
        raise LookupError(f"{resource.full_name} has no client kind")
    return kind


def live_job(requester: Requester, resource: Resource[Any], namespace: str, name: str, uid: str) -> bytes | None:
    """The job as the API server has it; None if it is gone. A list, because the controller may not get single jobs."""
    client = ResourceClient(requester, resource, **_PATIENCE)
    for page in client.pages(namespace, field_selector=f"metadata.name={name}"):
        for item in page.items:
            if resource.decode(item).metadata.uid == uid:
                return bytes(item)
    return None


def last_state(resource: Resource[Any], job: Object) -> bytes:
    """The last state of a job in a cache: the fields that the controller reads, without annotations."""
    value = msgspec.to_builtins(job)
    value.pop("_invalid", None)
    return msgspec.json.encode({"apiVersion": resource.api_version, **value, "kind": resource.kind})


def collect(requester: Requester, kind: ClientKind, body: bytes, *, gangs: bool) -> Diagnostics:
    """The job with its children and events. Raises ApiError."""
    return collect_objects(requester, Diagnostics(snapshot_decoder(kind)(body)), NEW_EVENTS, gangs=gangs)


def record_of(case: Diagnostics, before: Record | None, now: datetime) -> Record:
    """The record of a job, without logs, or with those of the record `before` that was made of it earlier."""
    seen = case.seen
    status = seen.kind.work_of(seen.job).status
    meta, ended = seen.metadata, has_ended(status)
    description = _description(case, now)
    if description is not None and not ended:
        description = replace(description, state=DELETED, hints=[*description.hints, _DELETED_HINT])
    record = Record(
        api_version=seen.kind.resource.api_version,
        kind=seen.kind.resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        state=(status.state or status.phase) if ended else DELETED,
        ended=end_of(status) if ended else format_time(parse_time_or_none(meta.deletion_timestamp) or now),
        phase=status.phase,
        reason=status.reason,
        created=meta.creation_timestamp or "",
        started=status.start_time or "",
        body=msgspec.Raw(msgspec.json.encode(seen.manifest)),
        timeline=_timeline(case),
        metrics=dict(seen.kind.metrics_of(seen.job)),
        logged_metrics=list(seen.kind.logged_metrics_of(seen.job)),
        unread=case.unread,
        description=description,
    )
    return record if before is None else _with(before, record)


def _with(before: Record, now: Record) -> Record:
    """The record after the clean-up, with what only the first one has: logs, and pods that are deleted since."""
    known = {_key(entry): entry for entry in (*before.timeline, *now.timeline)}
    entries = sorted(known.values(), key=lambda entry: entry.time[:19])
    description = now.description
    if description is not None and before.description is not None:
        description = replace(description, replicas=before.description.replicas)
    return replace(
        now,
        state=before.state,
        ended=before.ended,
        logs=before.logs,
        unread=list(dict.fromkeys((*before.unread, *now.unread))),
        timeline=entries[-MAX_TIMELINE:],
        description=description,
    )


def _key(entry: TimelineEntry) -> tuple[str, str, str]:
    """Equal for entries of the same thing: once pods are gone, fewer sources are folded into one."""
    return entry.time[:19], entry.kind, entry.text


def end_of(status: TrainingStatus) -> str:
    """When the job ended; always the same for the same status."""
    times = (status.completion_time, *(condition.last_transition_time for condition in status.conditions))
    for time in (times[0], max((time for time in times[1:] if time), default=None), status.start_time):
        if (moment := parse_time_or_none(time)) is not None:
            return format_time(moment)
    return "1970-01-01T00:00:00Z"


def _timeline(case: Diagnostics) -> list[TimelineEntry]:
    return fold_entries([entry for entry in timeline(case) if not is_routine(entry)])[-MAX_TIMELINE:]


def _description(case: Diagnostics, now: datetime) -> Description | None:
    try:
        return _described(case, now)
    except Exception:  # a manifest of any content must not keep a job from being recorded
        log.exception("the job is recorded without its description", job=case.seen.metadata.name)
        return None


def _described(case: Diagnostics, now: datetime) -> Description:
    seen = case.seen
    jobs = (JOBS.decode(msgspec.json.encode(job)) for job in case.jobs)
    pods = [PODS.decode(msgspec.json.encode(pod)) for pod in case.pods]
    views = replica_views(seen.job, observed_of(seen.kind, seen.metadata, jobs, pods), now)
    return describe(seen.job, views, lambda uid: _events_about(case.events, uid))


def _events_about(events: Sequence[dict[str, Any]], uid: str) -> Iterable[Event]:
    about = (event for event in events if event.get("involvedObject", {}).get("uid") == uid)
    return [EVENTS.decode(msgspec.json.encode(event)) for event in about]
