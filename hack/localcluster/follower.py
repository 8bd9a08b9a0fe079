"""A watch of one path that goes on where it stood when it breaks.

Where the server has forgotten that place (a *gap*: it was started again, its history was compacted) all is listed anew,
and the reader is told when that begins and ends: what has not come in between has gone.
"""

from __future__ import annotations

import threading
from typing import Protocol

import urllib3

from localcluster.api import Api, Object, RefusedError, Watch

_RETRY_SECONDS = 0.1
_JOIN_SECONDS = 10.0
_GONE = 410
_LIST_ENDS = "k8s.io/initial-events-end"


class Reader(Protocol):
    """Told everything in order, in the follower's thread."""

    def list_begins(self) -> None:
        """What is taken until the list ends is all that there is."""

    def take(self, change: str, obj: Object) -> None:
        """ADDED, MODIFIED or DELETED."""

    def list_ends(self, bookmark: Object) -> None:
        """`bookmark` has the resourceVersion of the list."""


class Follower:
    """One thread, gone after `stop`. `is_listed` is set once the reader was told of all that was there at the start."""

    def __init__(self, api: Api, path: str, reader: Reader) -> None:
        self.is_listed = threading.Event()
        self.gaps = 0
        self.problem = ""
        self._api = api
        self._path = path
        self._reader = reader
        self._open: Watch | None = None
        # Where a watch would go on; empty: with a list.
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
                # The server ends, among others, a watch whose reader is slow.
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
        """A watch begins; what its query says beside the usual."""
        if self._version:
            return {"resourceVersion": self._version, "sendInitialEvents": "false"}
        self._is_listing = True
        self._reader.list_begins()
        return {}

    def take(self, change: str, obj: Object) -> None:
        """One event of the watch, which is no ERROR."""
        meta = obj["metadata"]
        if change != "BOOKMARK":
            self._reader.take(change, obj)
        elif self._is_listing and _LIST_ENDS in (meta.get("annotations") or {}):
            self._is_listing = False
            self._reader.list_ends(obj)
            self.is_listed.set()
        # A list is not in order: where it stands is known at its end.
        if not self._is_listing:
            self._version = meta["resourceVersion"]

    def refused(self, error: RefusedError) -> None:
        """The watch was not opened, or has ended with an ERROR."""
        self.problem = str(error)
        if error.status == _GONE:
            self.gaps += 1
            self._version = ""
