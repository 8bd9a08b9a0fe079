"""The baseline of all creations: threads that only send the same bodies, which were encoded in advance."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import urllib3

from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.requester import JSON


class Write(NamedTuple):
    """One request; those in `then` may be sent after its response."""

    path: str
    body: bytes
    method: str = "POST"
    content_type: str = JSON
    then: Sequence[Write] = ()


def posts(path: str, objects: Iterable[Any]) -> list[Write]:
    """Returns a request for each object."""
    return [Write(path, msgspec.json.encode(obj)) for obj in objects]


class _RequestQueue:
    """Requests that wait for a thread. Follow-up requests come first, as a controller completes what it has begun."""

    def __init__(self, wanted: Sequence[Write]) -> None:
        self._waiting = deque(wanted)
        self._in_progress = 0
        self._changed = threading.Condition()

    def take(self) -> Write | None:
        """Waits for the next request and returns it; None once all are sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._in_progress)
            if not self._waiting:
                return None
            self._in_progress += 1
            return self._waiting.popleft()

    def done(self, write: Write) -> None:
        with self._changed:
            self._in_progress -= 1
            self._waiting.extendleft(reversed(write.then))
            if write.then or not self._in_progress:
                self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._waiting.clear()


class Span(NamedTuple):
    """The time from the first request to the last response, by the monotonic clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def send_all(kubeconfig: Path, wanted: Sequence[Write], threads: int) -> Span:
    """Sends all requests from a separate process, like a controller, with one connection for each thread.

    The connections are opened before, as in a long-running program. Raises RuntimeError with the first error response.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_send_all, kubeconfig, wanted, threads).result()


def _send_all(kubeconfig: Path, wanted: Sequence[Write], threads: int) -> Span:
    config = load_config(str(kubeconfig))
    url = urlsplit(config.host)
    context = config.server.tls_context(config.certificate)
    pool = urllib3.HTTPSConnectionPool(url.hostname or "", url.port, maxsize=threads, block=True, ssl_context=context)
    authorization = {"Authorization": config.credentials.authorization() or ""}
    requests = _RequestQueue(wanted)
    failures: list[str] = []
    ready = threading.Barrier(threads + 1)

    def send(write: Write) -> None:
        headers = {**authorization, "Content-Type": write.content_type}
        answer = pool.request(write.method, write.path, body=write.body, headers=headers, retries=False)
        if not 200 <= answer.status < 300:
            failures.append(f"{write.path}: {answer.status} {answer.data.decode(errors='replace')[:200]}")

    def work() -> None:
        pool.request("GET", "/version", headers=authorization)
        ready.wait()
        while not failures and (write := requests.take()):
            try:
                send(write)
            except urllib3.exceptions.HTTPError as error:
                failures.append(f"{write.path}: {error}")
            finally:
                requests.done(write)
        requests.clear()

    workers = [threading.Thread(target=work, name=f"bare-{number}") for number in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    begin = time.monotonic()
    for worker in workers:
        worker.join()
    span = Span(begin, time.monotonic())
    pool.close()
    if failures:
        raise RuntimeError(failures[0])
    return span
