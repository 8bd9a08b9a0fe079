"""The controller without threads: an API server in memory, caches fed by it, and `sync` called by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from helpers.fakeclock import FakeClock
from helpers.manifests import tfjob
from helpers.memoryapi import MemoryApi, Object, Watcher
from tfjob_controller.api.common.core import decode_scale
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.jobhistory import NO_HISTORY
from tfjob_controller.controller.outcome import Outcome, RequeueAfter
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.reporter import MAX_DEBOUNCE_SECONDS
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.kinds.tfjob.kind import TFJobAdapter, TFJobCaches
from tfjob_controller.kube.cache.informer import Informer
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import key_of, version_of
from tfjob_controller.util.timestamps import format_time

NAMESPACE = "team"
TFJOB_PATH = f"/apis/kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/tfjobs"
JOB_PATH = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
SERVICE_PATH = f"/api/v1/namespaces/{NAMESPACE}/services"
POD_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
GANG_PATH = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/gangs"
CONFIG_MAP_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
KEY = f"{NAMESPACE}/example-job"


class Counted:
    """A JobObserver that records its calls."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def job_created(self, kind: str, namespace: str) -> None:
        self.said.append(("created",))

    def job_running(self, seconds_since_creation: float) -> None:
        self.said.append(("running", seconds_since_creation))

    def job_restarted(self, kind: str, namespace: str, restarts: int) -> None:
        self.said.append(("restarted", restarts))

    def job_preempted(self) -> None:
        self.said.append(("preempted",))

    def job_resized(self, direction: str, reason: str) -> None:
        self.said.append(("resized", direction, reason))

    def checkpoints_saved(self, count: int) -> None:
        self.said.append(("checkpoints saved", count))

    def checkpoints_failed(self, count: int) -> None:
        self.said.append(("checkpoints failed", count))

    def steps_repeated(self, count: int) -> None:
        self.said.append(("steps repeated", count))

    def job_finished(self, kind: str, namespace: str, state: str, seconds_since_start: float | None) -> None:
        self.said.append(("finished", state, seconds_since_start))

    def job_deleted(self, kind: str, namespace: str) -> None:
        self.said.append(("deleted",))


class Recorded:
    """A Recorder that keeps the events, each with the number of requests that had been sent before."""

    def __init__(self, api: MemoryApi, kind: str = "TFJob") -> None:
        self._api = api
        self._kind = kind
        self.events: list[tuple[str, str, str]] = []
        self.requests_before: list[int] = []

    def event(self, regarding: Any, type_: str, reason: str, note: str, action: str = "") -> None:
        assert regarding.kind == self._kind
        assert regarding.uid
        self.events.append((type_, reason, note))
        self.requests_before.append(len(self._api.sent))


def settled(api: MemoryApi, sync: Callable[[], Outcome], limit: int = 20) -> Outcome:
    """Syncs until a sync sends no request; returns its result."""
    for _ in range(limit):
        before = len(api.sent)
        outcome = sync()
        if len(api.sent) == before:
            return outcome
    raise AssertionError(f"still writing after {limit} syncs: {api.sent[-3:]}")


def confirm_suspension(api: MemoryApi, kind: str, job: Object) -> None:
    """Writes the condition of a suspended child Job, as the Job controller does."""
    is_shown = bool(job.get("status", {}).get("conditions"))
    if kind != "DELETED" and job.get("spec", {}).get("suspend") and not is_shown:
        said = {"conditions": [{"type": "Suspended", "status": "True"}]}
        api.change(f"{JOB_PATH}/{job['metadata']['name']}", {"status": said})


