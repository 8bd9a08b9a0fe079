"""Collects the diagnostics of one job: its objects, the events about them, and the controller's log lines.

The role `view` suffices. Requests are bounded, one kind at a time. Objects that cannot be read are left out and
listed in `unread`. Objects stay plain JSON, since a timeline shows fields that nothing else reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tfjob_controller.api.common.core import JOBS, PODS, Pod
from tfjob_controller.api.gang import GANGS
from tfjob_controller.client.kinds import Snapshot, runtime_id_of_job
from tfjob_controller.client.reader import EVENTS, namespace_problem
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import Resource
from tfjob_controller.kube.requester import Requester
from tfjob_controller.trainer.naming import job_labels, selector_string

Object = dict[str, Any]

CONTROLLER_SELECTOR = "app=tfjob-controller"
# Limit for the log of one replica; a controller with several hundred jobs writes that much in a few hours.
MAX_LOG_BYTES = 10_000_000
_LOG_TIMEOUT_SECONDS = 30.0

# Limit for the events of one namespace.
MAX_EVENTS = 10_000
# Kinds of children whose events are shown, including deleted children.
_CHILDREN = ("Pod", "Job", "Gang")
_PATIENCE: dict[str, Any] = {"timeout_seconds": 10.0, "retry": False}


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """`unread` says in one line each what is missing and why."""

    seen: Snapshot
    namespace_is_deleted: bool = False
    jobs: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    gangs: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The value of `key` in the controller's log lines."""
        return f"{self.seen.metadata.namespace}/{self.seen.metadata.name}"


def collect_diagnostics(requester: Requester, seen: Snapshot) -> Diagnostics:
    """Raises `ApiError`, except for a missing permission or kind."""
    case = Diagnostics(seen, bool(namespace_problem(requester, seen.metadata.namespace)))
    if name := runtime_id_of_job(seen.job):
        labels = job_labels(seen.metadata.name, name, seen.kind.name_label)
        selector = selector_string(labels)
        for resource, found in ((JOBS, case.jobs), (PODS, case.pods), (GANGS, case.gangs)):
            found.extend(_read(requester, case, resource, selector))
    case.events.extend(event for event in _read(requester, case, EVENTS, "") if _is_about(case, event))
    return case


def _read(requester: Requester, case: Diagnostics, resource: Resource, selector: str) -> Iterator[Object]:
    client = ResourceClient(requester, resource, msgspec.json.decode, **_PATIENCE)
    count = 0
    try:
        for page in client.pages(case.seen.metadata.namespace, selector):
            yield from (msgspec.json.decode(item) for item in page.items)
            count += len(page.items)
            if count >= MAX_EVENTS:
                case.unread.append(f"{resource.plural}: only the first {count} were read")
                return
    except ApiError as error:
        if error.is_forbidden:
            case.unread.append(f"{resource.plural}: {error.message}")
        elif not error.is_not_found:  # a cluster without that kind
            raise


def _is_about(case: Diagnostics, event: Object) -> bool:
    """Whether the event is about the job or a child; children of all attempts have the runtime id in their names."""
    about, meta = event.get("involvedObject", {}), case.seen.metadata
    if about.get("uid") == meta.uid:
        return True
    runtime = runtime_id_of_job(case.seen.job)
    if not runtime or about.get("kind") not in _CHILDREN:
        return False
    return f"-{runtime}" in about.get("name", "") and event_time(event)[:19] >= (meta.creation_timestamp or "")[:19]


def event_time(event: Object) -> str:
    """When the event happened first, RFC 3339."""
    moment = event.get("eventTime") or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    return str(moment or "")


def read_controller_logs(requester: Requester, case: Diagnostics, namespace: str) -> list[tuple[str, Object]]:
    """The JSON lines about the job since its creation, as far as kubelets keep them, each after its pod's name.

    Failures are added to `unread`.
    """
    client = ResourceClient(requester, PODS, decoder_for(Pod), timeout_seconds=_LOG_TIMEOUT_SECONDS, retry=False)
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
