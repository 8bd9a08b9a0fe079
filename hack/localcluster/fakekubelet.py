"""A stand-in for the kubelets of a control plane that has no real nodes.

It creates Ready nodes, watches the pods that kube-scheduler binds to them, reports them as Running, ends them as its
`Behaviour` determines, and finishes deletions as a kubelet does (it reports the end of the containers and removes the
object). No container runs.

    with FakeKubelet(api, namespace="test-1", behaviour=lambda pod, attempt: Outcome(after_seconds=0.1, exit_code=1)):
        ...

Several of them can serve the same nodes if each has its own namespace.

Without a `behaviour`, the annotations of a pod determine its end (`RUN_SECONDS`, `EXIT_CODE`, `REASON`, `MESSAGE`). It
runs until it is deleted if it has none. The `restartPolicy` of the container and of the pod applies: containers that a
kubelet would restart are reported as restarted, with their count and last state, and `behaviour` is called again with
the next attempt.

Threads: one for the watch, one for timers, and `workers` for requests. All end with `stop`.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import urllib3

from localcluster import podstatus
from localcluster.api import STRATEGIC_MERGE_PATCH, Api, RefusedError
from localcluster.follower import Follower
from localcluster.podstatus import TERMINATED_BY_SIGTERM, Outcome
from localcluster.timer import Timer

RUN_SECONDS = "fake-kubelet/run-seconds"
# Several codes, separated by commas, are those of the containers of a pod in turn; the last one is repeated.
EXIT_CODE = "fake-kubelet/exit-code"
REASON = "fake-kubelet/reason"
MESSAGE = "fake-kubelet/message"

DEFAULT_NODES = ("fake-1", "fake-2")
DEFAULT_RESOURCES: Mapping[str, str] = {"cpu": "1000", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "100000"}
_RETRY_SECONDS = 0.2
_FINISHED = ("Succeeded", "Failed")

Object = dict[str, Any]
# Called by any worker thread with the pod and the number of restarts of its containers.
Behaviour = Callable[[Object, int], Outcome]

log = logging.getLogger(__name__)


def by_annotations(pod: Object, attempt: int) -> Outcome:
    """Returns the behaviour that the annotations of a pod request."""
    notes = pod["metadata"].get("annotations") or {}
    seconds, codes = notes.get(RUN_SECONDS), notes.get(EXIT_CODE, "0").split(",")
    return Outcome(
        after_seconds=None if seconds is None else float(seconds),
        exit_code=int(codes[min(attempt, len(codes) - 1)]),
        reason=notes.get(REASON, ""),
        message=notes.get(MESSAGE, ""),
    )


def make_node(
    api: Api, name: str, resources: Mapping[str, str] = DEFAULT_RESOURCES, labels: Mapping[str, str] | None = None
) -> None:
    """Creates a Ready node without a kubelet, or makes an existing one Ready. Raises RefusedError."""
    path = f"/api/v1/nodes/{name}"
    all_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all_labels}}
    if not api.create_if_missing("/api/v1/nodes", node):
        api.patch(path, {"metadata": {"labels": all_labels}})
    moment = podstatus.now()
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": moment}
    ready["lastTransitionTime"] = moment
    status = {"capacity": dict(resources), "allocatable": dict(resources), "conditions": [ready]}
    api.patch(f"{path}/status", {"status": status})
    # The server taints every new node as not ready, and nothing else removes the taint here.
    api.patch(path, {"spec": {"taints": None}})


class FakeKubelet:
    """A fake kubelet (see the module). An empty `namespace` means all. `start` returns at once."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str = "",
        nodes: Sequence[str] = DEFAULT_NODES,
        resources: Mapping[str, str] = DEFAULT_RESOURCES,
        behaviour: Behaviour = by_annotations,
        workers: int = 8,
    ) -> None:
        self._api = api
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._follower = Follower(api, path, self, {"fieldSelector": "spec.nodeName!=", "timeoutSeconds": "300"})
        self._timer = Timer("fake-kubelet-timer")
        self._nodes = tuple(nodes)
        self._resources = resources
        self._behaviour = behaviour
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="fake-kubelet-worker")
        self._addresses = itertools.count(1)
        # Pods that are or were served, by UID, and those that are being deleted.
        self._started: set[str] = set()
        self._ending: set[str] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Creates the nodes and starts. Raises RefusedError."""
        for node in self._nodes:
            make_node(self._api, node, self._resources)
        self._follower.start()
        self._timer.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ends all threads. The nodes stay, since others may use them."""
        self._stopping.set()
        self._follower.stop()
        self._timer.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # The methods of `localcluster.follower.Reader`.

    def list_begins(self) -> None:
        """Pods that were deleted during a gap are not forgotten, which costs only memory."""

    def take(self, change: str, pod: Object) -> None:
        if change == "DELETED":
            self._started.discard(pod["metadata"]["uid"])
            self._ending.discard(pod["metadata"]["uid"])
        else:
            self._look(pod)

    def list_ends(self, bookmark: Object) -> None: ...

    def _look(self, pod: Object) -> None:
        """Decides on a pod in the watch's thread; the workers send the requests."""
        if pod["spec"].get("nodeName") not in self._nodes:
            return
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending.add(uid)
                self._submit(self._finish_deletion, pod)
        elif uid not in self._started and pod.get("status", {}).get("phase") not in _FINISHED:
            self._started.add(uid)
            self._submit(self._run, pod, 0, None)

    def _run(self, pod: Object, attempt: int, last: Outcome | None) -> None:
        # Only pods with init containers can end in one of them.
        first = self._behaviour(pod, attempt) if pod["spec"].get("initContainers") else None
        if first is not None and podstatus.ends_in_init(pod, first):
            status = podstatus.initializing(pod, first)
        else:
            status = podstatus.running(pod, self._address(pod), attempt, last)
        if not self._report(pod, status):
            return
        outcome = first or self._behaviour(pod, attempt)
        if outcome.after_seconds is not None:
            pod = {**pod, "status": status}
            self._timer.later(outcome.after_seconds, lambda: self._submit(self._end, pod, attempt, outcome))

    def _end(self, pod: Object, attempt: int, outcome: Outcome) -> None:
        if pod["metadata"]["uid"] in self._ending:
            return
        if not outcome.pod_reason and not self._report(pod, podstatus.ended(pod, outcome)):
            return
        if _is_restarted(pod, outcome):
            self._run(pod, attempt + 1, outcome)
        else:
            self._report(pod, podstatus.terminated(pod, outcome))

    def _finish_deletion(self, pod: Object) -> None:
        if pod.get("status", {}).get("phase") not in _FINISHED:
            self._report(pod, podstatus.terminated(pod, Outcome(exit_code=TERMINATED_BY_SIGTERM)))
        uid = pod["metadata"]["uid"]
        self._try(lambda: self._api.delete(_path(pod), gracePeriodSeconds=0, preconditions={"uid": uid}))

    def _report(self, pod: Object, status: Object) -> bool:
        """Writes the status of this pod; returns False if it is deleted or was recreated.

        Like a kubelet, it keeps conditions that other programs have set, such as DisruptionTarget.
        """
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        return self._try(lambda: self._api.patch(f"{_path(pod)}/status", body, STRATEGIC_MERGE_PATCH))

    def _try(self, request: Callable[[], object]) -> bool:
        """Retries until the server responds; returns False for a permanent error."""
        while not self._stopping.is_set():
            try:
                request()
            except RefusedError as failure:
                if failure.status in (404, 409, 422):
                    return False
            except (urllib3.exceptions.HTTPError, OSError) as error:
                log.debug("fake kubelet: no response: %s", error)
            else:
                return True
            self._stopping.wait(_RETRY_SECONDS)
        return False

    def _address(self, pod: Object) -> str:
        """Returns the address of the pod, which stays the same when its containers restart."""
        known = pod.get("status", {}).get("podIP")
        number = next(self._addresses)
        return known or f"10.{100 + number // 65536 % 100}.{number // 256 % 256}.{number % 256}"

    def _submit(self, task: Callable[..., None], *arguments: object) -> None:
        if not self._stopping.is_set():
            self._pool.submit(self._guarded, task, *arguments)

    def _guarded(self, task: Callable[..., None], *arguments: object) -> None:
        """Reports an exception of the caller's behaviour, which must not end the worker unnoticed."""
        try:
            task(*arguments)
        except Exception:
            log.exception("fake kubelet: a pod could not be served")


def _is_restarted(pod: Object, outcome: Outcome) -> bool:
    """Reports whether a kubelet restarts a container that has ended, as pkg/kubelet/container/helpers.go decides."""
    spec = pod["spec"]
    ended = [
        each
        for each in (*spec.get("initContainers", ()), *spec["containers"])
        if outcome.container == each["name"] or (not outcome.container and each in spec["containers"])
    ]
    policy = spec.get("restartPolicy", "Always")
    return not outcome.pod_reason and any(_restarts(each, policy, outcome.exit_code) for each in ended)


def _restarts(container: Object, pod_policy: str, exit_code: int) -> bool:
    """Applies the rules and the policy of the container (since Kubernetes 1.35), then the policy of the pod."""
    rules = container.get("restartPolicyRules") or ()
    if any(rule["action"] == "Restart" and exit_code in rule["exitCodes"]["values"] for rule in rules):
        return True
    policy = container.get("restartPolicy") or pod_policy
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
