"""A job of any kind, as far as the trainer must know it beyond its plan."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.kube.meta import ObjectMeta


class Work(Protocol):
    """A TFJob is one by itself."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> TrainingStatus: ...
    @property
    def ttl_seconds_after_finished(self) -> int | None: ...


class PlainWork(msgspec.Struct, frozen=True):
    """A job whose own status is told in other words."""

    metadata: ObjectMeta
    status: TrainingStatus
    ttl_seconds_after_finished: int | None = None
