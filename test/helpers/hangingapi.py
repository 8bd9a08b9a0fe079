"""A real HTTP server in front of an API server in memory, which does not answer requests of some namespaces."""

from __future__ import annotations

import threading
from collections.abc import Collection

from helpers.httpserver import Answer, HttpServer, Request
from helpers.jobserver import served
from helpers.memoryapi import MemoryApi


class HangingApi(HttpServer):
    """Use as a context manager. Writes in the namespaces of `hanging` get no answer before `release`."""

    def __init__(self, *hanging: str) -> None:
        super().__init__(self._answer_for)
        self.api = MemoryApi()
        self._hanging: Collection[str] = hanging
        self._released = threading.Event()

    def __exit__(self, *exc: object) -> None:
        self.release()
        super().__exit__(*exc)

    def release(self) -> None:
        """Answer what hangs, and all later requests at once."""
        self._released.set()

    def writes(self, namespace: str) -> int:
        """Returns how many writes have come, answered or not."""
        return sum(sent.method == "PATCH" and _namespace_of(sent) == namespace for sent in self.requests)

    def _answer_for(self, request: Request) -> Answer:
        if request.method == "PATCH" and _namespace_of(request) in self._hanging:
            self._released.wait()
        return served(self.api, request)


def _namespace_of(request: Request) -> str:
    return request.path.partition("/namespaces/")[2].partition("/")[0]
