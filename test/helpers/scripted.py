"""A `Requester` with scripted responses, and a clock whose sleeps take no time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from helpers.answering import Answering, Lines, Request
from helpers.fakeclock import FakeClock
from tfjob_controller.kube.errors import ApiError

# The next step of a stream: a line, an error, or a function of the test, after which it continues.
Step: TypeAlias = bytes | ApiError | Callable[[], None]
# The response to a request: a body, the steps of a stream, or an error.
Answer: TypeAlias = bytes | list[Step] | ApiError


class PatientClock(FakeClock):
    """Sleeps take no time, but move the clock by their duration; `slept` records them.

    `on_sleep` is called before each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float, stop: threading.Event) -> bool:
        self.on_sleep()
        self.slept.append(seconds)
        self.advance(seconds)
        return stop.is_set()


class ScriptedLines(Lines):
    """A stream that ends after its last step."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self._steps = steps

    def __iter__(self) -> Iterator[bytes]:
        for step in self._steps:
            if self.is_closed:
                return
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, ApiError):
                raise step
            else:
                step()


class ScriptedRequester(Answering):
    """Responds to each call from its script, records the calls, and reports the end of the script.

    `asked` has the query of each call, `accepted` the content type of each stream. After the last response it calls
    `at_end` (usually to stop the tested object) and raises an error.
    """

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self._answers = [*answers]
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.accepted: list[str] = []
        self.at_end: Callable[[], None] = lambda: None

    def answer(self, request: Request) -> bytes:
        answer = self._next(request.path, request.query)
        assert isinstance(answer, bytes), f"the script has no body for this call: {answer}"
        return answer

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        read_timeout_seconds: float,
        max_line_bytes: int = 0,
        accept: str = "",
    ) -> ScriptedLines:
        self.accepted.append(accept)
        answer = self._next(path, query)
        assert isinstance(answer, list), f"the script has no stream for this call: {answer!r}"
        return ScriptedLines(answer)

    def _next(self, path: str, query: Mapping[str, str]) -> Answer:
        if not self._answers:
            self.at_end()
            raise ApiError(0, "EndOfScript", "the script is over")
        self.asked.append(dict(query))
        self.paths.append(path)
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


class FedRequester(Answering):
    """Streams the lines that the test feeds, for threads that should block in a read.

    Lines that are fed while no stream is open go to the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.opened = 0

    def feed(self, *lines: bytes) -> None:
        for fed in lines:
            self._lines.put(fed)

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> _FedLines:
        self.opened += 1
        return _FedLines(self._lines)


class _FedLines(Lines):
    """A stream that ends when it is closed, also while a thread waits for its next line."""

    def __init__(self, lines: queue.SimpleQueue[object]) -> None:
        super().__init__()
        self._queue = lines

    def __iter__(self) -> Iterator[bytes]:
        # A stream is woken by itself when it is closed; the mark of another stream is skipped.
        while (fed := self._queue.get()) is not self:
            if isinstance(fed, bytes):
                yield fed

    def close(self) -> None:
        self._queue.put(self)
