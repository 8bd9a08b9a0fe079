"""A watch of one path that resumes where it was when it breaks.

If the server no longer has that version (a *gap*: it was restarted, or its history was compacted), everything is listed
again, and the reader is notified of the begin and the end of the list. Objects that are not in the list were deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import urllib3

from localcluster.api import INITIAL_EVENTS_END, Api, Object, RefusedError, Watch

_RETRY_SECONDS = 0.1
_JOIN_SECONDS = 10.0
_GONE = 410


class Reader(Protocol):
    """Receives everything in order, in the follower's thread."""

    def list_begins(self) -> None:
        """A list begins: the objects until its end are all that exist."""

    def take(self, change: str, obj: Object) -> None:
        """Receives an object with its change: ADDED, MODIFIED or DELETED."""

    def list_ends(self, bookmark: Object) -> None:
        """The list ends; `bookmark` has its resourceVersion."""


@dataclass(frozen=True, slots=True)
class Existing:
    """A reader that passes on each object when it is listed, added or changed."""

    handle: Callable[[Object], None]

    def list_begins(self) -> None: ...

    def take(self, change: str, obj: Object) -> None:
        if change != "DELETED":
            self.handle(obj)

    def list_ends(self, bookmark: Object) -> None: ...


class Follower:
    """Follows a path in one thread until `stop`. `is_listed` is set once the reader has received the first list."""

    def __init__(self, api: Api, path: str, reader: Reader, query: Mapping[str, str] | None = None) -> None:
        """`query` selects some of the objects."""
        self.is_listed = threading.Event()
        self.gaps = 0
        self.problem = ""
        self._api = api
        self._path = path
        self._reader = reader
        self._query = dict(query or {})
        self._open: Watch | None = None
        # The version from which a watch resumes; empty: a list comes first.
        self._version = ""
        self._is_listing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._open is not None:
            self._open.close()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except RefusedError as error:
                self.refused(error)
                self._stopping.wait(_RETRY_SECONDS)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                # The server also ends watches whose reader is slow.
                self.problem = str(error)
                self._stopping.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        self._open = self._api.watch(self._path, self.begin())
        if self._stopping.is_set():
            self._open.close()
        for change, obj in self._open:
            if change == "ERROR":
                raise RefusedError(int(obj.get("code", 500)), obj)
            self.take(change, obj)

    def begin(self) -> dict[str, str]:
        """Called when a watch begins; returns further parameters of its query."""
        if self._version:
            return {**self._query, "resourceVersion": self._version, "sendInitialEvents": "false"}
        self._is_listing = True
        self._reader.list_begins()
        return self._query

    def take(self, change: str, obj: Object) -> None:
        """Processes one event of the watch other than ERROR."""
        meta = obj["metadata"]
        if change != "BOOKMARK":
            self._reader.take(change, obj)
        elif self._is_listing and INITIAL_EVENTS_END in (meta.get("annotations") or {}):
            self._is_listing = False
            self._reader.list_ends(obj)
            self.is_listed.set()
        # A list is not sorted by version; its version is known at its end.
        if not self._is_listing:
            self._version = meta["resourceVersion"]

    def refused(self, error: RefusedError) -> None:
        """Called when a watch was not opened, or ended with an ERROR."""
        self.problem = str(error)
        if error.status == _GONE:
            self.gaps += 1
            self._version = ""
