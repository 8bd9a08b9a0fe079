"""Reads jobs, their children and their events from the API server, for the Python client, the plugin and the dashboard.

`Connection` is the connection of one user; `Reader` reads the objects of one kind of job. The number of requests and
the size of responses are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from tfjob_controller.api.common.cluster import NAMESPACES
from tfjob_controller.api.common.core import JOBS, PODS, BatchJob, Pod
from tfjob_controller.api.gang import GANGS
from tfjob_controller.client.discovery import Discovery
from tfjob_controller.client.errors import LISTING, ClientError, error_text
from tfjob_controller.client.kinds import AnyJob, Snapshot, kinds_named, snapshot_decoder
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.jobs.state.pods import child_job_of, is_owned_by
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube import nesting
from tfjob_controller.kube.client import PAGE_SIZE, ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta, PathError, Resource, controller_of
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock, RealClock

# The limits for the events of one object. The API server keeps events for an hour; a text is shown in one line.
MAX_EVENTS, MAX_EVENT_CHARACTERS = 5000, 1024
# The limit for the objects of one kind that belong to one job. A thousand pods have five megabytes.
MAX_READ_BYTES = 30_000_000
# The content type that kubectl requests: the server chooses the columns and computes their cells, such as ages.
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
# Short, because a user waits, and can repeat the call.
_TIMEOUT_SECONDS = 30.0
_PATIENCE: dict[str, Any] = {"timeout_seconds": 10.0, "retry": False}


class TableColumn(msgspec.Struct, frozen=True):
    name: str
    priority: int = 0


class RowObject(msgspec.Struct, frozen=True):
    """The object of a row: its metadata, and the rest if objects were requested (`includeObject`)."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


class TableRow(msgspec.Struct, frozen=True):
    cells: list[Any]
    object: RowObject


class _PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")
    resource_version: str = ""


class TablePage(msgspec.Struct, frozen=True, rename="camel"):
    """A list as the server prints it (meta.k8s.io/v1 Table)."""

    kind: str
    column_definitions: list[TableColumn] = []
    rows: list[TableRow] | None = None
    metadata: _PageMeta = _PageMeta()


class EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """An event of core/v1 or events.k8s.io/v1. Its reporter determines which of the times are set."""

    metadata: ObjectMeta
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    involved_object: ObjectMeta = ObjectMeta()

    @property
    def note(self) -> str:
        """The message, by its name in events.k8s.io/v1."""
        return self.message

    @property
    def last_seen(self) -> str:
        """The time of the last occurrence in RFC 3339, possibly with fractions of a second."""
        last = self.series.last_observed_time if self.series is not None else None
        return last or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""

    @property
    def time(self) -> str:
        return self.last_seen[:19]


_decode_table = decoder_for(TablePage)
# The core API returns the events of both APIs.
EVENTS = Resource("", "v1", "events", "Event", decoder_for(Event))


def _shortened(event: Event) -> Event:
    """Returns the event with bounded texts: the API server does not limit those of core/v1."""
    texts = {name: getattr(event, name)[:MAX_EVENT_CHARACTERS] for name in ("type", "reason", "message")}
    meta, regarding = event.metadata, ObjectMeta(event.involved_object.name[:MAX_EVENT_CHARACTERS])
    event_meta = ObjectMeta(meta.name, meta.namespace, meta.uid, creation_timestamp=meta.creation_timestamp)
    return msgspec.structs.replace(event, **texts, metadata=event_meta, involved_object=regarding)


