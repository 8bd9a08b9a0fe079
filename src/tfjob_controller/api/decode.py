"""Decodes jobs and runtimes from JSON, without failing on invalid objects.

An old CRD without a schema accepts any content, and one invalid object must not stop a cache with a thousand others.
An object with fields of wrong types is decoded with the reason in `invalid`. The spec of one with too many levels of
nesting is not decoded, and of one that is too large (`common/sizes.py`) only the identity is. A status that is invalid,
too large or nested too deep becomes an empty one, which the controller then writes again. As usual in Kubernetes, null
means absent in spec and status, but templates stay exactly as they are.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tfjob_controller.api.common.sizes import has_large_status, is_large, large_parts, size_problem
from tfjob_controller.kube import nesting

# A kind with the fields `metadata`, `spec` and `status`, and `invalid`: what is wrong with the object.
_KindT = TypeVar("_KindT", bound=msgspec.Struct)
_invalid_of = operator.attrgetter("invalid")


class _Envelope(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


_envelope_decoder = msgspec.json.Decoder(_Envelope)


class _Identity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _IdentityEnvelope(msgspec.Struct, frozen=True):
    metadata: _Identity
    status: msgspec.Raw = msgspec.Raw(b"null")


_identity_decoder = msgspec.json.Decoder(_IdentityEnvelope)

# "Expected `int`, got `str` - at `$.spec.replicaSpecs[0].replicas`"
_MSGSPEC_ERROR = re.compile(r"(?P<problem>.*?)(?: - at `\$\.(?P<path>.*)`)?$", re.DOTALL)
_EMPTY = "Expected `str` of length >= 1"
_TEMPLATES = ("template", "templates")
_TOO_DEEP = f"nested more than {nesting.MAX_LEVELS} levels deep"


def decoder_of(kind: type[_KindT]) -> Callable[[bytes | msgspec.Raw], _KindT]:
    """A decoder of a kind of jobs or runtimes: it raises msgspec.DecodeError only for what is no Kubernetes object."""
    whole = msgspec.json.Decoder(kind)

    def decode(raw: bytes | msgspec.Raw) -> _KindT:
        return nesting.decode_truncated(decode_bytes, bytes(raw))

    def decode_bytes(data: bytes) -> _KindT:
        parts = large_parts(data)
        if parts is not None and (too_large := size_problem(parts)):
            return _decode_identity(kind, data, too_large)
        if nesting.is_too_deep(data):
            return _decode_in_parts(kind, data, invalid=_TOO_DEEP)
        if parts is not None and has_large_status(parts.status):
            return _decode_in_parts(kind, data)
        try:
            found = whole.decode(data)
        except msgspec.ValidationError:
            return _decode_in_parts(kind, data)
        # The field has a wire name, so an object could set it.
        return msgspec.structs.replace(found, invalid="") if _invalid_of(found) else found

    return decode


def _decode_identity(kind: type[_KindT], data: bytes, invalid: str) -> _KindT:
    """Decodes only what identifies an object, and its status unless that is large as well."""
    envelope = _identity_decoder.decode(data)
    metadata = msgspec.to_builtins(envelope.metadata)
    status = {} if is_large(bytes(envelope.status)) else _valid_status(kind, metadata, envelope.status)
    return msgspec.structs.replace(msgspec.convert({"metadata": metadata, **status}, kind), invalid=invalid)


def _decode_in_parts(kind: type[_KindT], data: bytes, invalid: str = "") -> _KindT:
    """Decodes spec and status apart. `invalid` is a reason that is known already: the spec is not decoded then."""
    envelope = _envelope_decoder.decode(data)
    metadata = _metadata(kind, envelope.metadata)
    spec = {} if invalid else {"spec": _without_nulls(envelope.spec)}
    problem = invalid or _problem(kind, metadata, spec)
    good = {**({} if problem else spec), **_valid_status(kind, metadata, envelope.status)}
    found = msgspec.convert({"metadata": metadata, **good}, kind)
    return msgspec.structs.replace(found, invalid=problem or "")


def _metadata(kind: type[_KindT], raw: msgspec.Raw) -> dict[str, Any]:
    """Only the fields that are read."""
    type_ = next(field.type for field in msgspec.structs.fields(kind) if field.name == "metadata")
    metadata: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(raw, type=type_))
    return metadata


def _valid_status(kind: type[_KindT], metadata: dict[str, Any], raw: msgspec.Raw) -> dict[str, Any]:
    """The status as a field of an object; no field for one that does not fit or has too many values or levels."""
    if has_large_status(raw) or nesting.is_too_deep(bytes(raw)):
        return {}
    status = {"status": _without_nulls(raw)}
    return status if _problem(kind, metadata, status) is None else {}


def _problem(kind: type[_KindT], metadata: dict[str, Any], part: dict[str, Any]) -> str | None:
    """Why an object with only this part cannot be decoded; None if it can."""
    try:
        msgspec.convert({"metadata": metadata, **part}, kind)
    except msgspec.ValidationError as error:
        return _in_words(str(error))
    return None


def _without_nulls(raw: msgspec.Raw) -> Any:
    """The value with null fields removed, except in templates; null itself becomes an empty object."""
    value = msgspec.json.decode(raw)
    return {} if value is None else _pruned(value)


def _pruned(value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: field if name in _TEMPLATES else _pruned(field) for name, field in value.items() if field is not None}


def _in_words(error: str) -> str:
    """The decoder's message with the path first, as in messages of the API server."""
    match = _MSGSPEC_ERROR.match(error)
    problem, path = (match["problem"], match["path"]) if match else (error, None)
    if problem == _EMPTY:
        return f"{path}: must not be empty"
    problem = problem.replace("`", "").replace(" | null", "").replace(" | ", " or ")
    return f"{path or 'metadata'}: {problem[:1].lower()}{problem[1:]}"
