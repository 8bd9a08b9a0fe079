"""Collects the diagnostics of one job: its objects, the events about them, and the controller's log lines.

The role `view` suffices. Requests are bounded, one kind at a time, and so is what is kept of each kind. Objects that
cannot be read are left out and listed in `unread`. Objects stay plain JSON, since a timeline shows fields that nothing
else reads. Of events, which may be many and of any size, only the fields that it shows are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from tfjob_controller.api.common.core import JOBS, PODS, Pod
from tfjob_controller.api.gang import GANGS
from tfjob_controller.client.kinds import Snapshot, status_of
from tfjob_controller.client.reader import EVENTS, MAX_READ_BYTES, EventSeries, namespace_problem
from tfjob_controller.client.statusreports import StatusReport, job_reports
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import RESPONSE_TOO_LARGE, ApiError
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.trace import RECONCILE_ID_ANNOTATION

Object = dict[str, Any]

CONTROLLER_SELECTOR = "app=tfjob-controller"
# Limit for the log of one replica; a controller with several hundred jobs writes that much in a few hours.
MAX_LOG_BYTES = 10_000_000
_LOG_TIMEOUT_SECONDS = 30.0

# Limits for the objects of one kind that are read, and for the bytes of those that are kept.
MAX_EVENTS = 10_000
MAX_KEPT_BYTES = 10_000_000
# Of a message and of an object's name or a reason. The timeline shows less.
_MESSAGE_CHARACTERS, _WORD_CHARACTERS = 2000, 253
# Kinds of children whose events are shown, including deleted children.
_CHILDREN = ("Pod", "Job", "Gang")
_PATIENCE: dict[str, Any] = {"timeout_seconds": 10.0, "retry": False}


class _EventMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Reference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Source(msgspec.Struct, frozen=True, omit_defaults=True):
    component: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    metadata: _EventMeta
    involved_object: _Reference = _Reference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_component: str = ""
    source: _Source = _Source()


class _NewEvent(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The same event in events.k8s.io/v1."""

    metadata: _EventMeta
    regarding: _Reference = _Reference()
    type: str = ""
    reason: str = ""
    note: str = ""
    deprecated_count: int | None = None
    deprecated_first_timestamp: str | None = None
    deprecated_last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    deprecated_source: _Source = _Source()


_decode_event = decoder_for(_Event)
_decode_new_event = decoder_for(_NewEvent)


def _as_event(event: _NewEvent) -> _Event:
    return _Event(
        event.metadata,
        event.regarding,
        event.type,
        event.reason,
        event.note,
        event.deprecated_count,
        event.deprecated_first_timestamp,
        event.deprecated_last_timestamp,
        event.event_time,
        event.series,
        event.reporting_controller,
        event.deprecated_source,
    )


@dataclass(frozen=True, slots=True)
class EventsAPI:
    """An API of events: users may read that of the core, the controller that of events.k8s.io."""

    resource: Resource[Any]
    decode: Callable[[msgspec.Raw], _Event]


CORE_EVENTS = EventsAPI(EVENTS, _decode_event)
NEW_EVENTS = EventsAPI(
    Resource("events.k8s.io", "v1", "events", "Event"), lambda item: _as_event(_decode_new_event(item))
)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """`unread` has one line for each missing part, with the reason; `reports` the reports of statuses by program."""

    seen: Snapshot
    namespace_is_deleted: bool = False
    jobs: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    gangs: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    reports: Mapping[str, StatusReport] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The value of `key` in the controller's log lines."""
        return f"{self.seen.metadata.namespace}/{self.seen.metadata.name}"


def collect_diagnostics(
    requester: Requester, seen: Snapshot, controller_namespace: str = SYSTEM_NAMESPACE
) -> Diagnostics:
    """Raises `ApiError`, except for a missing permission or kind."""
    case = collect_objects(requester, Diagnostics(seen, bool(namespace_problem(requester, seen.metadata.namespace))))
    return replace(case, reports=job_reports(requester, seen, case.gangs, controller_namespace))


def collect_objects(
    requester: Requester, case: Diagnostics, events_api: EventsAPI = CORE_EVENTS, *, gangs: bool = True
) -> Diagnostics:
    """Adds the children of the job, and the events about all of them. Raises as `collect_diagnostics`."""
    seen = case.seen
    selector = seen.kind.child_selector(seen.job)
    if seen.kind.owns_pods:
        case.pods.extend(_read(requester, case, PODS, selector, is_wanted=lambda pod: _is_controlled(pod, seen)))
    elif selector:
        for resource, objects in ((JOBS, case.jobs), (PODS, case.pods), (GANGS, case.gangs)):
            if gangs or resource != GANGS:
                objects.extend(_read(requester, case, resource, selector))
    shorten = partial(_shortened_event, events_api)
    events = _read(requester, case, events_api.resource, "", shorten, lambda event: _is_about(case, event))
    case.events.extend(events)
    return case


