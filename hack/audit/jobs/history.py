"""All observed versions of all objects. Pure.

Versions are comparable across kinds: Kubernetes keeps one order for all. If a watch had a gap, the record of an object
covers only the time in which it certainly existed, so that a gap may hide a violation but never cause a false one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Object = dict[str, Any]

# Kinds, by their plurals.
TFJOBS, TRAINJOBS, JOBS, SERVICES = "tfjobs", "trainjobs", "jobs", "services"
CONFIG_MAPS, SECRETS, PODS, GANGS = "configmaps", "secrets", "pods", "gangs"
OWNERS = (TFJOBS, TRAINJOBS)
CHILDREN = (JOBS, SERVICES, CONFIG_MAPS, SECRETS, PODS, GANGS)
KIND_NAMES = {
    TFJOBS: "TFJob",
    TRAINJOBS: "TrainJob",
    JOBS: "Job",
    SERVICES: "Service",
    CONFIG_MAPS: "ConfigMap",
    SECRETS: "Secret",
    PODS: "Pod",
    GANGS: "Gang",
}


class Moment(NamedTuple):
    """A version of the cluster, and when it was observed, in seconds since the epoch."""

    version: float
    at: float


NEVER = Moment(float("inf"), float("inf"))


@dataclass(slots=True)
class ObjectRecord:
    """The observed versions of one object; `ended` is the version of its deletion, None while it exists.

    `times` contains when each version was observed, in seconds since the epoch. `is_begin_seen` means that the object
    was created at `begin` and not before.
    """

    kind: str
    versions: list[Object] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    ended: int | None = None
    ended_at: float = 0.0
    is_begin_seen: bool = True

    @property
    def last(self) -> Object:
        return self.versions[-1]

    @property
    def uid(self) -> str:
        return str(self.last["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.last["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.last["metadata"].get("namespace", ""))

    @property
    def begin(self) -> int:
        return version_of(self.versions[0])

    @property
    def end(self) -> Moment:
        return NEVER if self.ended is None else Moment(self.ended, self.ended_at)

    @property
    def deletion(self) -> Moment:
        """When the deletion of the object began."""
        return min(self.first(is_being_deleted), self.end)

    @property
    def changed_at(self) -> float:
        """When the last change of the object was observed."""
        return max(self.times[-1], self.ended_at)

    def moments(self) -> Iterator[tuple[Object, Moment]]:
        """Yields each version with its moment."""
        for version, at in zip(self.versions, self.times, strict=True):
            yield version, Moment(version_of(version), at)

    def first(self, condition: Callable[[Object], bool]) -> Moment:
        """Returns the moment of the first version that meets a condition."""
        return next((moment for version, moment in self.moments() if condition(version)), NEVER)

    def __str__(self) -> str:
        return f"{KIND_NAMES[self.kind]} {self.namespace}/{self.name} ({self.uid})"


class History:
    """The records of all objects, by uid. Not thread-safe."""

    def __init__(self) -> None:
        self._records: dict[str, ObjectRecord] = {}
        self._gaps: list[float] = []
        self.count = 0

    def record(self, kind: str, change: str, obj: Object, at: float) -> None:
        """Records a watch event; versions that are already known change nothing.

        Any `change` but DELETED means that the object exists, and any but ADDED that it may have existed before.
        """
        record = self._records.setdefault(obj["metadata"]["uid"], ObjectRecord(kind, is_begin_seen=change == "ADDED"))
        if not record.versions or version_of(obj) > version_of(record.last):
            record.versions.append(obj)
            record.times.append(at)
            self.count += 1
        if change == "DELETED" and record.ended is None:
            record.ended, record.ended_at = version_of(obj), at

    def record_list(self, kind: str, objects: Collection[Object], version: int, at: float) -> None:
        """Records all objects of a kind at `version`.

        Objects that are not in the list count as deleted right after their last observed version.
        """
        for obj in objects:
            self.record(kind, "LISTED", obj, at)
        listed = {obj["metadata"]["uid"] for obj in objects}
        for record in self.existing(kind):
            if record.uid not in listed and version_of(record.last) <= version:
                record.ended, record.ended_at = version_of(record.last), at

    def note_gap(self, at: float) -> None:
        """Records that the server had compacted a watch's version, so that changes may have been missed until now."""
        self._gaps.append(at)

    def had_gap(self, since: float, until: float) -> bool:
        return any(since <= at <= until for at in self._gaps)

    def knows(self, obj: Object) -> bool:
        """Reports whether this version of an object, or a later one, was observed."""
        record = self._records.get(obj["metadata"]["uid"])
        return record is not None and version_of(record.last) >= version_of(obj)

    def of(self, *kinds: str) -> Iterator[ObjectRecord]:
        return (record for record in self._records.values() if record.kind in kinds)

    def existing(self, *kinds: str) -> list[ObjectRecord]:
        return [record for record in self.of(*kinds) if record.ended is None]

    def by_uid(self, uid: str) -> ObjectRecord | None:
        return self._records.get(uid)

    def rows(self) -> list[dict[str, Any]]:
        """Returns every version in the order of the cluster, with its time, kind and change: `seen` or `gone`."""
        rows = []
        for record in self._records.values():
            changes = [(obj, moment, "seen") for obj, moment in record.moments()]
            if record.ended is not None:
                changes.append((record.last, record.end, "gone"))
            for obj, moment, change in changes:
                rows.append((moment.version, {"at": moment.at, "kind": record.kind, "change": change, "object": obj}))
        return [row for _, row in sorted(rows, key=lambda entry: entry[0])]


def version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def is_being_deleted(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
