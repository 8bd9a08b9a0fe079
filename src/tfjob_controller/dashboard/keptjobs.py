"""What the dashboard reads of the history of ended jobs; each call reads the storage, which may hang. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cachetools import LRUCache

from tfjob_controller.client.history.reading import History, HistoryError
from tfjob_controller.client.history.record import Entry, LogFile, Record, lines_of
from tfjob_controller.dashboard.metrichistory import MetricSeries, logged_series

_MAX_SERIES, _MAX_NAMES = 32, 100


class KeptJobs:
    """The history, and the series of the records that were shown last. Raises `HistoryError`."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        # By namespace and UID, because people have rights to namespaces.
        self._series: LRUCache[tuple[str, str], Sequence[MetricSeries]] = LRUCache(_MAX_SERIES)

    def entries(self, namespace: str, text: str) -> list[Entry]:
        """The ended jobs of a namespace, or of all, with `text` in their names, the newest first."""
        return self._history.jobs(namespace, text=text)

    def record(self, namespace: str, kind: str, name: str, uid: str) -> Record:
        """The record of an entry."""
        for entry in self._history.jobs(namespace):
            if (entry.uid, entry.kind, entry.name) == (uid, kind, name):
                return self._history.read(entry)
        raise HistoryError(f"the history has no such job {name[:253]}: newer ones may have taken its place")

    def log(self, record: Record, log: LogFile) -> bytes:
        return self._history.log(record, log)

    def series(self, record: Record) -> Sequence[MetricSeries]:
        """The metrics in the first log of a record."""
        key = record.namespace, record.uid
        with self._lock:
            if (known := self._series.get(key)) is not None:
                return known
        if not (record.logged_metrics and record.logs):
            return ()
        lines = (line.decode("utf-8", "replace") for line in lines_of(self._history.log(record)))
        series = logged_series(lines, record.logged_metrics[:_MAX_NAMES])
        with self._lock:
            self._series[key] = series
        return series