def _is_controlled(pod: Object, seen: Snapshot) -> bool:
    """Whether the job controls the pod: others with the name may have pods with the same labels."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == seen.metadata.uid for owner in owners)


def child_names(seen: Snapshot) -> re.Pattern[str] | None:
    """Returns the pattern of the names of Jobs and pods of replicas, in which the groups are role and index.

    It tells the replica of a child that is gone. None if the job has no children yet.
    """
    roles = "|".join(re.escape(role.role) for role in status_of(seen.job).roles)
    if not roles:
        return None
    if seen.kind.owns_pods:
        return re.compile(rf"{re.escape(seen.metadata.name)}-({roles})-(\d+)$")
    return re.compile(rf".*-({roles})-{re.escape(seen.runtime_id)}-(\d+)(?:-|$)") if seen.runtime_id else None


def _shortened_event(events_api: EventsAPI, item: msgspec.Raw) -> bytes:
    """What the timeline shows of an event. The API server bounds no text of one that core/v1 has created."""
    event = events_api.decode(item)
    about, trace = event.involved_object, (event.metadata.annotations or {}).get(RECONCILE_ID_ANNOTATION, "")
    shortened = msgspec.structs.replace(
        event,
        metadata=_EventMeta(
            event.metadata.creation_timestamp, {RECONCILE_ID_ANNOTATION: _word(trace)} if trace else None
        ),
        involved_object=_Reference(_word(about.kind), _word(about.name), _word(about.uid)),
        type=_word(event.type),
        reason=_word(event.reason),
        message=event.message[:_MESSAGE_CHARACTERS],
        reporting_component=_word(event.reporting_component),
        source=_Source(_word(event.source.component)),
    )
    return msgspec.json.encode(shortened)


def _word(text: str) -> str:
    return text[:_WORD_CHARACTERS]


def _read(
    requester: Requester,
    case: Diagnostics,
    resource: Resource[Any],
    selector: str,
    shorten: Callable[[msgspec.Raw], bytes] = bytes,
    is_wanted: Callable[[Object], bool] = lambda item: True,
) -> Iterator[Object]:
    client = ResourceClient(requester, resource, **_PATIENCE)
    count = read_bytes = kept_bytes = 0
    try:
        for item in (item for page in client.pages(case.seen.metadata.namespace, selector) for item in page.items):
            data = shorten(item)
            kept = msgspec.json.decode(data)
            is_kept = is_wanted(kept)
            read_bytes += len(item)
            kept_bytes += len(data) if is_kept else 0
            if count >= MAX_EVENTS or read_bytes > MAX_READ_BYTES or kept_bytes > MAX_KEPT_BYTES:
                case.unread.append(f"{resource.plural}: only the first {count} were read")
                return
            count += 1
            if is_kept:
                yield kept
    except ApiError as error:
        if error.is_forbidden or error.reason == RESPONSE_TOO_LARGE:
            case.unread.append(f"{resource.plural}: {error.message}")
        elif not error.is_not_found:  # a cluster without that kind
            raise


def _is_about(case: Diagnostics, event: Object) -> bool:
    """Whether the event is about the job or a child; children of all attempts have the runtime id in their names."""
    about, meta = event.get("involvedObject", {}), case.seen.metadata
    if about.get("uid") == meta.uid:
        return True
    if about.get("kind") not in _CHILDREN or event_time(event)[:19] < (meta.creation_timestamp or "")[:19]:
        return False
    name, runtime = about.get("name", ""), case.seen.runtime_id
    if case.seen.kind.owns_pods:
        names = child_names(case.seen)
        return names is not None and names.match(name) is not None
    return bool(runtime) and f"-{runtime}" in name


def event_time(event: Object) -> str:
    """When the event happened first, RFC 3339."""
    moment = event.get("eventTime") or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    return str(moment or "")


def read_controller_logs(requester: Requester, case: Diagnostics, namespace: str) -> list[tuple[str, Object]]:
    """The JSON lines about the job since its creation, as far as kubelets keep them, each after its pod's name.

    Failures are added to `unread`.
    """
    client = ResourceClient(requester, PODS, timeout_seconds=_LOG_TIMEOUT_SECONDS, retry=False)
    try:
        pods = client.list(namespace, CONTROLLER_SELECTOR)
    except ApiError as error:
        case.unread.append(f"the controller's logs: {error.message}")
        return []
    if not pods:
        case.unread.append(f"the controller's logs: no pod with {CONTROLLER_SELECTOR} runs in namespace {namespace}")
    return [record for pod in pods for record in _pod_log_records(requester, case, pod)]


def _pod_log_records(requester: Requester, case: Diagnostics, pod: Pod) -> list[tuple[str, Object]]:
    name = pod.metadata.name
    path = PODS.path(pod.metadata.namespace, name, "log")
    query = {"limitBytes": str(MAX_LOG_BYTES), "sinceTime": case.seen.metadata.creation_timestamp or ""}
    try:
        body = requester.request(
            "GET", path, query=query, accept="*/*", timeout_seconds=_LOG_TIMEOUT_SECONDS, retry=False
        )
    except ApiError as error:
        case.unread.append(f"the log of pod {name}: {error.message}")
        return []
    return [(name, fields) for fields in log_records_of(case.key, body)]


def log_records_of(key: str, log: bytes) -> Iterator[dict[str, Any]]:
    """The records with that key; a log in the format `console` has none."""
    needle = key.encode()
    for raw in log.splitlines():
        if needle not in raw:
            continue
        try:
            line = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            continue
        if isinstance(line, dict) and line.get("key") == key:
            yield line
