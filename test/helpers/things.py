"""`Thing`, a minimal kind of object for tests of clients and caches."""

from __future__ import annotations

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource


class Thing(msgspec.Struct, frozen=True):
    """An object whose `size` must be a number; any other value cannot be decoded."""

    metadata: ObjectMeta
    size: int = 0


decode_thing = decoder_for(Thing)
THINGS = Resource("example.com", "v1", "things", "Thing", decode_thing)


def thing(name: str, version: int, *, uid: str = "", size: int = 0, labels: dict[str, str] | None = None) -> Thing:
    """Returns a thing in namespace `ns`; by default its uid is its name."""
    meta = ObjectMeta(
        name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=str(version), labels=labels or {}
    )
    return Thing(meta, size)


def line(type_: str, obj: Thing) -> bytes:
    """Returns one line of a watch."""
    return msgspec.json.encode({"type": type_, "object": obj})


def unreadable_line(type_: str, name: str, version: int) -> bytes:
    """Returns a line whose object cannot be decoded, except its metadata."""
    meta = thing(name, version).metadata
    return msgspec.json.encode({"type": type_, "object": {"metadata": meta, "size": "large"}})


def bookmark(version: int, *, ends_list: bool = False) -> bytes:
    """Returns a BOOKMARK line, optionally the one that ends the initial events."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends_list else {}
    return msgspec.json.encode(
        {"type": "BOOKMARK", "object": {"kind": "Thing", "metadata": {"resourceVersion": str(version), **annotations}}}
    )


def error_line(code: int, reason: str, message: str = "") -> bytes:
    """Returns an ERROR line, as the server sends it with HTTP 200."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": message or reason}
    return msgspec.json.encode({"type": "ERROR", "object": status})


def page(version: int, *things: Thing, continue_: str = "") -> bytes:
    """Returns the body of a LIST."""
    return msgspec.json.encode(
        {"kind": "ThingList", "metadata": {"resourceVersion": str(version), "continue": continue_}, "items": things}
    )
