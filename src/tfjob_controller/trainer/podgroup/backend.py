"""What differs between the schedulers that can run a job's pods as a gang. Pure.

Theory of operation. The controller writes one object that represents the gang (`spec`), marks each pod as its member
(`join`), and leaves the rest to the backend's scheduler. Pods are created at once and held by that scheduler; a backend
with an `admission` check admits the gang before any pod may exist.

Objects are patched as the job changes. If `is_immutable`, an object that does not match any more is deleted and
recreated once it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfjob_controller.api.common.core import PodGroup
from tfjob_controller.api.gang import Member
from tfjob_controller.kube.meta import Resource

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodGroupRequest:
    """What the object of a gang should request now.

    `members` are all members by role, and `start_count` is how many must start together. `min_count` and
    `min_resources` leave out the members that have succeeded, which need no node any more. Empty strings and None are
    not requested.
    """

    members: Sequence[Member]
    start_count: int
    min_count: int
    min_resources: Mapping[str, str]
    queue: str = ""
    priority: int = 0
    priority_class_name: str = ""
    timeout_seconds: int | None = None


class AdmissionCheck(Protocol):
    """The admission of a backend that allows no pods, not even those of initializers, before it admits the gang."""

    def holds(self, group: PodGroup | None) -> bool:
        """Reports whether no pod may run now."""

    def is_evicted(self, group: PodGroup) -> bool:
        """Reports whether the gang lost its admission. Its object is deleted after its pods, and queues again."""


class Backend(Protocol):
    """One scheduler that runs gangs."""

    @property
    def resource(self) -> Resource: ...

    @property
    def scheduler_name(self) -> str:
        """The default scheduler name of pods; empty leaves their own."""

    @property
    def queue_label(self) -> str:
        """The label of a job that names its queue; empty if the scheduler has none."""

    @property
    def is_immutable(self) -> bool:
        """Reports whether the spec can never change."""

    @property
    def admission(self) -> AdmissionCheck | None:
        """None if pods are created at once."""

    def spec(self, request: PodGroupRequest) -> Body: ...

    def is_satisfied(self, spec: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
        """Reports whether the object's spec requests what is desired. The server and others may have added to it."""

    def join(self, name: str, template: Body) -> None:
        """Changes a pod template in place, so that its pods belong to the group of that name."""

    def pending_message(self, group: PodGroup) -> str:
        """Why the pods wait, as the scheduler reports it; empty if it reports nothing."""


def contains(actual: Any, desired: Any) -> bool:
    """Reports whether all fields of `desired` are in `actual`."""
    if isinstance(desired, Mapping):
        return isinstance(actual, Mapping) and all(contains(actual.get(name), each) for name, each in desired.items())
    return bool(actual == desired)


def latest_message(conditions: Sequence[Mapping[str, Any]], type_: str, status: str) -> str:
    """The message of the condition with that type and status that changed last."""
    found = [each for each in conditions if each.get("type") == type_ and each.get("status") == status]
    newest = max(found, key=lambda each: each.get("lastTransitionTime") or "", default=None)
    return str(newest.get("message") or newest.get("reason") or "") if newest is not None else ""


def add_metadata(template: Body, field: str, name: str, value: str) -> None:
    """Adds a label or annotation; `field` is `labels` or `annotations`."""
    metadata = template["metadata"]
    template["metadata"] = {**metadata, field: {**(metadata.get(field) or {}), name: value}}
