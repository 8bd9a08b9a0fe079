"""A request to an API server that is held back until the test lets it go on."""

from __future__ import annotations

import threading

from helpers.answering import Request

TIMEOUT_SECONDS = 60.0


class HeldRequest:
    """The hook of a fault: `before` the request is processed, or `after` that."""

    def __init__(self) -> None:
        self._has_come, self._go_on = threading.Event(), threading.Event()

    def __call__(self, _: Request) -> None:
        self._has_come.set()
        assert self._go_on.wait(TIMEOUT_SECONDS)

    def await_request(self) -> None:
        assert self._has_come.wait(TIMEOUT_SECONDS)

    def release(self) -> None:
        self._go_on.set()