def within_bytes(items: Iterable[msgspec.Raw], most: int) -> Iterator[msgspec.Raw]:
    """Yields items until their total size exceeds `most` bytes."""
    total = 0
    for item in items:
        total += len(item)
        if total > most:
            return
        yield item


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection of a client. Thread-safe.

    For messages: `origin` describes the address of the server and where it is configured, `listing` the command or call
    that lists jobs. The controller and the gang scheduler are installed in `controller_namespace`.
    """

    requester: Requester
    namespace: str
    origin: str
    listing: str = LISTING
    controller_namespace: str = SYSTEM_NAMESPACE
    clock: Clock = field(default_factory=RealClock)
    discovery: Discovery = field(default_factory=Discovery)

    def kinds_named(self, word: str | None) -> Sequence[ClientKind]:
        """The kinds of that name; None means all that the cluster serves, at most one for each word.

        Raises `ClientError`, and `ApiError`.
        """
        return self.discovery.served(self.requester, kinds_named(word), self.clock)

    def of(self, kind: ClientKind) -> ResourceClient[Snapshot]:
        snapshots = kind.resource.with_decoder(snapshot_decoder(kind))
        return ResourceClient(self.requester, snapshots, timeout_seconds=_TIMEOUT_SECONDS)

    def create(self, kind: ClientKind, namespace: str, body: bytes, query: Mapping[str, str]) -> Snapshot:
        path = kind.resource.path(namespace)
        answer = self.requester.request("POST", path, body=body, query=query, timeout_seconds=_TIMEOUT_SECONDS)
        try:
            return snapshot_decoder(kind)(answer)
        except msgspec.MsgspecError:
            message = "the server's response is not a job: check for a proxy in between, and whether the job exists"
            raise ClientError(message) from None

    @contextmanager
    def client_errors(self) -> Iterator[None]:
        """Converts `ApiError` and `PathError` to `ClientError`, without a chained traceback."""
        try:
            yield
        except PathError as error:
            raise ClientError(str(error)) from None
        except ApiError as error:
            raise self.client_error(error) from None

    def client_error(self, error: ApiError) -> ClientError:
        return ClientError(error_text(error, self.origin, self.listing), error)


class Reader:
    """Reads jobs of one kind in one namespace, or in all if it is "". Raises `ApiError`, or `ClientError`.

    `label_selector` and `field_selector` narrow lists of jobs.
    """

    def __init__(
        self,
        requester: Requester,
        namespace: str,
        kind: ClientKind,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        self.namespace = namespace
        self._selectors = (label_selector, field_selector)
        self.kind = kind
        self._requester = requester
        self._own: ResourceClient[Any] = ResourceClient(requester, kind.resource, **_PATIENCE)
        self._jobs = ResourceClient(requester, JOBS, **_PATIENCE)
        self._pods = ResourceClient(requester, PODS, **_PATIENCE)
        self._events = ResourceClient(requester, EVENTS, **_PATIENCE)

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors as parameters of a query."""
        names = ("labelSelector", "fieldSelector")
        return {name: value for name, value in zip(names, self._selectors, strict=True) if value}

    def tables(self, *, with_objects: bool = False) -> Iterator[TablePage]:
        """Yields the jobs in pages, as tables of the server; the objects have only metadata without `with_objects`."""
        query = {"limit": str(PAGE_SIZE), **self.selectors} | ({"includeObject": "Object"} if with_objects else {})
        while True:
            path = self.kind.resource.path(self.namespace)
            body = self._requester.request("GET", path, query=query, accept=TABLE, **_PATIENCE)
            yield (table := self._decoded(body))
            if not table.metadata.continue_:
                return
            query["continue"] = table.metadata.continue_

    def _decoded(self, body: bytes) -> TablePage:
        try:
            table = _decode_table(body)
        except msgspec.MsgspecError:
            table = TablePage("")
        if table.kind != "Table":
            where = f"-n {self.namespace}" if self.namespace else "-A"
            command = f"`kubectl get {self.kind.resource.full_name} {where}`"
            raise ClientError(f"the server sent no table: check for a proxy in between, and try {command}")
        return table

    def manifests(self) -> list[dict[str, Any]]:
        """Returns the jobs as plain JSON without managedFields."""
        labels, fields = self._selectors
        pages = self._own.pages(self.namespace, labels, field_selector=fields)
        items = (item for page in pages for item in page.items)
        manifests = [msgspec.json.decode(nesting.truncate(bytes(item))) for item in items]
        for manifest in manifests:
            manifest["metadata"].pop("managedFields", None)
        return manifests

    def job(self, name: str) -> AnyJob:
        found: AnyJob = self._own.get(self.namespace, name)
        return found

    def children(self, job: AnyJob) -> ObservedState:
        """Returns the child Jobs of a job and their pods, by the selectors of the controller."""
        meta, selector = job.metadata, self.kind.child_selector(job)
        if not selector:
            return ObservedState()
        pods = self._pods.list(self.namespace, selector)
        return observed_of(
            self.kind, meta, () if self.kind.owns_pods else self._jobs.list(self.namespace, selector), pods
        )

    def gangs(self, seen: Snapshot) -> Sequence[Any]:
        """Returns the Gangs of a job as plain JSON; none if the cluster has no Gangs or the user may not list them."""
        client = ResourceClient(self._requester, GANGS.with_decoder(msgspec.json.decode), **_PATIENCE)
        try:
            return client.list(self.namespace, self.kind.child_selector(seen.job))
        except ApiError as error:
            if error.is_forbidden or error.is_not_found:
                return ()
            raise

    def events(self, uid: str) -> Sequence[Event]:
        """Returns the first `MAX_EVENTS` events of an object, with texts of at most `MAX_EVENT_CHARACTERS`."""
        pages = self._events.pages(self.namespace, field_selector=f"involvedObject.uid={uid}")
        items = islice((item for page in pages for item in page.items), MAX_EVENTS)
        return [_shortened(EVENTS.decode(item)) for item in within_bytes(items, MAX_READ_BYTES)]


def observed_of(kind: ClientKind, meta: ObjectMeta, jobs: Iterable[BatchJob], pods: Iterable[Pod]) -> ObservedState:
    """The children of the job with this metadata among all that have its labels."""
    if kind.owns_pods:
        return ObservedState(pods={pod.metadata.name: (pod,) for pod in pods if is_owned_by(pod, meta.uid)})
    by_job: dict[str, list[Pod]] = {}
    for pod in pods:
        if (pod.metadata.creation_timestamp or "") >= (meta.creation_timestamp or ""):
            by_job.setdefault(child_job_of(pod), []).append(pod)
    return ObservedState(
        jobs={
            child.metadata.name: child
            for child in jobs
            if (owner := controller_of(child)) is not None and owner.uid == meta.uid
        },
        pods=by_job,
    )


def namespace_problem(requester: Requester, namespace: str) -> str:
    """Returns a sentence if the namespace does not exist or is being deleted, so that nothing can run in it.

    Empty for any other namespace, and if the user may not read it. Raises `ApiError`.
    """
    client = ResourceClient(requester, NAMESPACES.with_decoder(msgspec.json.decode), **_PATIENCE)
    try:
        manifest = client.get("", namespace)
    except ApiError as error:
        if error.is_forbidden:
            return ""
        if error.is_not_found:
            return f"There is no namespace {namespace}."
        raise
    return f"The namespace {namespace} is being deleted." if manifest["metadata"].get("deletionTimestamp") else ""
