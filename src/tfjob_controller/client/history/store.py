"""The layout of a history, below its root:

    v1/<namespace>/jobs/<end>~<kind>~<name>~<uid>~<state>.json     a record
    v1/<namespace>/logs/<uid>/<replica>.<container>.log.gz         a log, the last MiB of it

There is no index that could be damaged: the listing of `jobs` is the list, which S3 gives in pages of a thousand. The
record is written after its logs, so whatever is listed is complete, and writing it once more changes nothing.

Threads: any.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tfjob_controller.client.history.filesystems import Filesystem, Stored
from tfjob_controller.client.history.record import (
    MAX_LOG_BYTES,
    MAX_RECORD_BYTES,
    Entry,
    LogFile,
    Record,
    decode_record,
    encode_record,
    entry_of,
    is_namespace,
)

# Of the entries of a namespace, whoever has written them.
MAX_ENTRIES = 100_000
_ROOT = "v1"
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Contents:
    """What a namespace has: the bytes of each record with its logs."""

    sizes: Mapping[Entry, int] = field(default_factory=dict)
    # Files by the UIDs of jobs without a record: left by a crash, or by a removal that was interrupted.
    leftovers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class HistoryStore:
    """See the module. Methods raise what the filesystem raises, and ValueError for what is no record."""

    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem

    def __str__(self) -> str:
        return str(self._filesystem)

    def namespaces(self) -> list[str]:
        return sorted(name for name in self._filesystem.folders(_ROOT) if is_namespace(name))

    def entries(self, namespace: str) -> list[Entry]:
        """The newest jobs of a namespace, the newest first; one for each UID."""
        if not is_namespace(namespace):
            return []
        files = self._filesystem.files(f"{_ROOT}/{namespace}/jobs")
        entries = (entry for file in files if (entry := entry_of(namespace, file)) is not None)
        newest = {entry.uid: entry for entry in sorted(entries, key=lambda entry: entry.order)}
        return sorted(newest.values(), key=lambda entry: entry.order, reverse=True)[:MAX_ENTRIES]

    def contents(self, namespace: str, *, left_before: float = math.inf) -> Contents:
        """Returns all that a namespace has. Takes more requests than `entries`.

        `left_before`, in seconds since 1970, is when leftovers were written at the latest: logs precede their record.
        """
        sizes: dict[Entry, int] = {}
        logs: dict[str, dict[str, Stored]] = {}
        above = f"{_ROOT}/{namespace}"
        for file, size in self._filesystem.files(f"{above}/jobs").items():
            if (entry := entry_of(namespace, file)) is not None:
                sizes[entry] = size
        for path, stored in self._filesystem.tree(f"{above}/logs").items():
            logs.setdefault(path.partition("/")[0], {})[f"{above}/logs/{path}"] = stored
        for entry in sizes:
            sizes[entry] += sum(stored.size for stored in logs.pop(entry.uid, {}).values())
        leftovers = {
            uid: tuple(files)
            for uid, files in logs.items()
            if max(stored.written for stored in files.values()) < left_before
        }
        return Contents(sizes, leftovers)

    def read(self, entry: Entry) -> Record:
        record = decode_record(self._filesystem.read(_path(entry), MAX_RECORD_BYTES + 1))
        if record.entry != entry:
            raise ValueError("it is the record of another job")
        return record

    def read_log(self, entry: Entry, log: LogFile) -> bytes:
        """The content of a log, of at most `MAX_LOG_BYTES`."""
        if not log.is_valid:
            raise ValueError("it is not the name of a log")
        packed = self._filesystem.read(_log_path(entry, log), 2 * MAX_LOG_BYTES)
        try:
            return zlib.decompressobj(_GZIP).decompress(packed, MAX_LOG_BYTES)
        except zlib.error as error:
            raise ValueError(f"the log is damaged: {error}") from None

    def write_log(self, entry: Entry, log: LogFile, content: bytes) -> int:
        """Returns the number of bytes that it takes."""
        compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        packed = compressor.compress(content[-MAX_LOG_BYTES:]) + compressor.flush()
        self._filesystem.write(_log_path(entry, log), packed)
        return len(packed)

    def write(self, record: Record) -> int:
        """Writes the record, after its logs. Returns the number of bytes that it takes."""
        content = encode_record(record)
        self._filesystem.write(_path(record.entry), content)
        return len(content)

    def remove(self, entry: Entry) -> None:
        """Removes a record, and then its logs."""
        self._filesystem.remove([_path(entry)])
        folder = f"{_ROOT}/{entry.namespace}/logs/{entry.uid}"
        self._filesystem.remove(f"{folder}/{file}" for file in self._filesystem.files(folder))

    def remove_unfinished(self, namespace: str, before: datetime) -> None:
        """Removes what processes that were killed have not finished to write, before that time."""
        above = f"{_ROOT}/{namespace}"
        folders = (f"{above}/logs/{uid}" for uid in self._filesystem.folders(f"{above}/logs"))
        for folder in (f"{above}/jobs", *folders):
            self._filesystem.remove_unfinished(folder, before.timestamp())

    def remove_files(self, paths: tuple[str, ...]) -> None:
        self._filesystem.remove(paths)


def _path(entry: Entry) -> str:
    return f"{_ROOT}/{entry.namespace}/jobs/{entry.file}"


def _log_path(entry: Entry, log: LogFile) -> str:
    return f"{_ROOT}/{entry.namespace}/logs/{entry.uid}/{log.name}.log.gz"
