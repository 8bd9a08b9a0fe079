"""The baseline of all creations: threads that only send the same bodies, which were encoded in advance."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import urllib3

from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.requester import JSON


class Post(NamedTuple):
    """One request."""

    path: str
    body: bytes


class Span(NamedTuple):
    """The time from the first request to the last response, by the monotonic clock."""

    begin: float
    end: float


def send_all(kubeconfig: Path, posts: Iterable[Post], threads: int) -> Span:
    """Sends all requests from a separate process, like a controller, with one connection for each thread.

    The connections are opened before, as in a long-running program. Raises RuntimeError with the first error response.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_send_all, kubeconfig, list(posts), threads).result()


def _send_all(kubeconfig: Path, posts: list[Post], threads: int) -> Span:
    config = load_config(str(kubeconfig))
    url = urlsplit(config.host)
    context = config.server.tls_context(config.certificate)
    pool = urllib3.HTTPSConnectionPool(url.hostname or "", url.port, maxsize=threads, block=True, ssl_context=context)
    headers = {"Authorization": config.credentials.authorization() or "", "Content-Type": JSON}
    waiting: queue.SimpleQueue[Post] = queue.SimpleQueue()
    for post in posts:
        waiting.put(post)
    failures: list[str] = []
    ready = threading.Barrier(threads + 1)

    def work() -> None:
        pool.request("GET", "/version", headers=headers)
        ready.wait()
        with contextlib.suppress(queue.Empty):
            while not failures:
                post = waiting.get_nowait()
                failures.extend(_failures(pool, post, headers))

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


def _failures(pool: urllib3.HTTPSConnectionPool, post: Post, headers: Mapping[str, str]) -> Iterator[str]:
    """Sends a request, and yields why it failed."""
    try:
        answer = pool.request("POST", post.path, body=post.body, headers=headers, retries=False)
    except urllib3.exceptions.HTTPError as error:
        yield f"{post.path}: {error}"
        return
    if not 200 <= answer.status < 300:
        yield f"{post.path}: {answer.status} {answer.data.decode(errors='replace')[:200]}"
