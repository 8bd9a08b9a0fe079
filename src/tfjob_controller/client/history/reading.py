"""Reads a history, for the Python client, the plugin and the dashboard.

    history = History.open("s3://bucket/prefix")
    for job in history.jobs("team-a"):
        print(job.ended, job.name, job.state)
    record = history.job("train", namespace="team-a")
    print(record.reason, history.log(record))

A listing is kept for some seconds. Everything that is read is bounded, and is text of unknown origin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic

from cachetools import LRUCache

from tfjob_controller.client.history.filesystems import open_filesystem
from tfjob_controller.client.history.record import Entry, HistoryError, LogFile, Record
from tfjob_controller.client.history.store import HistoryStore
from tfjob_controller.storage.errors import StorageError, explain
from tfjob_controller.storage.uris import Redactor

__all__ = ["LISTING_SECONDS", "History", "HistoryError"]

LISTING_SECONDS = 5.0
# The entries in listings that are kept, and the namespaces that are listed at the same time.
_KEPT_ENTRIES, _AT_ONCE = 200_000, 8


class History:
    """See the module. Every call raises `HistoryError`. Thread-safe."""

    def __init__(
        self, store: HistoryStore, redact: Callable[[str], str] = str, seconds: Callable[[], float] = monotonic
    ) -> None:
        self._store = store
        self._redact = redact
        self._seconds = seconds
        self._lock = threading.Lock()
        self._pending: dict[str, Future[Sequence[Entry]]] = {}
        self._listings: LRUCache[str, tuple[float, Sequence[Entry]]] = LRUCache(
            _KEPT_ENTRIES, getsizeof=lambda kept: len(kept[1]) + 1
        )

    @classmethod
    def open(cls, url: str, environ: Mapping[str, str] | None = None) -> History:
        """The history at a directory or at s3://bucket/prefix; credentials are where Amazon's SDK finds them."""
        variables = os.environ if environ is None else environ
        redact = Redactor(variables)
        try:
            return cls(HistoryStore(open_filesystem(url, variables)), redact)
        except (StorageError, ImportError, OSError) as error:
            raise HistoryError(redact(str(explain(error, "the history")))) from None

    def __str__(self) -> str:
        return self._redact(str(self._store))

    def namespaces(self) -> list[str]:
        with self._errors(str(self)):
            return self._store.namespaces()

    def jobs(self, namespace: str = "", *, text: str = "", kind: str = "") -> list[Entry]:
        """The ended jobs of a namespace, or of all, the newest first.

        `text` is a part of a name, `kind` one in lower case, such as trainjob.
        """
        return [
            entry
            for entry in (self._entries(namespace) if namespace else self._all_entries())
            if text.lower() in entry.name and kind.lower() in ("", entry.word)
        ]

    def job(self, name: str, namespace: str, *, kind: str = "", uid: str = "") -> Record:
        """The record of the job of that name that ended last, or of that UID."""
        unreadable: HistoryError | None = None
        for entry in self._entries(namespace):
            if not (entry.is_of(name) and kind.lower() in ("", entry.word) and uid in ("", entry.uid)):
                continue
            try:
                record = self.read(entry)
            except HistoryError as error:  # an older job of that name may be readable
                unreadable = unreadable or error
                continue
            if record.name == name:
                return record
        raise unreadable or HistoryError(f"the history {self} has no job {name} in namespace {namespace}")

    def read(self, entry: Entry) -> Record:
        with self._errors(f"{entry.kind.lower()}/{entry.name} in the history {self}"):
            return self._store.read(entry)

    def log(self, record: Record, log: LogFile | None = None) -> bytes:
        """The content of a log of the record, by default of the first; each line begins with its time."""
        if log is None:
            if not record.logs:
                why = f": {record.unread[0]}" if record.unread else ""
                raise HistoryError(f"the history has no log of {record.name}{why}")
            log = record.logs[0]
        with self._errors(f"the log {log.name} of {record.name} in the history {self}"):
            return self._store.read_log(record.entry, log)

    def _all_entries(self) -> list[Entry]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            listings = pool.map(self._entries, self.namespaces())
            entries = [entry for listing in listings for entry in listing]
        return sorted(entries, key=lambda entry: entry.order, reverse=True)

    def _entries(self, namespace: str) -> Sequence[Entry]:
        with self._lock:
            kept = self._listings.get(namespace)
            if kept is not None and self._seconds() - kept[0] < LISTING_SECONDS:
                return kept[1]
            # Whoever asks meanwhile waits for the same listing.
            if (other := self._pending.get(namespace)) is None:
                mine = self._pending[namespace] = Future[Sequence[Entry]]()
        if other is not None:
            return other.result()
        try:
            with self._errors(str(self)):
                entries = tuple(self._store.entries(namespace))
        except BaseException as error:
            self._end(namespace)
            mine.set_exception(error)
            raise
        self._end(namespace, entries)
        mine.set_result(entries)
        return entries

    def _end(self, namespace: str, entries: Sequence[Entry] | None = None) -> None:
        with self._lock:
            del self._pending[namespace]
            if entries is not None:
                self._listings[namespace] = self._seconds(), entries

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise HistoryError(f"{what}: it was removed, because newer jobs have taken its place") from None
        except ValueError as error:
            raise HistoryError(f"{what}: {self._redact(str(error))}") from None
        except Exception as error:  # the storage's libraries have many families of errors
            raise HistoryError(self._redact(str(explain(error, what)))) from None
