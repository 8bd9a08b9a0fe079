"""The kinds of job that the client knows, and what they say alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tfjob_controller.api.decode import decode_tfjob, decode_trainjob
from tfjob_controller.api.tfjob import TFJOBS, TFJob
from tfjob_controller.api.trainjob import TRAINJOBS, TrainJob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.labels import TF_JOB_NAME, TRAIN_JOB_NAME

AnyJob: TypeAlias = TFJob | TrainJob

_DONE = ("Succeeded", "Complete")


@dataclass(frozen=True, slots=True)
class Kind:
    """`word`: as users name it. `succeeded`: the condition of a job that ended well. `name_label`: of its children."""

    word: str
    resource: Resource
    decode: Callable[[bytes | msgspec.Raw], Any]
    succeeded: str
    name_label: str

    def condition(self, name: str) -> str:
        """What this kind calls a condition; either name of success is understood."""
        return self.succeeded if name in _DONE else name


TFJOB = Kind("tfjob", TFJOBS, decode_tfjob, "Succeeded", TF_JOB_NAME)
TRAINJOB = Kind("trainjob", TRAINJOBS, decode_trainjob, "Complete", TRAIN_JOB_NAME)
KINDS = (TFJOB, TRAINJOB)


def kind_named(word: str) -> Kind:
    """By its name in any case, singular or plural. Raises `ClientError`."""
    for kind in KINDS:
        if word.lower() in (kind.word, kind.resource.plural):
            return kind
    raise ClientError(f"there is no kind {word!r}: it must be one of {', '.join(kind.word for kind in KINDS)}")


def kinds_named(word: str | None) -> tuple[Kind, ...]:
    """All for None."""
    return KINDS if word is None else (kind_named(word),)


def kind_of_manifest(manifest: Any) -> Kind:
    """By `apiVersion` and `kind`. Raises `ClientError`."""
    given = (manifest.get("apiVersion"), manifest.get("kind")) if isinstance(manifest, dict) else (None, None)
    for kind in KINDS:
        if given == (kind.resource.api_version, kind.resource.kind):
            return kind
    known = " or ".join(f"{kind.resource.kind} of {kind.resource.api_version}" for kind in KINDS)
    raise ClientError(f"this is no job: apiVersion and kind must be those of a {known}")
