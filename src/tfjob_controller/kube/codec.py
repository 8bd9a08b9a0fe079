"""JSON to values and back, and only what is used.

Theory of operation. A type says which fields are read; msgspec skips the rest without making Python objects of it.
Lists and watch lines are decoded in two steps: first the envelope, whose objects stay raw bytes, then each object
alone, so that one object that does not fit costs that object and not the list. Raw bytes are views of the whole answer:
`decoder_for` copies what it is given before it decodes, so that a value which keeps raw fields pins its own bytes and
not a list of thousands.

Signatures: `decoder_for(type) -> Callable[[bytes | Raw], T]`, `encode(obj) -> bytes`, `decode_list(body) -> ListPage`,
`decode_watch_event(line) -> WatchEvent`, `api_error(status, body, ...) -> ApiError`.

Everything here is pure and may be used from any thread. What cannot be decoded raises `msgspec.DecodeError` (of which
`msgspec.ValidationError` is one kind), but for what is nested too deep: that is cut off (`nesting`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tfjob_controller.kube import nesting
from tfjob_controller.kube.errors import ApiError

T = TypeVar("T")
JsonObject = dict[str, Any]

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

# On the bookmark that ends the objects which a streaming list starts with (apimachinery pkg/apis/meta/v1/types.go).
INITIAL_EVENTS_ANNOTATION = "k8s.io/initial-events-end"

# A proxy's error page may be long; its first line says enough.
_TEXT_LIMIT = 300


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list. `items` are views of the answer: decode them (that copies) or let them go."""

    resource_version: str
    continue_: str
    items: list[msgspec.Raw]
    remaining_item_count: int = 0


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. `object` is a view of the line."""

    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct, frozen=True):
    """How far a watch has come, with no object.

    `is_initial_events_end`: all that existed at the start has been sent.
    """

    resource_version: str
    is_initial_events_end: bool


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _List(msgspec.Struct):
    metadata: _ListMeta
    # A Go slice that is nil arrives as null.
    items: list[msgspec.Raw] | None = None


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _BookmarkObject(msgspec.Struct):
    metadata: _BookmarkMeta


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    kind: str
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_list_decoder = msgspec.json.Decoder(_List)
_event_decoder = msgspec.json.Decoder(WatchEvent)
_bookmark_decoder = msgspec.json.Decoder(_BookmarkObject)
_status_decoder = msgspec.json.Decoder(_Status)
_encoder = msgspec.json.Encoder()


def decoder_for(type_: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """A function that decodes one object of this type; it raises `msgspec.DecodeError` for what does not fit."""
    decode = msgspec.json.Decoder(type_).decode

    def decode_copy(data: bytes | msgspec.Raw) -> T:
        return nesting.decode_truncated(decode, bytes(data) if isinstance(data, msgspec.Raw) else data)

    return decode_copy


def encode(obj: Mapping[str, Any] | msgspec.Struct | bytes) -> bytes:
    """A request's body; bytes are taken as JSON already."""
    return obj if isinstance(obj, bytes) else _encoder.encode(obj)


def status_patch(old: msgspec.Struct, new: msgspec.Struct, resource_version: str) -> JsonObject:
    """Only what differs, and only if nobody has written since `resource_version`: else the server says 409."""
    changes = merge_patch(msgspec.to_builtins(old), msgspec.to_builtins(new))
    return {"metadata": {"resourceVersion": resource_version}, "status": changes}


def merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """What has to be sent: objects are compared field by field, everything else as a whole; null removes."""
    patch: JsonObject = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch(before, value)
            if inner:
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch


def decode_list(body: bytes) -> ListPage:
    """The envelope of a list of any kind."""
    page = nesting.decode_truncated(_list_decoder.decode, body)
    meta = page.metadata
    return ListPage(meta.resource_version, meta.continue_, page.items or [], meta.remaining_item_count or 0)


def decode_watch_event(line: bytes) -> WatchEvent:
    """One line of a watch; an ERROR event is raised as the `ApiError` that it holds (410 comes so, under HTTP 200)."""
    event = nesting.decode_truncated(_event_decoder.decode, line)
    if event.type == ERROR:
        raise api_error(500, bytes(event.object))
    return event


def decode_bookmark(obj: bytes | msgspec.Raw) -> Bookmark:
    """The object of a BOOKMARK event."""
    meta = _bookmark_decoder.decode(obj).metadata
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_ANNOTATION) == "true")


def api_error(
    status: int,
    body: bytes,
    *,
    retry_after_seconds: float | None = None,
    outcome_unknown: bool = False,
) -> ApiError:
    """What the server, or a proxy before it, said with an answer that is no success.

    A Status object gives its own code, reason, message and causes; anything else its first words.
    """
    try:
        parsed = nesting.decode_truncated(_status_decoder.decode, body)
    except msgspec.MsgspecError:
        parsed = None
    if parsed is None or parsed.kind != "Status":
        return ApiError(
            status,
            "",
            _first_words(body) or f"HTTP {status} without a message",
            retry_after_seconds=retry_after_seconds,
            outcome_unknown=outcome_unknown,
        )
    details = parsed.details or _Details()
    causes = details.causes or []
    return ApiError(
        parsed.code or status,
        parsed.reason,
        parsed.message or f"HTTP {status} without a message",
        causes=[(cause.field, cause.message) for cause in causes],
        cause_reasons=[cause.reason for cause in causes],
        retry_after_seconds=(details.retry_after_seconds or None)
        if retry_after_seconds is None
        else retry_after_seconds,
        outcome_unknown=outcome_unknown,
    )


def _first_words(body: bytes) -> str:
    """The start of a text that is no JSON, on one line."""
    return " ".join(body[:_TEXT_LIMIT].decode("utf-8", "replace").split())
