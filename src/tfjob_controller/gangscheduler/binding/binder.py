"""Posts Bindings concurrently, gang by gang, and each until its outcome is known.

Theory of operation. Pods wait in one queue in the order of their submission, and a few threads take the next one. All
pods of a gang are therefore in flight or done before the next gang begins, which keeps the time short in which a gang
is partly bound. A pod that must be retried waits in a second queue, ordered by time, and occupies no thread: a pod that
an admission webhook rejects does not delay others.

A Binding is not idempotent: a second one for the same pod and node gets 409. After every response that leaves the
outcome open (none, 5xx, 429, 409) the pod is read; its uid and node show whether it is bound as requested, bound
elsewhere, deleted, or to be retried until `deadline_seconds` are over. The uid in each Binding protects a new pod of
the same name.

Seconds may pass between a gang's first Binding and its last, or between two attempts, in which a node changes. The
submitter may therefore reject each Binding before it is posted.

Threads: `submit` may be called from any; results are delivered in the binder's own threads.
Source: kubernetes pkg/registry/core/pod/storage/storage.go (BindingREST), apimachinery pkg/api/errors.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from tfjob_controller.api.common.core import PODS, Pod
from tfjob_controller.gangscheduler.bindrequests import POD_DELETED, STOPPING, BindRequest
from tfjob_controller.kube.codec import encode
from tfjob_controller.kube.errors import NO_RESPONSE, ApiError
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.trace import new_trace
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread, SupervisedThreads

log = structlog.get_logger(__name__)

# Enough to keep an API server on the same machine busy.
THREADS = 16
# Longer than the restart of an API server, shorter than the time without progress that rejects an attempt.
DEADLINE_SECONDS = 40.0
# Without a response by then, the pod is read.
REQUEST_TIMEOUT_SECONDS = 10.0
_BACKOFF_BASE_SECONDS = 0.1
_BACKOFF_CAP_SECONDS = 5.0

# Called once for each pod. An empty text means that the pod is bound.
OnResult = Callable[[BindRequest, str], None]
# Called before a Binding is posted, in the binder's threads: the reason not to post it, or an empty text.
RejectBinding = Callable[[BindRequest], str]


# Observes the outcomes of Bindings, in the binder's threads. The result is bound, gone, elsewhere, refused, late or
# stopped; the seconds count from the first attempt.
ObserveBinding = Callable[[str, float], None]
# The result as a metric label, and the error for the bind call.
_Outcome = tuple[str, str]
_BOUND: _Outcome = ("bound", "")


@dataclass(slots=True)
class _Task:
    pod: BindRequest
    on_result: OnResult
    rejection: RejectBinding
    deadline: float
    backoff: DecorrelatedBackoff
    is_repeated: bool = False


class Binder:
    """Posts Bindings. Each submitted pod gets exactly one result."""

    def __init__(
        self,
        requester: Requester,
        clock: Clock,
        *,
        threads: int = THREADS,
        deadline_seconds: float = DEADLINE_SECONDS,
        observe: ObserveBinding = lambda result, seconds: None,
    ) -> None:
        self._requester = requester
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._observe = observe
        self._rng = random.Random()  # noqa: S311 - spreads load, guards nothing
        self._changed = threading.Condition()  # guards the queues
        self._ready: deque[_Task] = deque()
        # Due time, number and task: the number orders tasks of the same time.
        self._delayed: list[tuple[float, int, _Task]] = []
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._threads = SupervisedThreads(
            [
                SupervisedThread(f"binder-{number}", self._work, stop=self._stop, clock=clock)
                for number in range(threads)
            ],
            clock,
        )

    @property
    def restarts(self) -> int:
        """How often its threads were restarted."""
        return sum(self._threads.restarts().values())

    def start(self) -> None:
        self._threads.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Post nothing more and stop the threads. Bindings that were not posted get an error."""
        with self._changed:
            self._stop.set()
            left = [*self._ready, *(task for *_, task in self._delayed)]
            self._ready.clear()
            self._delayed.clear()
            self._changed.notify_all()
        for task in left:
            self._end(task, "stopped", STOPPING)
        return self._threads.join(timeout_seconds)

    def submit(self, pods: Sequence[BindRequest], on_result: OnResult, rejection: RejectBinding = lambda _: "") -> None:
        """Queue the pods. Neither callback may raise or block."""
        deadline = self._clock.monotonic() + self._deadline_seconds
        tasks = [_Task(pod, on_result, rejection, deadline, self._new_backoff()) for pod in pods]
        with self._changed:
            is_stopped = self._stop.is_set()
            if not is_stopped:
                self._ready.extend(tasks)
                self._changed.notify(len(tasks))
        for task in tasks if is_stopped else ():
            self._end(task, "stopped", STOPPING)

    def _new_backoff(self) -> DecorrelatedBackoff:
        return DecorrelatedBackoff(
            self._clock, self._rng, base_seconds=_BACKOFF_BASE_SECONDS, cap_seconds=_BACKOFF_CAP_SECONDS
        )

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                with new_trace(task.pod.key):
                    self._attempt(task)
            except Exception as error:
                # A programming error: the bind call gets an error, and the thread is restarted.
                self._end(task, "refused", f"internal error: {error!r}")
                raise

    def _next(self) -> _Task | None:
        """Wait for the next task. Returns None on stop."""
        with self._changed:
            while not self._stop.is_set():
                now = self._clock.monotonic()
                # Retries go first, because their gangs may be partly bound.
                if self._delayed and self._delayed[0][0] <= now:
                    return heapq.heappop(self._delayed)[-1]
                if self._ready:
                    return self._ready.popleft()
                self._clock.wait(self._changed, self._delayed[0][0] - now if self._delayed else None)
        return None

    def _attempt(self, task: _Task) -> None:
        try:
            outcome = self._read_outcome(task.pod) if task.is_repeated else None
            if outcome is None and (rejection := task.rejection(task.pod)):
                outcome = "refused", rejection
            if outcome is None:
                self._post(task.pod)
                outcome = _BOUND
        except ApiError as error:
            self._failed(task, error)
            return
        self._end(task, *outcome)

    def _failed(self, task: _Task, error: ApiError) -> None:
        if error.is_not_found:
            self._end(task, "gone", POD_DELETED)
        elif not (error.is_retryable or error.is_conflict or error.is_unauthorized):
            self._end(task, "refused", f"the API server refused the Binding: {error}")
        elif error.is_conflict and not task.is_repeated:
            task.is_repeated = True
            self._attempt(task)
        else:
            self._rest(task, error)

    def _rest(self, task: _Task, error: ApiError) -> None:
        task.is_repeated = True
        now = self._clock.monotonic()
        due = now + task.backoff.next_seconds(at_least=error.retry_after_seconds or 0.0)
        if due >= task.deadline:
            self._end(task, "late", f"the Binding did not succeed in time: {error}")
            return
        log.info("binding failed, retrying", key=task.pod.key, uid=task.pod.uid, error=str(error))
        with self._changed:
            is_stopped = self._stop.is_set()
            if not is_stopped:
                heapq.heappush(self._delayed, (due, next(self._numbers), task))
                self._changed.notify()
        if is_stopped:
            self._end(task, "stopped", STOPPING)

    def _post(self, pod: BindRequest) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": pod.node},
        }
        self._requester.request(
            "POST",
            PODS.path(pod.namespace, pod.name, "binding"),
            body=encode(body),
            timeout_seconds=REQUEST_TIMEOUT_SECONDS,
            retry=False,
        )

    def _read_outcome(self, pod: BindRequest) -> _Outcome | None:
        """Read the pod's outcome. Returns None if it is still unbound. Raises ApiError."""
        body = self._requester.request(
            "GET", PODS.path(pod.namespace, pod.name), timeout_seconds=REQUEST_TIMEOUT_SECONDS, retry=False
        )
        try:
            live = PODS.decode(body)
        except msgspec.MsgspecError as error:
            raise ApiError(NO_RESPONSE, "InvalidAnswer", f"the response is not a Pod: {error}") from error
        return _outcome_of(pod, live)

    def _end(self, task: _Task, result: str, error: str) -> None:
        if error:
            log.warning("pod not bound", key=task.pod.key, uid=task.pod.uid, result=result, error=error)
        begin = task.deadline - self._deadline_seconds
        self._observe(result, self._clock.monotonic() - begin)
        task.on_result(task.pod, error)


def _outcome_of(pod: BindRequest, live: Pod) -> _Outcome | None:
    if live.metadata.uid != pod.uid:
        return "gone", POD_DELETED
    if live.spec.node_name == pod.node:
        return _BOUND
    if live.spec.node_name:
        return "elsewhere", "the pod is bound to another node"
    return ("gone", POD_DELETED) if live.metadata.deletion_timestamp else None
