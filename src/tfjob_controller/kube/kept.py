"""Decoders for caches: they keep what a program reads of an object, whatever else somebody has written into it.

The API server bounds an object at 1.5 MB, but not the number of its labels, owner references or containers, each of
which would take many times its bytes as Python objects. A cache holds objects that strangers create, so a few of them
could stop a program. Of the metadata, a decoder made here keeps

- the labels that are named, which the API server bounds at 63 characters each; no other label becomes an object,
- the controller's owner reference alone, or another one that is asked for, with texts that are cut,
- annotations of up to `MAX_ANNOTATION` characters; a longer one counts as absent.

An object whose controller is none of those that count keeps nothing but its identity.

Pure, for any thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

from tfjob_controller.kube import nesting
from tfjob_controller.kube.meta import Object, ObjectMeta, ObjectT, OwnerReference, Resource
from tfjob_controller.kube.names import MAX_NAME

MAX_ANNOTATION = 1024
# Objects that a program here creates have one owner.
MAX_OWNERS_BYTES = 8 * 1024
_SHORT_BYTES = 1024
# Stands for owners that are too long to be read: such an object belongs to somebody else.
_UNREAD_OWNERS = (OwnerReference(controller=True),)
_IDENTITY = operator.attrgetter(
    "name", "namespace", "uid", "resource_version", "generation", "creation_timestamp", "deletion_timestamp"
)
_HEAD = len(("labels", "owner_references")) + 7

MetaT = TypeVar("MetaT", bound=ObjectMeta)
Owns = Callable[[OwnerReference | None], bool]

_decode_owners = msgspec.json.Decoder(tuple[OwnerReference, ...]).decode


def anybody(owner: OwnerReference | None) -> bool:
    """Says that an object of any controller is kept."""
    return True


def controlled_by(kinds: Collection[Resource[Object]], *, or_by_none: bool = False) -> Owns:
    """Returns whether a controller is of one of these kinds; an object without one counts if `or_by_none`."""
    ours = frozenset((kind.kind, kind.group) for kind in kinds)

    def owns(owner: OwnerReference | None) -> bool:
        if owner is None:
            return or_by_none
        return (owner.kind, owner.api_version.partition("/")[0]) in ours

    return owns


def controlled_below(domain: str) -> Owns:
    """Returns whether a controller is of a kind whose API group is this domain or one below it."""

    def owns(owner: OwnerReference | None) -> bool:
        group = owner.api_version.partition("/")[0] if owner is not None else ""
        return group == domain or group.endswith(f".{domain}")

    return owns


def within_name(text: str) -> str:
    """The text, or the beginning of one that is longer than any name and so names nothing."""
    return text[: MAX_NAME + 1]


def is_controller(owner: OwnerReference) -> bool:
    return owner.controller is True


def kept_decoder(
    kind: type[ObjectT],
    labels: Collection[str] = (),
    *,
    owns: Owns = anybody,
    is_kept: Callable[[OwnerReference], bool] = is_controller,
) -> Callable[[bytes | msgspec.Raw], ObjectT]:
    """Returns a decoder of one object for a cache; it raises `msgspec.DecodeError`.

    It keeps these `labels`, and the first owner reference that `is_kept`; an object that is not `owns`-ed, by that
    reference, keeps its identity only.
    """
    meta_of = _metadata_reader(_field_type(kind, "metadata"), is_kept)
    decode = msgspec.json.Decoder(_wire_type(kind, labels)).decode
    rest_of = _reader(tuple(field.name for field in _fields(kind) if field.name != "metadata"))

    def decode_kept(data: bytes | msgspec.Raw) -> ObjectT:
        wire: Any = nesting.decode_truncated(decode, bytes(data))
        meta = meta_of(wire.metadata)
        owner = meta.owner_references[0] if meta.owner_references else None
        if owns(owner):
            return kind(meta, *rest_of(wire))  # type: ignore[call-arg]
        return kind(type(meta)(*_IDENTITY(meta), {}, meta.owner_references))  # type: ignore[call-arg]

    return decode_kept


def _metadata_reader(kind: type[MetaT], is_kept: Callable[[OwnerReference], bool]) -> Callable[[Any], MetaT]:
    names = tuple(field.name for field in _fields(kind))
    rest_of = _reader(tuple(name for name in names[_HEAD:] if name != "annotations"))
    has_annotations = "annotations" in names
    if has_annotations and names[-1] != "annotations":
        raise TypeError(f"{kind.__name__}: annotations must be the last field")

    make: Callable[..., MetaT] = kind

    def read(wire: Any) -> MetaT:
        labels = msgspec.to_builtins(wire.labels)
        owners = _owners(wire.owner_references, is_kept)
        annotations = (_within_bounds(wire.annotations),) if has_annotations else ()
        return make(*_IDENTITY(wire), labels, owners, *rest_of(wire), *annotations)

    return read


def _owners(raw: msgspec.Raw, is_kept: Callable[[OwnerReference], bool]) -> tuple[OwnerReference, ...]:
    if not raw:
        return ()
    size = len(bytes(raw))
    if size > MAX_OWNERS_BYTES:
        return _UNREAD_OWNERS
    owners = _decode_owners(raw)
    if size <= _SHORT_BYTES and len(owners) == 1 and is_kept(owners[0]):
        return owners
    return tuple(_cut(owner) for owner in owners if is_kept(owner))[:1]


def _cut(owner: OwnerReference) -> OwnerReference:
    """The reference with texts that name nothing if they are too long."""
    api_version, kind, name, uid = (
        within_name(each) for each in (owner.api_version, owner.kind, owner.name, owner.uid)
    )
    return OwnerReference(api_version, kind, name, uid, owner.controller)


def _within_bounds(annotations: msgspec.Struct) -> msgspec.Struct:
    for name in annotations.__struct_fields__:
        if len(getattr(annotations, name)) > MAX_ANNOTATION:
            return _within_bounds(msgspec.structs.replace(annotations, **{name: ""}))
    return annotations


def _wire_type(kind: type[Any], labels: Collection[str]) -> type[msgspec.Struct]:
    """Returns the type that is decoded: of the same fields, with labels that are named and owners as they came."""
    named = msgspec.defstruct(
        "Labels",
        [
            (f"label{number}", str | msgspec.UnsetType, msgspec.field(default=msgspec.UNSET, name=label))
            for number, label in enumerate(sorted(set(labels)))
        ],
        frozen=True,
    )
    replaced = {
        "labels": (named, msgspec.field(default=named(), name="labels")),
        "owner_references": (msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name="ownerReferences")),
    }
    meta = _field_type(kind, "metadata")
    metadata = msgspec.defstruct("Metadata", [_field(field, replaced) for field in _fields(meta)])
    return msgspec.defstruct(kind.__name__, [_field(field, {"metadata": (metadata, ...)}) for field in _fields(kind)])


def _field(info: msgspec.structs.FieldInfo, replaced: dict[str, tuple[Any, Any]]) -> tuple[Any, ...]:
    type_, default = replaced.get(info.name, (info.type, None))
    if default is ... or (default is None and info.required):
        return info.name, type_
    if default is None:
        default = msgspec.field(name=info.encode_name, default=info.default, default_factory=info.default_factory)  # type: ignore[call-overload]
    return info.name, type_, default


def _fields(kind: type[Any]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _field_type(kind: type[Any], name: str) -> Any:
    return next(field.type for field in _fields(kind) if field.name == name)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that reads these attributes."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return (lambda _: ()) if not names else (lambda obj: (getattr(obj, names[0]),))
