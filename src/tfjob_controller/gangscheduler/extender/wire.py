"""The wire format of kube-scheduler's extender protocol.

Theory of operation. The protocol's Go structs have no JSON tags: kube-scheduler writes their field names, and reads
responses without regard to case. Keys are therefore read in any case, and responses are written in PascalCase. A body
is decoded in two steps: first its keys, whose values stay bytes, then the values that are used. Of a pod only the
metadata is decoded: its requests matter only for pods of no gang, and `placements` decodes them then.

A body that cannot be decoded raises `BadRequestError`, whose one line becomes the response's `Error`.

Source: kube-scheduler extender/v1/types.go, kubernetes pkg/scheduler/extender.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tfjob_controller.api.common.scheduledpods import GANG_LABELS
from tfjob_controller.gangscheduler.bindrequests import BindRequest
from tfjob_controller.kube.kept import kept_decoder
from tfjob_controller.kube.meta import ObjectMeta

NEEDS_NODE_CACHE = "this extender takes node names only: set nodeCacheCapable to true in its configuration"


class BadRequestError(Exception):
    """The body violates the protocol; the message is one line."""


@dataclass(frozen=True, slots=True)
class WirePod:
    """The pod that is being scheduled."""

    metadata: ObjectMeta
    body: bytes
    """The object as JSON."""


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """`ExtenderArgs`: the pod and the nodes to filter."""

    pod: WirePod
    node_names: Sequence[str] = ()
    node_names_json: bytes = b"[]"
    """The same names as they were received."""


class FilterResult(msgspec.Struct, frozen=True, kw_only=True):
    """`ExtenderFilterResult`. A node that it does not name is rejected without a reason."""

    node_names: Sequence[str] = msgspec.field(default=(), name="NodeNames")
    failed_nodes: Mapping[str, str] = msgspec.field(default_factory=dict, name="FailedNodes")
    unresolvable_nodes: Mapping[str, str] = msgspec.field(default_factory=dict, name="FailedAndUnresolvableNodes")
    error: str = msgspec.field(default="", name="Error")


class BindResult(msgspec.Struct, frozen=True):
    """`ExtenderBindingResult`; without an error the pod is bound."""

    error: str = msgspec.field(default="", name="Error")


class _PodObject(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_KEYS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode_pod: Final = kept_decoder(_PodObject, GANG_LABELS)
_NAMES: Final = msgspec.json.Decoder(list[str] | None)
_TEXT: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = b"null"

# Invalid JSON or types, invalid UTF-8, excessive nesting.
_UNREADABLE = msgspec.MsgspecError, UnicodeDecodeError, RecursionError


def decode_filter_args(body: bytes) -> FilterArgs:
    """Raises BadRequestError. A body without nodes is valid."""
    fields = _fields(body)
    try:
        pod = fields.get("pod", _NULL)
        if pod == _NULL:
            raise BadRequestError("the body has no Pod")
        names_json = fields.get("nodenames", _NULL)
        names = _NAMES.decode(names_json)
        if names is None and fields.get("nodes", _NULL) != _NULL:
            raise BadRequestError(NEEDS_NODE_CACHE)
        return FilterArgs(WirePod(_decode_pod(pod).metadata, pod), names or (), names_json if names else b"[]")
    except _UNREADABLE as error:
        raise _unreadable(error) from None


def decode_bind_args(body: bytes) -> BindRequest:
    """Decodes `ExtenderBindingArgs`. Raises BadRequestError, also if a field is missing."""
    fields = _fields(body)
    try:
        return BindRequest(*(_text(fields, key) for key in ("podnamespace", "podname", "poduid", "node")))
    except _UNREADABLE as error:
        raise _unreadable(error) from None


def encode_names(names: Sequence[str]) -> bytes:
    return _ENCODER.encode(names)


def decode_names(names: bytes) -> Sequence[str]:
    """Decodes names that `decode_filter_args` has decoded before, or that `encode_names` has encoded."""
    return _NAMES.decode(names) or ()


def encode_answer(answer: FilterResult | BindResult) -> bytes:
    return _ENCODER.encode(answer)


def _fields(body: bytes) -> dict[str, bytes]:
    try:
        return {key.lower(): bytes(value) for key, value in _KEYS.decode(body).items()}
    except _UNREADABLE as error:
        raise _unreadable(error) from None


def _text(fields: Mapping[str, bytes], key: str) -> str:
    text = _TEXT.decode(fields.get(key, b'""'))
    if not text:
        raise BadRequestError(f"the body has no {key}")
    return text


def _unreadable(error: Exception) -> BadRequestError:
    return BadRequestError(f"the body cannot be read: {error}")
