"""The logs of one replica, or of many side by side, as one iterator.

Theory of operation. Logs that have an end are read one after the other. Followed ones are read by a daemon thread each,
which put their lines into one bounded queue; when the reader stops, for whatever reason, all connections are closed,
and the threads end. A replica whose log cannot be had does not hide the others': it is told by a warning, and only
where no replica had any does the iterator raise.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.logs import MAX_FOLLOWED
from tfjob_controller.kube.errors import ApiError

# Lines that wait for a reader who is slower than the programs.
_QUEUED_LINES = 1000
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one replica (`worker-1`), without its end."""

    replica: str
    text: str

    def __str__(self) -> str:
        return f"[{self.replica}] {self.text}"


class Source(Protocol):
    """What is needed of a `LogReader`."""

    def lines(self, replica_id: str) -> Iterator[bytes]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _End:
    """Of one replica's log; `error`: why it could not be had."""

    replica: str
    error: ClientError | None = None


# Makes of what the server refused what the user is told.
Tell = Callable[[ApiError], ClientError]


def log_lines(reader: Source, replicas: Sequence[str], tell: Tell, *, follow: bool) -> Iterator[LogLine]:
    """For one thread. Raises `ClientError`."""
    if len(replicas) > 1 and follow:
        if len(replicas) > MAX_FOLLOWED:
            raise ClientError(f"{len(replicas)} replicas are too many to follow (at most {MAX_FOLLOWED}): choose one")
        items = _side_by_side(reader, replicas, tell)
    else:
        items = (item for replica in replicas for item in _of_one(reader, replica, tell))
    return _lines(items, len(replicas))


def _lines(items: Generator[LogLine | _End, None, None], count: int) -> Iterator[LogLine]:
    failed: list[ClientError] = []
    with closing(items):
        for item in items:
            if isinstance(item, LogLine):
                yield item
            elif item.error is not None:
                failed.append(item.error)
                if len(failed) < count:
                    warnings.warn(_named(item.replica, str(item.error)), stacklevel=2)
    if len(failed) == count:
        raise failed[0]


def _named(replica: str, words: str) -> str:
    return words if words.startswith(replica) else f"{replica}: {words}"


def _of_one(reader: Source, replica: str, tell: Tell) -> Generator[LogLine | _End, None, None]:
    try:
        for line in reader.lines(replica):
            yield LogLine(replica, line.decode("utf-8", "replace"))
    except ApiError as error:
        yield _End(replica, tell(error))
    except ClientError as error:
        yield _End(replica, error)
    else:
        yield _End(replica)


def _side_by_side(reader: Source, replicas: Sequence[str], tell: Tell) -> Generator[LogLine | _End, None, None]:
    items: queue.Queue[LogLine | _End] = queue.Queue(_QUEUED_LINES)
    stopped = threading.Event()

    def follow(replica: str) -> None:
        try:
            for item in _of_one(reader, replica, tell):
                if not _put(items, item, stopped):
                    return
        # Whoever reads waits for an end of each.
        except Exception as error:
            _put(items, _End(replica, ClientError(f"{replica}: {type(error).__name__}: {error}")), stopped)

    for replica in replicas:
        threading.Thread(target=follow, args=(replica,), name=f"log-{replica}", daemon=True).start()
    left = len(replicas)
    try:
        while left:
            item = items.get()
            left -= isinstance(item, _End)
            yield item
    finally:
        stopped.set()
        reader.close()


def _put(items: queue.Queue[LogLine | _End], item: LogLine | _End, stopped: threading.Event) -> bool:
    """False once nobody reads any more."""
    while not stopped.is_set():
        try:
            items.put(item, timeout=_LOOK_SECONDS)
            return True
        except queue.Full:
            continue
    return False
