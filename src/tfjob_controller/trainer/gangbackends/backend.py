"""What differs between the schedulers that can run a job's pods as a gang. All of it is pure.

Theory of operation. The job's controller writes one object for the gang (`body`), has each pod say that it belongs to
it (`join`), and leaves the rest to the backend's scheduler. Pods go out at once, and that scheduler holds them; a
backend with a `gate` is one that wants no pods before it has let the gang in.

Bodies are merge-patched as the job changes. Where `is_immutable` an object that does not fit any more is deleted, and
made anew once it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfjob_controller.api.gang import Member
from tfjob_controller.api.podgroup import PodGroup
from tfjob_controller.kube.meta import Resource

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The gang as it should be now.

    `members`: all of them, by kind, and `start_count`: the least of them that may start. `min_count` and
    `min_resources`: that without those that have succeeded, who need no node any more, and what it requests as
    quantities. Empty texts and None are not asked for.
    """

    members: Sequence[Member]
    start_count: int
    min_count: int
    min_resources: Mapping[str, str]
    queue: str = ""
    priority: int = 0
    priority_class_name: str = ""
    timeout_seconds: int | None = None


class Gate(Protocol):
    """Of a backend that wants no pods before it has let the gang in, those of initializers neither."""

    def holds(self, group: PodGroup | None) -> bool:
        """No pod may run now."""

    def has_returned(self, group: PodGroup) -> bool:
        """It was let in and is not any more, so it has to queue anew: to be deleted once its pods are gone."""


class Backend(Protocol):
    """One scheduler."""

    @property
    def resource(self) -> Resource: ...

    @property
    def scheduler_name(self) -> str:
        """What pods name if nobody says otherwise; empty: what they name anyway."""

    @property
    def queue_label(self) -> str:
        """The label of a job that names its queue; empty: there are none."""

    @property
    def is_immutable(self) -> bool:
        """The spec can never change."""

    @property
    def gate(self) -> Gate | None:
        """None where pods go out at once."""

    def spec(self, wanted: Wanted) -> Body: ...

    def fits(self, spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Does the object's spec ask for what is wanted? The server and others may have added to it."""

    def join(self, name: str, template: Body) -> None:
        """Change a pod template that is the caller's own, so that its pods belong to the group of that name."""

    def words(self, group: PodGroup) -> str:
        """Why its pods wait, in the scheduler's own words; empty where it has said nothing."""


def covers(actual: Any, wanted: Any) -> bool:
    """Is all of `wanted` in it?"""
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(covers(actual.get(name), each) for name, each in wanted.items())
    return bool(actual == wanted)


def latest_message(conditions: Sequence[Mapping[str, Any]], type_: str, status: str) -> str:
    """Of the condition of that type and status that changed last."""
    found = [each for each in conditions if each.get("type") == type_ and each.get("status") == status]
    newest = max(found, key=lambda each: each.get("lastTransitionTime") or "", default=None)
    return str(newest.get("message") or newest.get("reason") or "") if newest is not None else ""


def labelled(template: Body, field: str, name: str, value: str) -> None:
    """One more of `labels` or `annotations`."""
    metadata = template["metadata"]
    template["metadata"] = {**metadata, field: {**(metadata.get(field) or {}), name: value}}
