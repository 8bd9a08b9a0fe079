"""Metadata of Kubernetes objects, kinds as resources, and cache keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The metadata that is used; managedFields and annotations are not decoded. Times are RFC 3339."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class Object(Protocol):
    """Anything a cache can hold."""

    @property
    def metadata(self) -> ObjectMeta: ...


ObjectT = TypeVar("ObjectT", bound=Object)
_ObjectT_co = TypeVar("_ObjectT_co", bound=Object, covariant=True)

# Decodes one object; raises msgspec.DecodeError.
Decode: TypeAlias = Callable[[bytes | msgspec.Raw], ObjectT]


# What ends a part of a path, or changes its meaning. The API server refuses names with most of these
# (apimachinery pkg/api/validation/path).
_NO_PART = frozenset("/?#%")
_DOTS = (".", "..")


class PathError(ValueError):
    """A name cannot be a part of a request's path."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[_ObjectT_co]):
    """A kind of object, its place in the API's paths, and the type in which its objects are read.

    Without `decode` they are plain JSON. A kind that is read in several types is the same resource: decoders are not
    compared. `requirement` is what makes the API server serve the kind; empty: its CRD. `alternative` is what else
    helps a program where the kind is not served; empty: nothing.
    """

    group: str
    version: str
    plural: str
    kind: str
    decode: Decode[_ObjectT_co] = field(default=msgspec.json.decode, compare=False, repr=False)
    namespaced: bool = True
    requirement: str = ""
    alternative: str = field(default="", compare=False)

    def with_decoder(self, decode: Decode[ObjectT]) -> Resource[ObjectT]:
        """Returns the same kind whose objects are read in another type."""
        return Resource(
            self.group,
            self.version,
            self.plural,
            self.kind,
            decode,
            self.namespaced,
            self.requirement,
            self.alternative,
        )

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As kubectl takes it, such as `jobs.batch`; the plural alone in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The request path: of all namespaces without `namespace`, of the collection without `name`.

        Raises `PathError` for a part that would lead to another path.
        """
        for part in (namespace, name, subresource):
            if part in _DOTS or not _NO_PART.isdisjoint(part):
                raise PathError(f"{part[:80]!r} cannot be a name: it would change the path of the request")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = f"/{name}" if name else ""
        return f"{root}{scope}/{self.plural}{tail}" + (f"/{subresource}" if subresource else "")


def key_of(obj: Object) -> str:
    """`namespace/name`, or `name` for cluster-scoped objects (client-go's MetaNamespaceKeyFunc)."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def version_of(obj: Object) -> int:
    """The object's resourceVersion as a number. Raises ValueError."""
    return int(obj.metadata.resource_version or 0)


def split_key(key: str) -> tuple[str, str]:
    """The namespace (empty if there is none) and the name of a key."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def namespace_of(key: str) -> str:
    """The namespace of a key; empty if there is none."""
    return split_key(key)[0]


def controller_of(obj: Object) -> OwnerReference | None:
    """The owner reference with `controller: true`, if any."""
    return next((owner for owner in obj.metadata.owner_references if owner.controller), None)
