"""The kinds of job that the client knows, and what they say alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tfjob_controller.api.decode import decode_tfjob, decode_trainjob
from tfjob_controller.api.tfjob import TFJOBS, TFJob
from tfjob_controller.api.trainingstatus import JobCondition
from tfjob_controller.api.trainjob import TRAINJOBS, TrainJob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kube import nesting
from tfjob_controller.kube.meta import ObjectMeta, Resource
from tfjob_controller.trainer.labels import TF_JOB_NAME, TRAIN_JOB_NAME

AnyJob: TypeAlias = TFJob | TrainJob

_DONE = ("Succeeded", "Complete")


@dataclass(frozen=True, slots=True)
class JobKind:
    """`word`: as users name it. `succeeded`: the condition of a job that ended well. `name_label`: of its children."""

    word: str
    resource: Resource
    decode: Callable[[bytes | msgspec.Raw], Any]
    succeeded: str
    name_label: str

    def condition(self, name: str) -> str:
        """What this kind calls a condition; either name of success is understood."""
        return self.succeeded if name in _DONE else name


TFJOB = JobKind("tfjob", TFJOBS, decode_tfjob, "Succeeded", TF_JOB_NAME)
TRAINJOB = JobKind("trainjob", TRAINJOBS, decode_trainjob, "Complete", TRAIN_JOB_NAME)
KINDS = (TFJOB, TRAINJOB)


def kind_named(word: str) -> JobKind:
    """By its name in any case, singular or plural. Raises `ClientError`."""
    for kind in KINDS:
        if word.lower() in (kind.word, kind.resource.plural):
            return kind
    raise ClientError(f"there is no kind {word!r}: it must be one of {', '.join(kind.word for kind in KINDS)}")


def kinds_named(word: str | None) -> tuple[JobKind, ...]:
    """All for None."""
    return KINDS if word is None else (kind_named(word),)


def kind_of_manifest(manifest: Any) -> JobKind:
    """By `apiVersion` and `kind`. Raises `ClientError`."""
    given = (manifest.get("apiVersion"), manifest.get("kind")) if isinstance(manifest, dict) else (None, None)
    for kind in KINDS:
        if given == (kind.resource.api_version, kind.resource.kind):
            return kind
    known = " or ".join(f"{kind.resource.kind} of {kind.resource.api_version}" for kind in KINDS)
    raise ClientError(f"this is no job: apiVersion and kind must be those of a {known}")


ENDS = DONE, FAILED = ("Done", "Failed")


class Snapshot(msgspec.Struct, frozen=True):
    """`body` is the object's own JSON. Immutable, so any thread may read it."""

    kind: JobKind
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


def snapshot_decoder(kind: JobKind) -> Callable[[bytes | msgspec.Raw], Snapshot]:
    """Raises msgspec.DecodeError for what is no Kubernetes object."""

    def decode(raw: bytes | msgspec.Raw) -> Snapshot:
        body = nesting.truncate(bytes(raw))
        return Snapshot(kind, kind.decode(body), body)

    return decode
