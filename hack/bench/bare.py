"""The baselines of everything that creates: the same bodies, made beforehand, sent by threads that do nothing else."""

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
    """One request; `then` are those that may be sent once it is answered."""

    path: str
    body: bytes
    method: str = "POST"
    content_type: str = JSON
    then: Sequence[Write] = ()


def posts(path: str, objects: Iterable[Any]) -> list[Write]:
    """One for each object."""
    return [Write(path, msgspec.json.encode(obj)) for obj in objects]


class _Pile:
    """Writes that wait for a thread. Those that an answer frees come first, as a controller finishes what it began."""

    def __init__(self, wanted: Sequence[Write]) -> None:
        self._waiting = deque(wanted)
        self._under_way = 0
        self._changed = threading.Condition()

    def take(self) -> Write | None:
        """The next one; None once there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._under_way)
            if not self._waiting:
                return None
            self._under_way += 1
            return self._waiting.popleft()

    def done(self, write: Write) -> None:
        with self._changed:
            self._under_way -= 1
            self._waiting.extendleft(reversed(write.then))
            if write.then or not self._under_way:
                self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._waiting.clear()


class Span(NamedTuple):
    """From the first request to the last answer, by the machine's monotonic clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def send_all(kubeconfig: Path, wanted: Sequence[Write], threads: int) -> Span:
    """Send by so many threads with a connection each, in a process of its own, as the controller is one.

    Connections are opened before: whoever sends for long has them. RuntimeError with the first answer that is no
    success.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_send_all, kubeconfig, wanted, threads).result()


def _send_all(kubeconfig: Path, wanted: Sequence[Write], threads: int) -> Span:
    config = load_config(str(kubeconfig))
    url = urlsplit(config.host)
    context = config.server.tls_context(config.certificate)
    pool = urllib3.HTTPSConnectionPool(url.hostname or "", url.port, maxsize=threads, block=True, ssl_context=context)
    authorization = {"Authorization": config.credentials.authorization() or ""}
    pile = _Pile(wanted)
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
        while not failures and (write := pile.take()):
            try:
                send(write)
            except urllib3.exceptions.HTTPError as error:
                failures.append(f"{write.path}: {error}")
            finally:
                pile.done(write)
        pile.clear()

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
