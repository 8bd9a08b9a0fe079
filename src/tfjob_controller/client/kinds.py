"""The kinds of job that the client knows, and a job of any of them as the API server returned it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import msgspec

from tfjob_controller.api.common.status import JobCondition
from tfjob_controller.client.errors import ClientError
from tfjob_controller.jobs.conditions import FALSE, SCHEDULED
from tfjob_controller.jobs.trainingjob import TrainingStatus
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kinds.kubeflowv1.clientkind import CLIENT_KINDS
from tfjob_controller.kinds.names import OWN_KIND_NAMES
from tfjob_controller.kube import nesting
from tfjob_controller.kube.meta import ObjectMeta, Resource

# The kinds of this project.
OWN_KINDS: tuple[ClientKind, ...] = tuple(
    import_module(f"tfjob_controller.kinds.{name.word}.clientkind").CLIENT_KIND for name in OWN_KIND_NAMES
)
# With those of `kubeflow.org/v1`. Two have the word `tfjob`, of which a cluster serves one: see `discovery`.
KINDS: tuple[ClientKind, ...] = (*OWN_KINDS, *CLIENT_KINDS)


class AnySpec(Protocol):
    """What the specs of all kinds have."""

    @property
    def managed_by(self) -> str: ...
    @property
    def suspend(self) -> bool: ...


class AnyStatus(Protocol):
    """What the statuses of all kinds have."""

    @property
    def phase(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def conditions(self) -> Sequence[JobCondition]: ...
    @property
    def restarts(self) -> int: ...
    @property
    def disruptions(self) -> int: ...


class AnyJob(Protocol):
    """A job of one of `KINDS`."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> AnySpec: ...
    @property
    def status(self) -> AnyStatus: ...


def kind_of(job: AnyJob) -> ClientKind:
    return next((kind for kind in KINDS if isinstance(job, kind.type)), None) or trainer_kind()


def trainer_kind() -> ClientKind:
    """TrainJobs of Kubeflow Trainer, which only a history has: names cannot tell them from those of this project."""
    from tfjob_controller.kinds.kubeflowtrainer.clientkind import CLIENT_KIND

    return CLIENT_KIND


def recorded_kind(api_version: str, kind: str) -> ClientKind | None:
    """The kind of a recorded job; None for one that is unknown here."""
    given = (api_version, kind)
    return next(
        (each for each in (*KINDS, trainer_kind()) if given == (each.resource.api_version, each.resource.kind)), None
    )


def recorded_resource(kind: str) -> Resource[Any] | None:
    """The resource of an entry's kind, whose group follows it unless it is kubeflow.org; None for an unknown one."""
    name, _, group = kind.partition(".")
    wanted = (group or "kubeflow.org", name)
    return next(
        (each.resource for each in (*KINDS, trainer_kind()) if wanted == (each.resource.group, each.resource.kind)),
        None,
    )


def status_of(job: AnyJob) -> TrainingStatus:
    """The status on which decisions are made."""
    return kind_of(job).work_of(job).status


def kinds_named(word: str | None) -> tuple[ClientKind, ...]:
    """The kinds of that name, in any case, singular or plural; all of them for None. Raises `ClientError`."""
    found = tuple(kind for kind in KINDS if word is None or word.lower() in (kind.word, kind.resource.plural))
    if not found:
        words = dict.fromkeys(kind.word for kind in KINDS)
        raise ClientError(f"unknown kind {word!r}: use one of {', '.join(words)}")
    return found


def kind_of_manifest(manifest: Any) -> ClientKind:
    """The kind that `apiVersion` and `kind` name. Raises `ClientError`."""
    given = (manifest.get("apiVersion"), manifest.get("kind")) if isinstance(manifest, dict) else (None, None)
    by_version: dict[str, list[str]] = {}
    for kind in KINDS:
        if given == (kind.resource.api_version, kind.resource.kind):
            return kind
        by_version.setdefault(kind.resource.api_version, []).append(kind.resource.kind)
    known = " or ".join(f"{', '.join(names)} of {version}" for version, names in by_version.items())
    raise ClientError(f"not a job: apiVersion and kind must be those of a {known}")


_ENDS = _DONE, _FAILED = ("Done", "Failed")


class Snapshot(msgspec.Struct, frozen=True):
    """`body` is the object's own JSON. Immutable, so any thread may read it."""

    kind: ClientKind
    job: AnyJob
    body: bytes

    @property
    def metadata(self) -> ObjectMeta:
        return self.job.metadata

    @property
    def runtime_id(self) -> str:
        """The id in the names of its children; empty before there are any."""
        return self.kind.runtime_id_of(self.job)

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
    def waits_for_capacity(self) -> bool:
        """Whether the job is to run as a gang, and its replicas have no nodes yet."""
        return any(each.type == SCHEDULED and each.status == FALSE for each in self.conditions)

    @property
    def manifest(self) -> dict[str, Any]:
        """A copy of the object without managedFields."""
        found: dict[str, Any] = msgspec.json.decode(self.body)
        found["metadata"].pop("managedFields", None)
        return found


def snapshot_decoder(kind: ClientKind) -> Callable[[bytes | msgspec.Raw], Snapshot]:
    """The decoder raises msgspec.DecodeError for anything but a Kubernetes object."""

    def decode(raw: bytes | msgspec.Raw) -> Snapshot:
        body = nesting.truncate(bytes(raw))
        return Snapshot(kind, kind.resource.decode(body), body)

    return decode
