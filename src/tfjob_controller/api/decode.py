"""Reads a TFJob from the API's bytes, whatever is in it.

An old CRD without a schema lets anything in, and one object that cannot be read must not stop a cache that holds a
thousand others. So a TFJob whose fields have wrong types becomes one that says so in `invalid`, and a status that does
not fit is as good as none: the controller writes it anew. Kubernetes' convention that null means absent holds for spec
and status, but not inside templates, which stay exactly as they are.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tfjob_controller.api.tfjob import TFJob, TFJobSpec
from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.kube.meta import ObjectMeta


class _Envelope(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


_job_decoder = msgspec.json.Decoder(TFJob)
_envelope_decoder = msgspec.json.Decoder(_Envelope)

# "Expected `int`, got `str` - at `$.replicaSpecs[0].replicas`"
_MSGSPEC_ERROR = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)


def decode_tfjob(raw: bytes | msgspec.Raw) -> TFJob:
    """The job in `raw`. Raises msgspec.DecodeError only for what is no Kubernetes object at all."""
    try:
        job = _job_decoder.decode(raw)
    except msgspec.ValidationError:
        return _decode_in_parts(raw)
    # The field has a name on the wire, so that an object could set it.
    return msgspec.structs.replace(job, invalid="") if job.invalid else job


def _decode_in_parts(raw: bytes | msgspec.Raw) -> TFJob:
    envelope = _envelope_decoder.decode(raw)
    status = _status(envelope.status)
    try:
        spec = msgspec.convert(_without_nulls(msgspec.json.decode(envelope.spec)), TFJobSpec)
    except msgspec.ValidationError as error:
        return TFJob(envelope.metadata, status=status, invalid=_in_words("spec", str(error)))
    return TFJob(envelope.metadata, spec, status)


def _status(raw: msgspec.Raw) -> TrainingStatus:
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(raw)), TrainingStatus)
    except msgspec.ValidationError:
        return TrainingStatus()


def _without_nulls(value: Any) -> Any:
    """A null of the whole is an empty object, a null field an absent one; templates are left alone."""
    return {} if value is None else _pruned(value)


def _pruned(value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: field if name == "template" else _pruned(field) for name, field in value.items() if field is not None}


def _in_words(root: str, error: str) -> str:
    """The decoder's message with the path in front, as the API server writes it."""
    match = _MSGSPEC_ERROR.match(error)
    problem, path = (match["problem"], match["path"]) if match else (error, None)
    problem = problem.replace("`", "").replace(" | null", "")
    return f"{root}{path or ''}: {problem[:1].lower()}{problem[1:]}"
