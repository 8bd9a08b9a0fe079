"""Prints what the training programs printed, from one replica or from many side by side.

Several replicas are read in turn or, when they are followed, by a thread each; every line begins with its replica.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.logs import MAX_FOLLOWED, LogOptions, LogReader
from tfjob_controller.client.reads import Reader
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import Requester


def print_logs(requester: Requester, namespace: str, name: str, options: LogOptions, out: BinaryIO) -> int:
    """The exit code is 0 if any of the replicas had a log. Raises `ClientError`, or `ApiError` for the job itself."""
    reader = LogReader(requester, Reader(requester, namespace), name, options, _say)
    logs = _Printer(reader, options, out)
    views = reader.chosen()
    if len(views) == 1:
        logs.show(views[0].replica.id, b"")
        return 0
    if options.follow:
        return _all_at_once(logs, [view.replica.id for view in views])
    shown = [logs.try_to_show(view.replica.id, b"[%s] " % view.replica.id.encode()) for view in views]
    return 0 if any(shown) else 1


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _all_at_once(logs: _Printer, ids: Sequence[str]) -> int:
    if len(ids) > MAX_FOLLOWED:
        raise ClientError(
            f"{len(ids)} replicas are too many to follow (at most {MAX_FOLLOWED}): leave out -f, or choose"
        )
    ends: queue.SimpleQueue[bool | OSError] = queue.SimpleQueue()

    def follow(replica_id: str) -> None:
        try:
            ends.put(logs.try_to_show(replica_id, b"[%s] " % replica_id.encode()))
        except OSError as error:  # nobody reads any more
            ends.put(error)

    # Daemons, since Ctrl-C must end the program while they read.
    for each in ids:
        threading.Thread(target=follow, args=(each,), name=f"log-{each}", daemon=True).start()
    shown = False
    for _ in ids:
        end = ends.get()
        if isinstance(end, OSError):
            raise end
        shown = shown or end
    return 0 if shown else 1


class _Printer:
    """Thread-safe."""

    def __init__(self, reader: LogReader, options: LogOptions, out: BinaryIO) -> None:
        self._reader = reader
        self._options = options
        self._out = out
        self._lock = threading.Lock()

    def try_to_show(self, replica_id: str, prefix: bytes) -> bool:
        """One of many: what is wrong with it is said, and the others go on."""
        try:
            self.show(replica_id, prefix)
        except (ApiError, ClientError) as error:
            words = error.message if isinstance(error, ApiError) else str(error)
            _say(f"{replica_id}: {words}")
            return False
        return True

    def show(self, replica_id: str, prefix: bytes) -> None:
        for line in self._reader.lines(replica_id):
            with self._lock:
                self._out.write(prefix + line + b"\n")
                if self._options.follow:
                    self._out.flush()
        with self._lock:
            self._out.flush()
