"""`make bench-watch`: the number of watch events per second that pass from a line to a handler.

- `watch_events_applied`: line → envelope → typed object → store with the controller's two kinds of index → inbox →
  handler's thread. The baseline is `json.loads` of the same lines, which come from memory, in a bare loop.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from bench import objects
from bench.report import Reach, alternate, progress, report, size
from tfjob_controller.api.common.core import PODS, Pod
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.cache.store import by_controller_uid
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.requester import LineStream, Requester
from tfjob_controller.util.clock import RealClock

POD_COUNT = size(1000, tiny=10)
EVENT_COUNT = size(5000, tiny=50)
_LIMIT_SECONDS = 300.0


class Counter:
    """A handler that only counts."""

    def __init__(self, updates: int) -> None:
        self._left = updates
        self.end = 0.0
        self.done = threading.Event()

    def on_add(self, obj: Pod, is_initial: bool) -> None: ...

    def on_update(self, old: Pod, new: Pod) -> None:
        self._left -= 1
        if not self._left:
            self.end = time.perf_counter()
            self.done.set()

    def on_delete(self, obj: Pod, final: bool) -> None: ...


class FromMemory:
    """A requester with one stream of lines from memory."""

    def __init__(self, initial: Iterable[bytes], events: Iterable[bytes]) -> None:
        self._initial = initial
        self._events = events
        self._closed = threading.Event()
        self.begin = 0.0

    def request(self, method: str, path: str, **options: object) -> bytes:
        raise ApiError(405, "MethodNotAllowed", f"{method} {path}")

    def server_time(self) -> None:
        return None

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> LineStream:
        return self

    def __enter__(self) -> LineStream:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def __iter__(self) -> Iterator[bytes]:
        yield from self._initial
        self.begin = time.perf_counter()
        yield from self._events
        self._closed.wait()

    def close(self) -> None:
        self._closed.set()


def _job_of(pod: Pod) -> Iterable[str]:
    """Index function: returns the job that the pod's label names."""
    name = pod.metadata.labels.get("tf_job_name")
    return () if name is None else (name,)


def informer_of_pods(requester: Requester) -> Informer[Pod]:
    """Returns an informer with an index by owner and one by name, as the controller has them."""
    indexers = {"owner": by_controller_uid, "job": _job_of}
    return Informer(requester, PODS, indexers=indexers, clock=RealClock())


def applied(initial: list[bytes], events: list[bytes]) -> float:
    """Returns the events per second, counted from the request of the first line, until the handler has them all."""
    requester, counter = FromMemory(initial, events), Counter(len(events))
    informer = informer_of_pods(requester)
    informer.add_handler(counter)
    informer.start()
    try:
        if not counter.done.wait(_LIMIT_SECONDS):
            raise TimeoutError(f"events did not arrive: {informer.statistics()}")
    finally:
        informer.stop()
    return len(events) / (counter.end - requester.begin)


def bare_loop(lines: list[bytes]) -> float:
    begin = time.perf_counter()
    for line in lines:
        json.loads(line)
    return len(lines) / (time.perf_counter() - begin)


def main() -> int:
    """Prints the figure. Returns 1 if it missed its target."""
    initial, events = list(objects.initial(POD_COUNT)), list(objects.changes(POD_COUNT, EVENT_COUNT))
    line_bytes = sum(map(len, events)) // len(events)
    progress(f"{EVENT_COUNT} events of {line_bytes} bytes, {POD_COUNT} pods in the cache")
    values, baselines = alternate(lambda: applied(initial, events), lambda: bare_loop(events))
    extra = {"events": EVENT_COUNT, "bytes_per_event": line_bytes}
    ok = report("watch_events_applied", "1/s", values, baselines=baselines, reach=Reach(min_ratio=0.8), **extra)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