class ControllerBench:
    """See the module. `helpers` is the number of writer threads; with 0, writes are sent one after another."""

    def __init__(self, helpers: int = 0, gangs: GangPolicy = NO_GANGS) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        of_backend = gangs.backend.resource if gangs.backend is not None else None
        self.caches = ControllerCaches(self.api, "", self.clock, pod_groups=of_backend)
        self.tfjobs = TFJobCaches(self.api, "", self.clock)
        self.recorder = Recorded(self.api)
        self.counted = Counted()
        self.fanout = Fanout(helpers)
        self.is_busy = False
        self.gangs = gangs
        # The newest warnings by the UIDs of pods and Jobs.
        self.warnings: dict[str, str] = {}
        # Of the next `new_reconciler`.
        self.history = NO_HISTORY
        self.reconciler = self.new_reconciler()
        for name in ("tfjobs", "jobs", "services", "pods", "configmaps", "gangs"):
            self.api.watch(name, self._watcher(name))
        if of_backend is not None:
            self.api.watch(of_backend.plural, self._watcher(of_backend.plural))
        self.api.watch("jobs", lambda kind, obj: confirm_suspension(self.api, kind, obj))

    def new_reconciler(self) -> Reconciler[TFJob]:
        """Returns the reconciler of a restarted process, without any state of the first one."""
        store = self.tfjobs.jobs.store
        kind = TFJobAdapter(store, ControllerConfig(), random.Random(1), restart_rules=True, gangs=self.gangs)
        return Reconciler(
            kind,
            ResourceClient(self.api, TFJOBS),
            store,
            self.caches.snapshots(),
            self.caches.writer(self.fanout),
            self.recorder,
            self.counted,
            self.clock,
            is_busy=lambda: self.is_busy,
            scales=ResourceClient(self.api, TFJOBS.with_decoder(decode_scale)),
            warnings_of=lambda namespace, uids: {uid: self.warnings[uid] for uid in uids if uid in self.warnings},
            history=self.history,
        )

    def create(self, *replica_specs: Any, **spec: Any) -> Object:
        return self.api.put(TFJOB_PATH, tfjob(*replica_specs, **spec))

    def sync(self) -> Outcome:
        return self.reconciler.sync(KEY)

    def settle(self, limit: int = 20) -> Outcome:
        """Syncs until a sync sends no request."""
        return settled(self.api, self.sync, limit)

    def settle_minor(self) -> None:
        """As `settle`, after the delay of minor writes has passed."""
        if isinstance(self.settle(), RequeueAfter):
            self.clock.advance(MAX_DEBOUNCE_SECONDS)
            self.settle()

    @property
    def job(self) -> Object:
        return self.api.objects[f"{TFJOB_PATH}/example-job"]

    @property
    def status(self) -> Object:
        status: Object = self.job.get("status", {})
        return status

    @property
    def runtime_id(self) -> str:
        return str(self.job["spec"]["RuntimeId"])

    def child(self, replica: str) -> str:
        """Returns the name of the Job and Service of a replica such as `worker-0`."""
        role, _, index = replica.partition("-")
        return f"example-job-{role}-{self.runtime_id}-{index}"

    def runs(self, replica: str) -> None:
        """The replica's pod exists and runs."""
        self._pod(replica, "Running", {"running": {"startedAt": "2026-01-01T00:00:01Z"}}, ready=True)

    def restarts(self, replica: str) -> None:
        """The replica's program has just been killed, and its kubelet has started it again."""
        now = format_time(self.clock.now())
        killed = {"exitCode": 137, "reason": "Error", "finishedAt": now}
        self._pod(replica, "Running", {"running": {"startedAt": now}}, ready=True, lastState={"terminated": killed})

    def hangs(self, replica: str) -> None:
        """The replica's pod has a node, and its status does not say why it does not start."""
        self._pod(replica, "Pending", {"waiting": {"reason": "ContainerCreating"}}, ready=False)

    def exits(self, replica: str, exit_code: int) -> None:
        """The replica's pod ends; with exit code 0 its Job completes."""
        ended = {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error"}
        ended["finishedAt"] = "2026-01-01T00:00:02Z"
        self._pod(replica, "Failed" if exit_code else "Succeeded", {"terminated": ended}, ready=False)
        condition = {"type": "Complete" if exit_code == 0 else "Failed", "status": "True"}
        if exit_code:
            condition |= {"reason": "PodFailurePolicy", "message": "the chief failed"}
        status = {"conditions": [condition], "succeeded": int(exit_code == 0), "failed": int(exit_code != 0)}
        self.api.change(f"{JOB_PATH}/{self.child(replica)}", {"status": status})

    def _pod(self, replica: str, phase: str, state: Object, *, ready: bool, **status: Object) -> None:
        name = self.child(replica)
        job = self.api.objects[f"{JOB_PATH}/{name}"]
        labels = {**job["spec"]["template"]["metadata"]["labels"], "batch.kubernetes.io/job-name": name}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        container = {"name": "tensorflow", "ready": ready, "restartCount": len(status), "state": state, **status}
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.api.put(
            POD_PATH,
            {
                "metadata": {"name": f"{name}-x", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]},
                "spec": {"nodeName": "node-1"},
                "status": {
                    "phase": phase,
                    "startTime": "2026-01-01T00:00:01Z",
                    "containerStatuses": [container],
                    "conditions": conditions,
                },
            },
        )

    def _watcher(self, name: str) -> Watcher:
        informers = (self.tfjobs.jobs, *self.caches.watched.values())
        return watcher_of(next(informer for informer in informers if informer.name == name))


def watcher_of(informer: Informer[Any]) -> Watcher:
    """Returns what an informer's watch does to its store, without its thread."""
    decode = informer._reflector._reader._decode  # the decoder that the real watch would use

    def tell(kind: str, obj: Object) -> None:
        decoded = decode(json.dumps(obj).encode())
        if kind == "DELETED":
            informer.store.delete(key_of(decoded), version_of(decoded), decoded)
        else:
            informer.store.upsert(decoded)

    return tell
