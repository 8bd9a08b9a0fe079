"""The lines of one watch, as events.

Theory of operation. A watch answers with one JSON document for each line: `{"type": …, "object": …}`. This machine is
fed the lines in order and gives back what each of them means; it does no I/O and knows no time. It is in one of two
states:

    LISTING ──── bookmark that carries k8s.io/initial-events-end ────▶ LIVE
       ADDED, MODIFIED, DELETED: collected, no event                     ADDED, MODIFIED → Upsert
       end → Replace, with all that was collected                        DELETED         → Delete
                                                                         BOOKMARK        → Bookmark

A streaming list (`sendInitialEvents=true`) starts in LISTING: the server sends the present objects as ADDED in any
order of versions, perhaps mixed with changes that happen meanwhile, and then that bookmark. Collecting them makes the
list one atomic event, as a page from a LIST would be. Any other watch starts LIVE.

ERROR ends the watch in both states: `feed` raises the `ApiError` that its Status speaks of. That is how an HTTP 200
says 410. A line that is no such document means a connection that broke in the middle of one: also an `ApiError`.

An object that cannot be decoded never ends a watch: it is counted, logged with its key, and becomes `SkipDelta` (its
old state stays). In a list it is named in `ReplaceDelta.unreadable`. A deletion needs no more than the metadata.

Threads: none; one thread feeds. Source: apimachinery pkg/watch, KEP-3157 (streaming lists), KEP-956 (bookmarks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias

import msgspec

from tfjob_controller.kube import codec
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.meta import ObjectMeta, ObjectT, key_of, version_of
from tfjob_controller.util.lazylog import get_logger

log = get_logger(__name__)

Decode: TypeAlias = Callable[[bytes | msgspec.Raw], ObjectT]


class ReplaceDelta(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A whole list. `unreadable` are keys of objects that exist but could not be decoded."""

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
    """What can be read of any object."""

    metadata: ObjectMeta


class ObjectReader(Generic[ObjectT]):
    """Decodes objects one by one; counts and logs those that cannot be. For one thread."""

    def __init__(self, decode: Decode[ObjectT]) -> None:
        self._decode = decode
        self.failures = 0

    def read(self, raw: msgspec.Raw) -> ObjectT | MetadataOnly:
        """The object, or as much of it as every object has; ApiError if not even that can be read."""
        try:
            obj = self._decode(raw)
            version_of(obj)
            return obj
        except (ValueError, TypeError, LookupError) as error:
            # msgspec's errors are ValueErrors; the others are what a decode function of one's own may trip over.
            partial = _partial(raw)
            self.failures += 1
            log.warning("object not decoded, skipped", key=key_of(partial), error=str(error))
            return partial


class WatchDecoder(Generic[ObjectT]):
    """One watch from its first line to its end."""

    def __init__(self, reader: ObjectReader[ObjectT], *, initial_events: bool) -> None:
        self._reader = reader
        self._listing = initial_events
        self._listed: dict[str, ObjectT | MetadataOnly] = {}

    @property
    def is_listing(self) -> bool:
        """Whether the end of the initial events is still to come."""
        return self._listing

    def feed(self, line: bytes) -> Delta[ObjectT] | None:
        """What this line means; None if nothing yet. ApiError ends the watch."""
        try:
            event = codec.decode_watch_event(line)
            if event.type == codec.BOOKMARK:
                return self._bookmark(codec.decode_bookmark(event.object))
        except ValueError as error:
            raise _broken(f"watch sent what is no event: {error}") from error
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
    """A whole list as one event, whichever way its objects came."""
    objects = tuple(obj for obj in listed.values() if not isinstance(obj, MetadataOnly))
    unreadable = frozenset(key for key, obj in listed.items() if isinstance(obj, MetadataOnly))
    return ReplaceDelta(objects, version, unreadable)


def version_of_delta(event: Delta[ObjectT]) -> int:
    """Where a watch goes on after this event."""
    return version_of(event.obj) if isinstance(event, UpsertDelta) else event.version


_decode_partial = codec.decoder_for(MetadataOnly)


def _partial(raw: msgspec.Raw) -> MetadataOnly:
    try:
        partial = _decode_partial(raw)
        version_of(partial)
    except ValueError as error:
        raise _broken(f"the server sent what is no object: {error}") from error
    return partial


def _broken(message: str) -> ApiError:
    return ApiError(NO_RESPONSE, "BrokenStream", message)
