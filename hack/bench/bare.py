"""The baseline of everything that creates: the same bodies, made beforehand, posted by threads that do nothing else."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tfjob_controller.kube.config import load_config


class Post(NamedTuple):
    path: str
    body: bytes


def posts(path: str, objects: Iterable[Any]) -> list[Post]:
    """One for each object."""
    return [Post(path, msgspec.json.encode(obj)) for obj in objects]


def post_all(kubeconfig: Path, wanted: Sequence[Post], threads: int) -> float:
    """Seconds from the first POST to the last answer, by so many threads with a connection each.

    Connections are opened before: whoever posts for long has them.
    """
    config = load_config(str(kubeconfig))
    pool = config.open_pool(threads, block=True)
    headers = {"Authorization": config.credentials.authorization() or "", "Content-Type": "application/json"}
    pile = deque(wanted)
    failures: list[str] = []
    ready = threading.Barrier(threads + 1)

    def work() -> None:
        pool.request("GET", "/version", headers=headers)
        ready.wait()
        while pile and not failures:
            try:
                post = pile.popleft()
            except IndexError:
                return
            answer = pool.request("POST", post.path, body=post.body, headers=headers, retries=False)
            if answer.status != 201:
                failures.append(f"{post.path}: {answer.status} {answer.data.decode(errors='replace')[:200]}")

    workers = [threading.Thread(target=work, name=f"bare-{number}") for number in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    begin = time.monotonic()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - begin
    pool.close()
    if failures:
        raise RuntimeError(failures[0])
    return seconds
