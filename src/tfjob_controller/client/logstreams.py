"""The lines of the logs of several replicas, in one stream: one after the other, or as they are printed."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.logs import LogReader
from tfjob_controller.kube.errors import ApiError

# Each one followed is a connection of its own through the API server to a kubelet.
MAX_FOLLOWED = 32
# Limit for lines that are not read yet.
_MAX_QUEUED_LINES = 1000
_PUT_TIMEOUT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one replica (`worker-1`), without its end."""

    replica: str
    text: str

    def __str__(self) -> str:
        return f"[{self.replica}] {self.text}"


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line of one replica as its program wrote it, without its end."""

    replica: str
    line: bytes


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of one replica's log; `error` is the reason why it cannot be read."""

    replica: str
    error: ApiError | ClientError | None = None


def stream_logs(reader: LogReader, replicas: Sequence[str], *, follow: bool) -> Generator[RawLine | LogEnd, None, None]:
    """The lines of all replicas, and an end for each. For one thread. Raises `ClientError` for too many replicas.

    Logs that are not followed are read one after the other. Followed logs of several replicas are read by one daemon
    thread each, which put their lines into one bounded queue; closing the generator closes all connections.
    """
    if len(replicas) <= 1 or not follow:
        return (item for replica in replicas for item in _stream_log(reader, replica))
    if len(replicas) > MAX_FOLLOWED:
        raise ClientError(f"{len(replicas)} replicas are too many to follow (at most {MAX_FOLLOWED}): choose some")
    return _follow_all(reader, replicas)


def log_lines(
    items: Generator[RawLine | LogEnd, None, None], count: int, client_error: Callable[[ApiError], ClientError]
) -> Iterator[LogLine]:
    """The lines of `count` replicas, as `stream_logs` reads them, in text. For one thread.

    If the log of one of several replicas cannot be read, a warning names it. Raises `ClientError` if no replica has a
    log; `client_error` converts the API server's errors.
    """
    failed: list[ClientError] = []
    with closing(items):
        for item in items:
            if isinstance(item, RawLine):
                yield LogLine(item.replica, item.line.decode("utf-8", "replace"))
            elif item.error is not None:
                failed.append(client_error(item.error) if isinstance(item.error, ApiError) else item.error)
                message = str(failed[-1])
                if len(failed) < count:
                    warnings.warn(
                        message if message.startswith(item.replica) else f"{item.replica}: {message}", stacklevel=2
                    )
    if len(failed) == count:
        raise failed[0]


def _stream_log(reader: LogReader, replica: str) -> Generator[RawLine | LogEnd, None, None]:
    try:
        for line in reader.lines(replica):
            yield RawLine(replica, line)
    except (ApiError, ClientError) as error:
        yield LogEnd(replica, error)
    else:
        yield LogEnd(replica)


def _follow_all(reader: LogReader, replicas: Sequence[str]) -> Generator[RawLine | LogEnd, None, None]:
    items: queue.Queue[RawLine | LogEnd] = queue.Queue(_MAX_QUEUED_LINES)
    stopped = threading.Event()

    def follow(replica: str) -> None:
        try:
            for item in _stream_log(reader, replica):
                if not _put(items, item, stopped):
                    return
        except Exception as error:  # the reader waits for an end of each replica
            _put(items, LogEnd(replica, ClientError(f"{replica}: {type(error).__name__}: {error}")), stopped)

    for replica in replicas:
        threading.Thread(target=follow, args=(replica,), name=f"log-{replica}", daemon=True).start()
    left = len(replicas)
    try:
        while left:
            item = items.get()
            left -= isinstance(item, LogEnd)
            yield item
    finally:
        stopped.set()
        reader.close()


def _put(items: queue.Queue[RawLine | LogEnd], item: RawLine | LogEnd, stopped: threading.Event) -> bool:
    """False once the reader has stopped."""
    while not stopped.is_set():
        try:
            items.put(item, timeout=_PUT_TIMEOUT_SECONDS)
            return True
        except queue.Full:
            continue
    return False
