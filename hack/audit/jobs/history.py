"""All that was seen of objects, version by version. Pure.

Versions are compared across kinds: Kubernetes keeps one order for all. Where watching had a gap, lives are taken as
short as they were surely seen, so that a gap may hide a violation but never make one up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

# Kinds, by their plurals.
TFJOBS, TRAINJOBS, JOBS, SERVICES = "tfjobs", "trainjobs", "jobs", "services"
CONFIG_MAPS, SECRETS, PODS, GANGS = "configmaps", "secrets", "pods", "gangs"
OWNERS = (TFJOBS, TRAINJOBS)
CHILDREN = (JOBS, SERVICES, CONFIG_MAPS, SECRETS, PODS, GANGS)
_WORDS = {
    TFJOBS: "TFJob",
    TRAINJOBS: "TrainJob",
    JOBS: "Job",
    SERVICES: "Service",
    CONFIG_MAPS: "ConfigMap",
    SECRETS: "Secret",
    PODS: "Pod",
    GANGS: "Gang",
}
_NEVER = float("inf")


@dataclass(slots=True)
class Life:
    """One object from its first version that was seen; `ended`: the version of its deletion, None while it lives.

    `times` has, for each version, when it was seen: seconds since the epoch. `is_begin_seen`: it was made at `begin`,
    not before.
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
    def end(self) -> float:
        return _NEVER if self.ended is None else self.ended

    @property
    def moved_at(self) -> float:
        """When anything was last seen to happen to it."""
        return max(self.times[-1], self.ended_at)

    def __str__(self) -> str:
        return f"{_WORDS[self.kind]} {self.namespace}/{self.name} ({self.uid})"


class History:
    """All lives, by uid. One thread at a time."""

    def __init__(self) -> None:
        self._lives: dict[str, Life] = {}
        self._gaps: list[float] = []
        self.count = 0

    def record(self, kind: str, change: str, obj: Object, at: float) -> None:
        """A watch event; what was seen before changes nothing.

        Any `change` but DELETED means that it is there, and any but ADDED that it may have been there before.
        """
        life = self._lives.setdefault(obj["metadata"]["uid"], Life(kind, is_begin_seen=change == "ADDED"))
        if not life.versions or version_of(obj) > version_of(life.last):
            life.versions.append(obj)
            life.times.append(at)
            self.count += 1
        if change == "DELETED" and life.ended is None:
            life.ended, life.ended_at = version_of(obj), at

    def record_list(self, kind: str, objects: Collection[Object], version: int, at: float) -> None:
        """All that there is of a kind at `version`: what is not in it has gone right after it was seen last."""
        for obj in objects:
            self.record(kind, "LISTED", obj, at)
        there = {obj["metadata"]["uid"] for obj in objects}
        for life in self.living(kind):
            if life.uid not in there and version_of(life.last) <= version:
                life.ended, life.ended_at = version_of(life.last), at

    def note_gap(self, at: float) -> None:
        """The server had forgotten where a watch stood: something may have happened just now that nobody saw."""
        self._gaps.append(at)

    def had_gap(self, since: float, until: float = _NEVER) -> bool:
        return any(since <= at <= until for at in self._gaps)

    def knows(self, obj: Object) -> bool:
        """Whether this version of an object was seen, or a later one."""
        life = self._lives.get(obj["metadata"]["uid"])
        return life is not None and version_of(life.last) >= version_of(obj)

    def of(self, *kinds: str) -> Iterator[Life]:
        return (life for life in self._lives.values() if life.kind in kinds)

    def living(self, *kinds: str) -> list[Life]:
        return [life for life in self.of(*kinds) if life.ended is None]

    def rows(self) -> list[dict[str, Any]]:
        """Every version in the order of the cluster: when it was `seen` (or is `gone`), its kind, the object itself."""
        found = [
            (version_of(obj), {"at": at, "kind": life.kind, "change": "seen", "object": obj})
            for life in self._lives.values()
            for at, obj in zip(life.times, life.versions, strict=True)
        ]
        found += [
            (life.ended, {"at": life.ended_at, "kind": life.kind, "change": "gone", "object": life.last})
            for life in self._lives.values()
            if life.ended is not None
        ]
        return [row for _, row in sorted(found, key=lambda each: each[0])]

    def by_uid(self, uid: str) -> Life | None:
        return self._lives.get(uid)


def version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
