"""The kinds of job that the client knows, and a job of either kind as the API server returned it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob, decode_tfjob
from tfjob_controller.api.trainjob.types import TRAINJOBS, TrainJob, decode_trainjob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.jobs.naming import TF_JOB_NAME, TRAIN_JOB_NAME, runtime_id_of
from tfjob_controller.kube import nesting
from tfjob_controller.kube.meta import ObjectMeta, Resource

AnyJob: TypeAlias = TFJob | TrainJob


@dataclass(frozen=True, slots=True)
class JobKind:
    """`word` is the name in commands, `succeeded` the condition of success, `name_label` the label of children."""

    word: str
    resource: Resource
    decode: Callable[[bytes | msgspec.Raw], Any]
    succeeded: str
    name_label: str


TFJOB = JobKind("tfjob", TFJOBS, decode_tfjob, "Succeeded", TF_JOB_NAME)
TRAINJOB = JobKind("trainjob", TRAINJOBS, decode_trainjob, "Complete", TRAIN_JOB_NAME)
KINDS = (TFJOB, TRAINJOB)


def kinds_named(word: str | None) -> tuple[JobKind, ...]:
    """The kind of that name, in any case, singular or plural; all kinds for None. Raises `ClientError`."""
    found = tuple(kind for kind in KINDS if word is None or word.lower() in (kind.word, kind.resource.plural))
    if not found:
        raise ClientError(f"unknown kind {word!r}: use one of {', '.join(kind.word for kind in KINDS)}")
    return found


def runtime_id_of_job(job: AnyJob) -> str:
    """The id in the names of its children; empty before there are any."""
    return job.spec.runtime_id if isinstance(job, TFJob) else runtime_id_of(job.metadata.uid)


def kind_of_manifest(manifest: Any) -> JobKind:
    """The kind that `apiVersion` and `kind` name. Raises `ClientError`."""
    given = (manifest.get("apiVersion"), manifest.get("kind")) if isinstance(manifest, dict) else (None, None)
    for kind in KINDS:
        if given == (kind.resource.api_version, kind.resource.kind):
            return kind
    known = " or ".join(f"{kind.resource.kind} of {kind.resource.api_version}" for kind in KINDS)
    raise ClientError(f"not a job: apiVersion and kind must be those of a {known}")


_ENDS = _DONE, _FAILED = ("Done", "Failed")


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
        return self.phase in _ENDS

    @property
    def has_succeeded(self) -> bool:
        return self.phase == _DONE

    @property
    def has_failed(self) -> bool:
        return self.phase == _FAILED

    def has(self, condition: str) -> bool:
        """Whether the condition is true; both names of success are accepted."""
        name = self.kind.succeeded if condition in ("Succeeded", "Complete") else condition
        return any(each.type == name and each.status == "True" for each in self.conditions)

    @property
    def manifest(self) -> dict[str, Any]:
        """A copy of the object without managedFields."""
        found: dict[str, Any] = msgspec.json.decode(self.body)
        found["metadata"].pop("managedFields", None)
        return found


def snapshot_decoder(kind: JobKind) -> Callable[[bytes | msgspec.Raw], Snapshot]:
    """The decoder raises msgspec.DecodeError for anything but a Kubernetes object."""

    def decode(raw: bytes | msgspec.Raw) -> Snapshot:
        body = nesting.truncate(bytes(raw))
        return Snapshot(kind, kind.decode(body), body)

    return decode
