"""The machine with everything that it needs in order to act: a lock, a clock, a binder, and somebody to tell.

Theory of operation. Bind calls come from the server's thread, placements from the admission loop's, results from the
binder's, and a thread of the gate's own looks a few times in a second at what has become due. Each takes the lock, asks
the machine what is to be done, and does it without the lock: no callback runs under it, so that none can deadlock. All
of it is short: answers and give-ups are handed over, Bindings are piled up.

Order between the outputs of two threads does not matter: each call is answered once, each attempt given up at most
once, and a Binding that comes late is judged by its gang, attempt and uid.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from tfjob_controller.gangscheduler.bindrequests import STOPPING, BindRequest, GangMember
from tfjob_controller.gangscheduler.permit.machine import PermitMachine, PermitStatistics
from tfjob_controller.gangscheduler.permit.members import (
    AttemptRejected,
    BindResponse,
    GangBound,
    PermitOutput,
    PermitPhase,
    PostBindings,
)
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

# Against time-outs of many seconds; and twice in a second costs nothing.
TICK_SECONDS = 0.5
# kube-scheduler gives a call up after its httpTimeout. An answer that comes before lets it know why.
HTTP_TIMEOUT_FRACTION = 0.8

# Gets an error, or an empty text for success. May be called in any thread, and must only hand over.
OnResponse = Callable[[str], None]


class BindingSubmitter(Protocol):
    """What the gate needs of a binder."""

    def submit(self, pods: Sequence[BindRequest], on_result: Callable[[BindRequest, str], None]) -> None: ...


class AttemptListener(Protocol):
    """Is told what became of an attempt, in any thread and under no lock; must only take note."""

    def gang_bound(self, gang: str, attempt: int) -> None:
        """Every placed member is bound: the phase is Bound."""

    def attempt_rejected(self, gang: str, attempt: int) -> None:
        """The attempt is over, and nothing is bound for it any more: the phase is Waiting."""


class Permit:
    """Lets the members of a gang through together. Safe to use from any thread."""

    def __init__(
        self,
        binder: BindingSubmitter,
        listener: AttemptListener,
        clock: Clock,
        *,
        http_timeout_seconds: float,
        bind_timeout_seconds: float,
    ) -> None:
        """`http_timeout_seconds` is the httpTimeout of kube-scheduler's configuration for this extender."""
        self._machine = PermitMachine(
            call_timeout_seconds=HTTP_TIMEOUT_FRACTION * http_timeout_seconds, bind_timeout_seconds=bind_timeout_seconds
        )
        self._binder = binder
        self._listener = listener
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[int, OnResponse] = {}
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._thread = SupervisedThread("permit", self._run, stop=self._stop, clock=clock)

    @property
    def restarts(self) -> int:
        """How often its thread has died and was started again."""
        return self._thread.restarts

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 2.0) -> bool:
        """Answer every parked call with an error; later ones are refused."""
        self._stop.set()
        with self._lock:
            outputs = self._machine.stop()
        self._do(outputs)
        return self._thread.join(timeout_seconds)

    def request_bind(self, who: GangMember, pod: BindRequest, on_response: OnResponse) -> None:
        """A member's bind call; answered once, now or later."""
        with self._lock:
            outputs: list[PermitOutput] = []
            is_stopped = self._stop.is_set()
            if not is_stopped:
                call = next(self._numbers)
                self._answers[call] = on_response
                outputs = self._machine.request_bind(call, who, pod, self._clock.monotonic())
        if is_stopped:
            on_response(STOPPING)
        self._do(outputs)

    def bind_single(self, pod: BindRequest, on_response: OnResponse) -> None:
        """Bind a pod that belongs to no gang."""
        self._binder.submit([pod], lambda _, error: on_response(error))

    def set_placement(
        self,
        gang: str,
        attempt: int,
        nodes: Mapping[str, str],
        *,
        bound: Mapping[str, str] | None = None,
        was_bound: bool = False,
    ) -> None:
        """See `Barrier.expect`. To be called before `filter` can answer the first member's node."""
        with self._lock:
            outputs = self._machine.set_placement(
                gang, attempt, nodes, self._clock.monotonic(), bound=bound, was_bound=was_bound
            )
        self._do(outputs)

    def forget(self, gang: str) -> None:
        """The gang is not admitted any more, or gone."""
        with self._lock:
            outputs = self._machine.forget(gang)
        self._do(outputs)

    def reassign(self, gang: str, nodes: Mapping[str, str]) -> set[str]:
        """See `Barrier.move`."""
        with self._lock:
            outputs, moved = self._machine.reassign(gang, nodes)
        self._do(outputs)
        return moved

    def reject(self, gang: str) -> bool:
        """Post nothing more for this gang. False while Bindings are under way: the listener hears when they have ended.

        Its room must not be given to others before: what is under way may still be bound.
        """
        with self._lock:
            outputs = self._machine.reject(gang)
            is_over = not self._machine.has_bindings_in_flight(gang)
        self._do(outputs)
        return is_over

    def remove_pod(self, gang: str, member: str, uid: str) -> None:
        """The member's pod is deleted, finished, or to be deleted."""
        with self._lock:
            outputs = self._machine.remove_pod(gang, member, uid)
        self._do(outputs)

    def note_progress(self, gang: str) -> None:
        """A pod of the gang was created."""
        with self._lock:
            self._machine.note_progress(gang, self._clock.monotonic())

    def tick(self) -> None:
        """Look at what is due; the gate's own thread does, twice in a second."""
        with self._lock:
            outputs = self._machine.tick(self._clock.monotonic())
        self._do(outputs)

    def missing(self, gang: str) -> tuple[str, ...]:
        """The placed members of which no pod has come."""
        with self._lock:
            return self._machine.missing(gang)

    def phase(self, gang: str) -> PermitPhase | None:
        with self._lock:
            return self._machine.phase(gang)

    def statistics(self) -> PermitStatistics:
        with self._lock:
            return self._machine.statistics()

    def _run(self) -> None:
        while not self._clock.sleep(TICK_SECONDS, self._stop):
            self.tick()

    def _result(self, gang: str, attempt: int, member: str, pod: BindRequest, error: str) -> None:
        with self._lock:
            outputs = self._machine.record_result(gang, attempt, member, pod.uid, error, self._clock.monotonic())
        self._do(outputs)

    def _do(self, outputs: Sequence[PermitOutput]) -> None:
        for output in outputs:
            if isinstance(output, BindResponse):
                self._answers.pop(output.call)(output.error)
            elif isinstance(output, PostBindings):
                self._submit(output)
            elif isinstance(output, GangBound):
                log.info("gang bound", key=output.gang, attempt=output.attempt)
                self._listener.gang_bound(output.gang, output.attempt)
            elif isinstance(output, AttemptRejected):
                # For want of progress, or because its owner suspended or deleted it: the status says which.
                log.info("attempt over", key=output.gang, attempt=output.attempt)
                self._listener.attempt_rejected(output.gang, output.attempt)

    def _submit(self, output: PostBindings) -> None:
        members = {pod: member for member, pod in output.pods}

        def on_result(pod: BindRequest, error: str) -> None:
            self._result(output.gang, output.attempt, members[pod], pod, error)

        self._binder.submit([*members], on_result)
