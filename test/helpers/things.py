"""A kind of object for tests of the client machinery: `Thing`, as small as a Kubernetes object can be."""

from __future__ import annotations

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

THINGS = Resource("example.com", "v1", "things", "Thing")


class Thing(msgspec.Struct, frozen=True):
    """Its `size` must be a number: anything else cannot be decoded."""

    metadata: ObjectMeta
    size: int = 0


decode_thing = decoder_for(Thing)


def thing(name: str, version: int, *, uid: str = "", size: int = 0, labels: dict[str, str] | None = None) -> Thing:
    """A thing in namespace `ns`; its uid is its name unless told."""
    meta = ObjectMeta(
        name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=str(version), labels=labels or {}
    )
    return Thing(meta, size)


def line(type_: str, obj: Thing) -> bytes:
    """One line of a watch."""
    return msgspec.json.encode({"type": type_, "object": obj})


def unreadable_line(type_: str, name: str, version: int) -> bytes:
    """A line whose object cannot be decoded, but for its metadata."""
    meta = thing(name, version).metadata
    return msgspec.json.encode({"type": type_, "object": {"metadata": meta, "size": "large"}})


def bookmark(version: int, *, ends_list: bool = False) -> bytes:
    """A BOOKMARK line, perhaps the one that ends the initial events."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends_list else {}
    return msgspec.json.encode(
        {"type": "BOOKMARK", "object": {"kind": "Thing", "metadata": {"resourceVersion": str(version), **annotations}}}
    )


def error_line(code: int, reason: str, message: str = "") -> bytes:
    """An ERROR line, as it comes under HTTP 200."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": message or reason}
    return msgspec.json.encode({"type": "ERROR", "object": status})


def page(version: int, *things: Thing, continue_: str = "") -> bytes:
    """The body of a LIST."""
    return msgspec.json.encode(
        {"kind": "ThingList", "metadata": {"resourceVersion": str(version), "continue": continue_}, "items": things}
    )
