"""One job as the API server had it at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tfjob_controller.api.trainingstatus import JobCondition
from tfjob_controller.client.kinds import AnyJob, Kind
from tfjob_controller.kube import nesting
from tfjob_controller.kube.meta import ObjectMeta

ENDS = DONE, FAILED = ("Done", "Failed")


class Snapshot(msgspec.Struct, frozen=True):
    """`body` is the object's own JSON. Immutable, so any thread may read it."""

    kind: Kind
    job: AnyJob
    body: bytes

    @property
    def metadata(self) -> ObjectMeta:
        return self.job.metadata

    @property
    def phase(self) -> str:
        return self.job.status.phase

    @property
    def reason(self) -> str:
        return self.job.status.reason

    @property
    def conditions(self) -> tuple[JobCondition, ...]:
        return tuple(self.job.status.conditions)

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDS

    @property
    def has_succeeded(self) -> bool:
        return self.phase == DONE

    @property
    def has_failed(self) -> bool:
        return self.phase == FAILED

    def has(self, condition: str) -> bool:
        """Is it true now, under the name of this kind or the other?"""
        name = self.kind.condition(condition)
        return any(each.type == name and each.status == "True" for each in self.conditions)

    @property
    def manifest(self) -> dict[str, Any]:
        """A copy of one's own, without managedFields."""
        found: dict[str, Any] = msgspec.json.decode(self.body)
        found["metadata"].pop("managedFields", None)
        return found


def decoder_of(kind: Kind) -> Callable[[bytes | msgspec.Raw], Snapshot]:
    """Raises msgspec.DecodeError for what is no Kubernetes object."""

    def decode(raw: bytes | msgspec.Raw) -> Snapshot:
        body = nesting.truncate(bytes(raw))
        return Snapshot(kind, kind.decode(body), body)

    return decode
