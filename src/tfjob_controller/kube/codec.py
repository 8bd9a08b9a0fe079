"""JSON of the API to values and back.

Theory of operation. A type declares which fields are read; msgspec skips the rest without creating Python objects.
Lists and watch lines are decoded in two steps: first the envelope, whose objects stay raw bytes, then each object
alone, so that one malformed object does not cost the list. Raw bytes are views of the whole response: `decoder_for`
copies its input before decoding, so that a value with raw fields keeps only its own bytes alive.

Everything here is pure and may be used from any thread. Input that cannot be decoded raises `msgspec.DecodeError`;
what is nested too deep is truncated (`nesting.py`).
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

# On the bookmark that ends the initial events of a streaming list (apimachinery pkg/apis/meta/v1/types.go).
INITIAL_EVENTS_ANNOTATION = "k8s.io/initial-events-end"

# A proxy's error page may be long; its beginning is enough.
_TEXT_LIMIT = 300


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list. `items` are views of the response: decode them (that copies) or drop them."""

    resource_version: str
    continue_: str
    items: list[msgspec.Raw]


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. `object` is a view of the line."""

    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct, frozen=True):
    """The version that a watch has reached.

    `is_initial_events_end`: all objects that existed at the start have been sent.
    """

    resource_version: str
    is_initial_events_end: bool


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    # A nil slice of Go is null in JSON.
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
    """A function that decodes one object of this type; it raises `msgspec.DecodeError`."""
    decode = msgspec.json.Decoder(type_).decode

    def decode_copy(data: bytes | msgspec.Raw) -> T:
        return nesting.decode_truncated(decode, bytes(data) if isinstance(data, msgspec.Raw) else data)

    return decode_copy


def encode(obj: Mapping[str, Any] | msgspec.Struct | bytes) -> bytes:
    """A request's body; bytes are JSON already."""
    return obj if isinstance(obj, bytes) else _encoder.encode(obj)


def status_patch(old: msgspec.Struct, new: msgspec.Struct, resource_version: str) -> JsonObject:
    """The smallest merge patch from one status to another; the server refuses it (409) after a newer write."""
    changes = merge_patch(msgspec.to_builtins(old), msgspec.to_builtins(new))
    return {"metadata": {"resourceVersion": resource_version}, "status": changes}


def merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """The merge patch (RFC 7386) from `old` to `new`: objects are compared by field, all else as a whole."""
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
    return ListPage(meta.resource_version, meta.continue_, page.items or [])


def decode_watch_event(line: bytes) -> WatchEvent:
    """One line of a watch; an ERROR event is raised as the `ApiError` of its Status (such as 410 under HTTP 200)."""
    event = nesting.decode_truncated(_event_decoder.decode, line)
    if event.type == ERROR:
        raise api_error(500, bytes(event.object))
    return event


def decode_bookmark(obj: bytes | msgspec.Raw) -> Bookmark:
    """The object of a BOOKMARK event."""
    meta = nesting.decode_truncated(_bookmark_decoder.decode, obj).metadata
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_ANNOTATION) == "true")


def api_error(
    status: int,
    body: bytes,
    *,
    retry_after_seconds: float | None = None,
    outcome_unknown: bool = False,
) -> ApiError:
    """The error of an unsuccessful response from the server or from a proxy in between.

    A Status object has its own code, reason, message and causes; of any other body the beginning is the message.
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
    """The beginning of a text, on one line."""
    return " ".join(body[:_TEXT_LIMIT].decode("utf-8", "replace").split())
