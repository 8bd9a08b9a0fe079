"""The controller of TrainJobs without threads: see `controllerbench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.controllerbench import JOB_PATH, NAMESPACE, POD_PATH, Counted, Recorded, settled, watcher_of
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi, Object
from helpers.trainmanifests import trainjob
from helpers.trainworld import CONFIG
from tfjob_controller.api.common.core import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Pod, Secret
from tfjob_controller.api.trainjob.types import TRAINJOBS, TrainJob
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.logs.metricparser import MetricValue
from tfjob_controller.controller.outcome import Outcome
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.writer import MAX_RESPONSES, Fanout
from tfjob_controller.jobs.naming import runtime_id_of
from tfjob_controller.jobs.state.observed import CheckpointLine
from tfjob_controller.kinds.runtimes import RuntimeCaches
from tfjob_controller.kinds.trainjob.kind import RUNTIMES, TrainJobAdapter
from tfjob_controller.kinds.trainjob.runtimes import RuntimeResolver
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import ObjectMeta

TRAINJOB_PATH = f"/apis/kubeflow.org/v2alpha1/namespaces/{NAMESPACE}/trainjobs"
RUNTIME_PATH = f"/apis/kubeflow.org/v2alpha1/namespaces/{NAMESPACE}/trainingruntimes"
KEY = f"{NAMESPACE}/example-train"
SEEN_AT = "2026-01-01T00:00:05Z"


class Logs:
    """A `Follower` that returns the values that a test sets."""

    def __init__(self) -> None:
        self.followed: list[tuple[str, str, str, str, tuple[str, ...]]] = []
        self.forgotten: list[str] = []
        self.metrics: dict[str, str] = {}
        self.is_read = False
        self.savers: list[tuple[str, str, str]] = []
        self.checkpoint_lines: list[CheckpointLine] = []
        self.are_checkpoints_read = True

    def follow(self, job_key: str, job_uid: str, pod: Pod, container: str, names: tuple[str, ...]) -> None:
        self.followed.append((job_key, job_uid, pod.metadata.name, container, names))

    def follow_checkpoints(self, job_key: str, job_uid: str, pod: Pod, container: str) -> None:
        self.savers.append((job_key, pod.metadata.name, container))

    def checkpoint_lines_of(self, job_uid: str) -> Sequence[CheckpointLine]:
        return list(self.checkpoint_lines)

    def has_read_checkpoints(self, job_uid: str) -> bool:
        return self.are_checkpoints_read

    def forget_key(self, job_key: str) -> None:
        self.forgotten.append(job_key)

    def metrics_of(self, job_uid: str) -> Mapping[str, MetricValue]:
        return {name: MetricValue(value, SEEN_AT) for name, value in self.metrics.items()}

    def has_read_all(self, job_uid: str) -> bool:
        return self.is_read


class TrainBench:
    """See the module."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.caches = ControllerCaches(self.api, "", self.clock)
        self.trainjobs = RuntimeCaches(RUNTIMES, self.api, "", self.clock)
        self.counted, self.logs, self.recorder = Counted(), Logs(), Recorded(self.api, "TrainJob")
        self.logs.is_read = True
        self.is_busy = False
        self.reconciler = self.new_reconciler()
        children = (self.caches.watched[each] for each in (JOBS, SERVICES, PODS, CONFIG_MAPS))
        for informer in (self.trainjobs.jobs, self.trainjobs.namespaced, *children):
            self.api.watch(informer.name, watcher_of(informer))

    def new_reconciler(self) -> Reconciler[TrainJob]:
        runtimes = RuntimeResolver(self.trainjobs.namespaced.store, self.trainjobs.cluster.store)
        kind = TrainJobAdapter(runtimes, CONFIG, self.logs, self.clock, restart_rules=True)
        return Reconciler(
            kind,
            ResourceClient(self.api, TRAINJOBS),
            self.trainjobs.jobs.store,
            self.caches.snapshots(),
            self.caches.writer(Fanout(0)),
            self.recorder,
            self.counted,
            self.clock,
            is_busy=lambda: self.is_busy,
        )

    def forget_secrets(self) -> None:
        """Displaces the remembered Secrets, which are not watched."""
        for number in range(MAX_RESPONSES):
            self.caches.clients[SECRETS].store.assume(Secret(ObjectMeta(name=f"other-{number}", namespace="ns")))
        self.reconciler = self.new_reconciler()

    def create(self, **job: Any) -> Object:
        return self.api.put(TRAINJOB_PATH, trainjob(**job))

    def sync(self) -> Outcome:
        return self.reconciler.sync(KEY)

    def settle(self, limit: int = 20) -> Outcome:
        """Syncs until a sync sends no request."""
        return settled(self.api, self.sync, limit)

    @property
    def job(self) -> Object:
        return self.api.objects[f"{TRAINJOB_PATH}/example-train"]

    @property
    def status(self) -> Object:
        status: Object = self.job.get("status", {})
        return status

    def child(self, replica: str) -> str:
        """Returns the name of the Job of a replica such as `node-1`."""
        role, _, index = replica.rpartition("-")
        name = f"example-train-{role}-{runtime_id_of(self.job['metadata']['uid'])}"
        return name if role == "node" else f"{name}-{index}"

    def runs(self, *replicas: str) -> None:
        for each in replicas:
            self._pod(each, "Running", {"running": {}}, ready=True)

    def exits(self, replica: str, exit_code: int) -> None:
        """The replica's pod ends, and its Job."""
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": SEEN_AT}
        self._pod(replica, "Failed" if exit_code else "Succeeded", {"terminated": ended}, ready=False)
        path = f"{JOB_PATH}/{self.child(replica)}"
        job = self.api.objects[path]
        done = {*filter(None, job.get("status", {}).get("completedIndexes", "").split(","))}
        if not exit_code:
            done.add(replica.rpartition("-")[2])
        condition = {"type": "Failed" if exit_code else "Complete", "status": "True"}
        is_over = exit_code != 0 or len(done) == job["spec"]["completions"]
        changed = {"completedIndexes": ",".join(sorted(done)), "conditions": [condition] if is_over else []}
        self.api.change(path, {"status": changed})

    def pods_go(self) -> None:
        for path in self.api.paths("/pods/"):
            self.api.remove(path)

    def _pod(self, replica: str, phase: str, state: Object, *, ready: bool) -> None:
        name = self.child(replica)
        job = self.api.objects[f"{JOB_PATH}/{name}"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True}
        index = replica.rpartition("-")[2]
        by_controller = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/job-completion-index": index}
        metadata = {
            "name": f"{name}-{index}-x",
            "labels": job["spec"]["template"]["metadata"]["labels"] | by_controller,
            "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
        }
        container = {"name": replica.rpartition("-")[0], "ready": ready, "restartCount": 0, "state": state}
        status = {"phase": phase, "startTime": "2026-01-01T00:00:01Z", "containerStatuses": [container]}
        self.api.put(POD_PATH, {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status})
