"""What the history has of one namespace, and which of it is removed next. No I/O; for one thread at a time."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from tfjob_controller.client.history.record import Entry
from tfjob_controller.client.history.store import Contents


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much is kept of each namespace."""

    jobs: int
    bytes: int


@dataclass(slots=True)
class _Kept:
    entry: Entry
    size: int
    is_final: bool


class NamespaceIndex:
    """`contents` are what another process has left. Its records since `recent` may lack the last state of the job.

    The newest record always stays, also if it alone is larger than the limit.
    """

    def __init__(self, contents: Contents, limits: HistoryLimits, recent: str) -> None:
        self._limits = limits
        self._kept = {entry.uid: _Kept(entry, size, entry.ended < recent) for entry, size in contents.sizes.items()}
        self._order = sorted((*entry.order, entry.uid) for entry in contents.sizes)
        self._bytes = sum(contents.sizes.values())
        # Jobs up to this one were removed: recorded once more they would be the first to go.
        self._removed_up_to = ("", "", "")

    def __len__(self) -> int:
        return len(self._kept)

    def entry(self, uid: str) -> Entry | None:
        kept = self._kept.get(uid)
        return kept.entry if kept is not None else None

    def has(self, uid: str, *, is_final: bool) -> bool:
        """Whether the job is recorded; with `is_final` as it was after its clean-up."""
        kept = self._kept.get(uid)
        return kept is not None and (kept.is_final or not is_final)

    def would_remove(self, ended: str, uid: str) -> bool:
        """Whether a record of a job that ended then would be the first to be removed."""
        if uid in self._kept:
            return False
        order = (ended, uid, uid)
        is_full = len(self._kept) >= self._limits.jobs and bool(self._order) and order < self._order[0]
        return order <= self._removed_up_to or is_full

    def put(self, entry: Entry, size: int, *, is_final: bool) -> None:
        """Adds a record, or what was written of the same job once more."""
        kept = self._kept.get(entry.uid)
        if kept is None:
            bisect.insort(self._order, (*entry.order, entry.uid))
            self._kept[entry.uid] = _Kept(entry, size, is_final)
        else:
            kept.size, kept.is_final = kept.size + size, is_final
        self._bytes += size

    def surplus(self) -> Iterator[Entry]:
        """Yields what must be removed, the oldest first; each is forgotten when the next one is asked for."""
        while len(self._order) > 1 and (len(self._order) > self._limits.jobs or self._bytes > self._limits.bytes):
            order = self._order[0]
            yield self._kept[order[2]].entry
            del self._order[0]
            self._bytes -= self._kept.pop(order[2]).size
            self._removed_up_to = order
