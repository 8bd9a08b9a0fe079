"""Turns the lines of one watch into deltas.

Theory of operation. A watch sends one JSON document per line: `{"type": …, "object": …}`. The decoder is fed the lines
in order and returns what each of them means; it does no I/O and reads no clock. It is in one of two states:

    LISTING ──── bookmark that carries k8s.io/initial-events-end ────▶ LIVE
       ADDED, MODIFIED, DELETED: collected, no delta                     ADDED, MODIFIED → UpsertDelta
       end → ReplaceDelta, with all that was collected                   DELETED         → DeleteDelta
                                                                         BOOKMARK        → BookmarkDelta

A streaming list (`sendInitialEvents=true`) starts in LISTING: the server sends the present objects as ADDED in any
order of versions, possibly mixed with concurrent changes, and then that bookmark. Collecting them makes the list one
atomic delta, as a paged list is. Any other watch starts in LIVE.

ERROR ends the watch in both states: `feed` raises the `ApiError` of its Status. That is how a watch with HTTP 200
reports 410. A line that is not such a document means a broken connection, which is an `ApiError` as well.

An object that cannot be decoded never ends a watch: it is counted, logged with its key, and becomes a `SkipDelta` (the
store keeps its old state). In a list it is named in `ReplaceDelta.unreadable`. A deletion needs the metadata only.

Threads: none; one thread feeds. Source: apimachinery pkg/watch, KEP-3157 (streaming lists), KEP-956 (bookmarks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeAlias

import msgspec

from tfjob_controller.kube import codec
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.kept import kept_decoder
from tfjob_controller.kube.meta import Decode, ObjectMeta, ObjectT, key_of, version_of
from tfjob_controller.util.lazylog import get_logger

log = get_logger(__name__)


class ReplaceDelta(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A complete list. `unreadable` are the keys of objects that exist but could not be decoded."""

    objects: tuple[ObjectT, ...]
    version: int
    unreadable: frozenset[str] = frozenset()


class UpsertDelta(msgspec.Struct, Generic[ObjectT], frozen=True):
    obj: ObjectT


class DeleteDelta(msgspec.Struct, Generic[ObjectT], frozen=True):
    """`last_state` is None where it could not be decoded."""

    key: str
    version: int
    last_state: ObjectT | None


class SkipDelta(msgspec.Struct, frozen=True):
    """A change of an object that could not be decoded."""

    key: str
    version: int


class BookmarkDelta(msgspec.Struct, frozen=True):
    """All changes up to this version have been sent."""

    version: int


Delta: TypeAlias = ReplaceDelta[ObjectT] | UpsertDelta[ObjectT] | DeleteDelta[ObjectT] | SkipDelta | BookmarkDelta


class MetadataOnly(msgspec.Struct, frozen=True):
    """The part of an object that every kind has."""

    metadata: ObjectMeta


class ObjectReader(Generic[ObjectT]):
    """Decodes objects one by one; counts and logs failures. For one thread."""

    def __init__(self, decode: Decode[ObjectT]) -> None:
        self._decode = decode
        self.failures = 0

    def read(self, raw: msgspec.Raw) -> ObjectT | MetadataOnly:
        """The object, or its metadata if it cannot be decoded. Raises ApiError if not even that can be read."""
        try:
            obj = self._decode(raw)
            version_of(obj)
            return obj
        except (ValueError, TypeError, LookupError) as error:
            # msgspec's errors are ValueErrors; the others may come from a custom decode function.
            partial = _partial(raw)
            self.failures += 1
            log.warning("object not decoded, skipped", key=key_of(partial), error=str(error))
            return partial


class WatchDecoder(Generic[ObjectT]):
    """Decodes one watch from its first line to its end."""

    def __init__(self, reader: ObjectReader[ObjectT], *, initial_events: bool) -> None:
        self._reader = reader
        self._listing = initial_events
        self._listed: dict[str, ObjectT | MetadataOnly] = {}

    @property
    def is_listing(self) -> bool:
        """Whether the end of the initial events has not arrived yet."""
        return self._listing

    def feed(self, line: bytes) -> Delta[ObjectT] | None:
        """The delta of this line, None while a list is collected. Raises ApiError at the end of the watch."""
        try:
            event = codec.decode_watch_event(line)
            if event.type == codec.BOOKMARK:
                return self._bookmark(codec.decode_bookmark(event.object))
        except ValueError as error:
            raise _broken(f"the watch sent a line that is not an event: {error}") from error
        if not self._listing:
            return self._change(event)
        self._collect(event)
        return None

    def _change(self, event: codec.WatchEvent) -> Delta[ObjectT]:
        obj = self._reader.read(event.object)
        readable = None if isinstance(obj, MetadataOnly) else obj
        if event.type == codec.DELETED:
            return DeleteDelta(key_of(obj), version_of(obj), readable)
        return SkipDelta(key_of(obj), version_of(obj)) if readable is None else UpsertDelta(readable)

    def _collect(self, event: codec.WatchEvent) -> None:
        obj = self._reader.read(event.object)
        if event.type == codec.DELETED:
            self._listed.pop(key_of(obj), None)
        else:
            self._listed[key_of(obj)] = obj

    def _bookmark(self, bookmark: codec.Bookmark) -> Delta[ObjectT] | None:
        version = int(bookmark.resource_version)
        if not self._listing:
            return BookmarkDelta(version)
        if not bookmark.is_initial_events_end:
            return None
        self._listing = False
        listed, self._listed = self._listed, {}
        return replace_of(listed, version)


def replace_of(listed: Mapping[str, ObjectT | MetadataOnly], version: int) -> ReplaceDelta[ObjectT]:
    """A complete list as one delta."""
    objects = tuple(obj for obj in listed.values() if not isinstance(obj, MetadataOnly))
    unreadable = frozenset(key for key, obj in listed.items() if isinstance(obj, MetadataOnly))
    return ReplaceDelta(objects, version, unreadable)


def version_of_delta(event: Delta[ObjectT]) -> int:
    """The version from which a watch continues after this delta."""
    return version_of(event.obj) if isinstance(event, UpsertDelta) else event.version


_decode_partial = kept_decoder(MetadataOnly)


def _partial(raw: msgspec.Raw) -> MetadataOnly:
    try:
        partial = _decode_partial(raw)
        version_of(partial)
    except ValueError as error:
        raise _broken(f"the server sent something that is not an object: {error}") from error
    return partial


def _broken(message: str) -> ApiError:
    return ApiError(NO_RESPONSE, "BrokenStream", message)
