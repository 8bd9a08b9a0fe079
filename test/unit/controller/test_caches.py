"""The rules of controller/caches.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.poll import eventually
from tfjob_controller.controller.caches import Caches
from tfjob_controller.kube.clock import RealClock

KINDS = 9


class _Lines:
    """Silent until all streams were closed."""

    def __init__(self, closed: threading.Barrier) -> None:
        self._all_closed = closed
        self._closer: threading.Thread | None = None

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        self._all_closed.wait()
        return iter(())

    def close(self) -> None:
        if self._closer is None:
            self._closer = threading.Thread(target=self._all_closed.wait)
            self._closer.start()


class Streams:
    """A `Requester` whose streams end only when all of them were closed."""

    def __init__(self, kinds: int = KINDS) -> None:
        self._all_closed = threading.Barrier(2 * kinds, timeout=30)
        self.opened = 0

    def request(self, method: str, path: str, **options: Any) -> bytes:
        raise AssertionError(f"{method} {path}")

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float) -> _Lines:
        self.opened += 1
        return _Lines(self._all_closed)


def test_all_caches_are_told_to_stop_before_one_is_waited_for() -> None:
    streams = Streams()
    caches = Caches(streams, "", RealClock())
    caches.informers.start()
    eventually(lambda: streams.opened == KINDS, 10)
    assert caches.informers.stop(10.0)


def test_without_gangs_none_are_asked_for() -> None:
    streams = Streams(KINDS - 1)
    caches = Caches(streams, "", RealClock(), gangs=False)
    caches.informers.start()
    eventually(lambda: streams.opened == KINDS - 1, 10)
    assert caches.informers.stop(10.0)
    assert "gangs" not in caches.informers.statistics()
