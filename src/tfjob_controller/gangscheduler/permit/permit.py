"""Permit with a lock, a thread and a clock: runs the state machine of `machine`.

Theory of operation. Bind calls come from the server's thread, placements from the admission loop's, outcomes from the
binder's, and a thread of its own handles timeouts twice per second. Each takes the lock, asks the state machine for the
outputs, and carries them out without the lock. No callback runs under the lock, so none can deadlock. All of it is
short: responses and rejections are handed over, and Bindings are queued.

The order between outputs of two threads does not matter: each call is answered once, each attempt is rejected at most
once, and a late Binding is judged by its gang, attempt and uid.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence

import structlog

from tfjob_controller.gangscheduler.bindrequests import STOPPING, BindRequest, GangMember
from tfjob_controller.gangscheduler.permit.machine import PermitMachine, PermitStatistics
from tfjob_controller.gangscheduler.permit.members import (
    AttemptRejected,
    BindResponse,
    GangBound,
    PermitOutput,
    PostBindings,
)
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

# The timeouts are many seconds long.
TICK_SECONDS = 0.5
# Fraction of kube-scheduler's httpTimeout after which a call is answered, so that kube-scheduler learns the reason.
HTTP_TIMEOUT_FRACTION = 0.8

# Receives an error, or an empty text for success. Called in any thread; it must only hand over.
OnResponse = Callable[[str], None]
# Node by member.
Nodes = Mapping[str, str]
# Binds pods and calls back with each pod and its error: `binding.prebind.PreBindCheck.submit`.
SubmitBindings = Callable[[Sequence[BindRequest], Callable[[BindRequest, str], None]], None]


class Permit:
    """Allows the members of a gang together, or rejects the attempt. Safe to use from any thread."""

    def __init__(
        self,
        submit_bindings: SubmitBindings,
        state: SharedState,
        clock: Clock,
        *,
        http_timeout_seconds: float,
        bind_timeout_seconds: float,
        admitted_timeout_seconds: float,
    ) -> None:
        """`http_timeout_seconds` is the httpTimeout of kube-scheduler's configuration for this extender."""
        self._machine = PermitMachine(
            call_timeout_seconds=HTTP_TIMEOUT_FRACTION * http_timeout_seconds,
            bind_timeout_seconds=bind_timeout_seconds,
            admitted_timeout_seconds=admitted_timeout_seconds,
        )
        self._submit_bindings = submit_bindings
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[int, OnResponse] = {}
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._thread = SupervisedThread("permit", self._run, stop=self._stop, clock=clock)

    @property
    def restarts(self) -> int:
        """How often its thread was restarted."""
        return self._thread.restarts

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 2.0) -> bool:
        """Answer every waiting call with an error; later calls are rejected."""
        self._stop.set()
        self._do(self._machine.stop)
        return self._thread.join(timeout_seconds)

    def request_bind(self, member: GangMember, pod: BindRequest, on_response: OnResponse) -> None:
        """Handle a member's bind call, which is answered once, now or later."""
        with self._lock:
            outputs: list[PermitOutput] = []
            is_stopped = self._stop.is_set()
            if not is_stopped:
                call = next(self._numbers)
                self._answers[call] = on_response
                outputs = self._machine.request_bind(call, member, pod, self._clock.monotonic())
        if is_stopped:
            on_response(STOPPING)
        self._carry_out(outputs)

    def bind_single(self, pod: BindRequest, on_response: OnResponse) -> None:
        """Bind a pod that belongs to no gang."""
        self._submit_bindings([pod], lambda _, error: on_response(error))

    def set_placement(
        self, gang: str, attempt: int, nodes: Nodes, *, bound: Mapping[str, str] | None = None, was_bound: bool = False
    ) -> None:
        """See `PermitMachine.set_placement`. Must precede the first member's `filter`."""
        self._do(
            lambda: self._machine.set_placement(
                gang, attempt, nodes, self._clock.monotonic(), bound=bound, was_bound=was_bound
            )
        )

    def forget(self, gang: str) -> None:
        """Forget a gang that is not admitted any more."""
        self._do(lambda: self._machine.forget(gang))

    def reassign(self, gang: str, nodes: Nodes) -> set[str]:
        """See `PermitMachine.reassign`."""
        with self._lock:
            outputs, reassigned = self._machine.reassign(gang, nodes)
        self._carry_out(outputs)
        return reassigned

    def reject(self, gang: str) -> bool:
        """Post nothing more for this gang. Returns False while Bindings are in flight; their end notifies the loop.

        The gang's reservations must be kept until then, because these Bindings may still succeed.
        """
        with self._lock:
            outputs = self._machine.reject(gang)
            is_over = not self._machine.has_bindings_in_flight(gang)
        self._carry_out(outputs)
        return is_over

    def remove_pod(self, gang: str, member: str, uid: str) -> None:
        """Handle a member's pod that is deleted, finished or being deleted."""
        self._do(lambda: self._machine.remove_pod(gang, member, uid))

    def note_progress(self, gang: str, attempt: int, member: str) -> None:
        """See `PermitMachine.note_progress`."""
        with self._lock:
            self._machine.note_progress(gang, attempt, member, self._clock.monotonic())

    def has_progress(self, gang: str) -> bool:
        """See `PermitMachine.has_progress`."""
        with self._lock:
            return self._machine.has_progress(gang)

    def tick(self) -> None:
        """Handle timeouts; the own thread calls it twice per second."""
        self._do(lambda: self._machine.tick(self._clock.monotonic()))

    def statistics(self) -> PermitStatistics:
        with self._lock:
            return self._machine.statistics()

    def _run(self) -> None:
        while not self._clock.sleep(TICK_SECONDS, self._stop):
            self.tick()

    def _do(self, transition: Callable[[], Sequence[PermitOutput]]) -> None:
        with self._lock:
            outputs = transition()
        self._carry_out(outputs)

    def _carry_out(self, outputs: Sequence[PermitOutput]) -> None:
        for output in outputs:
            if isinstance(output, BindResponse):
                self._answers.pop(output.call)(output.error)
            elif isinstance(output, PostBindings):
                self._submit(output)
            elif isinstance(output, GangBound):
                log.info("gang bound", key=output.gang, attempt=output.attempt)
                self._state.enqueue(output.gang)
            elif isinstance(output, AttemptRejected):
                # Because of a timeout, or because the gang was suspended or deleted; the status has the reason.
                log.info("attempt rejected", key=output.gang, attempt=output.attempt)
                self._state.attempt_rejected(output.gang, output.attempt)

    def _submit(self, output: PostBindings) -> None:
        members = {pod: member for member, pod in output.pods}

        def on_result(pod: BindRequest, error: str) -> None:
            self._do(
                lambda: self._machine.record_result(
                    output.gang, output.attempt, members[pod], pod.uid, error, self._clock.monotonic()
                )
            )

        self._submit_bindings([*members], on_result)
