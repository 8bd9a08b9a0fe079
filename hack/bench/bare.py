"""The baseline of all creations: threads that only send the same bodies, which were encoded in advance."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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


def send_all(kubeconfig: Path, posts: Iterable[Post], threads: int) -> float:
    """Sends all requests from a separate process, like a controller, with one connection for each thread.

    The connections are opened before, as in a long-running program. Returns the time before the first request, by the
    monotonic clock. Raises RuntimeError with the first error response, and urllib3's HTTPError.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_send_all, kubeconfig, list(posts), threads).result()


def _send_all(kubeconfig: Path, posts: list[Post], threads: int) -> float:
    config = load_config(str(kubeconfig))
    url = urlsplit(config.host)
    context = config.server.tls_context(config.certificate)
    pool = urllib3.HTTPSConnectionPool(url.hostname or "", url.port, maxsize=threads, block=True, ssl_context=context)
    headers = {"Authorization": config.credentials.authorization() or "", "Content-Type": JSON}
    connected = threading.Barrier(threads)

    def connect(_number: int) -> None:
        pool.request("GET", "/version", headers=headers)
        connected.wait()

    def send(post: Post) -> None:
        answer = pool.request("POST", post.path, body=post.body, headers=headers, retries=False)
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{post.path}: {answer.status} {answer.data.decode(errors='replace')[:200]}")

    with pool, ThreadPoolExecutor(threads) as workers:
        list(workers.map(connect, range(threads)))
        begin = time.monotonic()
        list(workers.map(send, posts))
    return begin
