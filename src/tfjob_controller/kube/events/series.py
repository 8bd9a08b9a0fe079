"""What is reported, the Event that it becomes, and a request about it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from tfjob_controller.kube.flowcontrol import TokenBucket
from tfjob_controller.kube.trace import Trace


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reference to an object, as in `core/v1`."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One reported event; `trace` is the piece of work that reported it."""

    regarding: ObjectReference
    type: str
    reason: str
    note: str
    action: str
    observed: datetime
    related: ObjectReference | None = None
    trace: Trace | None = None

    @property
    def namespace(self) -> str:
        """Events about cluster-scoped objects are in `default`."""
        return self.regarding.namespace or "default"

    @property
    def similarity(self) -> Hashable:
        """Equal for observations that differ in note and time only."""
        return (same_object(self.regarding), self.type, self.reason, self.action, same_object(self.related))


@dataclass(slots=True, eq=False)
class Series:
    """An Event and its count. Only `Correlator` changes it, and `is_pending` its `PendingWrites`."""

    key: Hashable
    first: Observation
    note: str
    name: str
    bucket: TokenBucket
    count: int = 0
    last_observed: datetime | None = None  # wall time, for people
    last_trace: Trace | None = None
    ends_at: float = 0.0  # monotonic, if it is not observed again
    is_posted: bool = False
    written_count: int = 0
    earliest_write_at: float = 0.0
    tries: int = 0
    needs_token: bool = True
    is_pending: bool = False

    @property
    def namespace(self) -> str:
        return self.first.namespace


@dataclass(frozen=True, slots=True)
class Write:
    """One request: create the Event, or patch its series, with this count."""

    series: Series
    is_create: bool
    count: int
    last_observed: datetime
    trace: Trace | None = None


def same_object(reference: ObjectReference | None) -> Hashable:
    """The reference without the object's version."""
    return reference and msgspec.structs.replace(reference, resource_version="")
