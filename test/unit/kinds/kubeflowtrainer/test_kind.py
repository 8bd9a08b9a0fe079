"""TrainJobs of Kubeflow Trainer as a kind that the reconciler syncs: what is written, in which order, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helpers.controllerbench import Counted, confirm_suspension
from helpers.fakeclock import FakeClock
from helpers.kubeflowmanifests import kubeflow_runtime, kubeflow_trainjob, replicated_job
from helpers.memoryapi import MemoryApi, Object
from helpers.trainworld import CONFIG
from tfjob_controller.api.common.core import JOBS
from tfjob_controller.api.common.record import RECORD_ANNOTATION
from tfjob_controller.api.kubeflowtrainer.runtime import KUBEFLOW_TRAINING_RUNTIMES
from tfjob_controller.api.kubeflowtrainer.types import (
    KUBEFLOW_TRAINJOBS,
    KubeflowTrainJob,
)
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.handlers import RuntimeHandler
from tfjob_controller.controller.kind import METRICS_DEBOUNCE_SECONDS, RUNTIME_TIMEOUT_SECONDS
from tfjob_controller.controller.outcome import Done, Outcome, RequeueAfter, TerminalFailure
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.kinds.kubeflowtrainer.kind import RUNTIMES, KubeflowTrainJobAdapter
from tfjob_controller.kinds.runtimes import RuntimeCaches
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.meta import key_of, version_of
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
RUNTIME_PATH = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"


class Bench:
    """An API server in memory, caches fed by it, and `sync` called by hand."""

    def __init__(self) -> None:
        self.api, self.clock, self.counted = MemoryApi(), FakeClock(), Counted()
        self.caches = ControllerCaches(self.api, "", self.clock)
        self.kubeflow = RuntimeCaches(RUNTIMES, self.api, "", self.clock)
        self.events: list[tuple[str, str, str]] = []
        self.api.watch("trainjobs", self._see_job)
        self.api.watch("clustertrainingruntimes", self._see_runtime)
        self.api.watch("jobs", self._see_child)
        self.api.watch("jobs", lambda kind, obj: confirm_suspension(self.api, kind, obj))
        self.reconciler = self.new_reconciler()

    def new_reconciler(self) -> Reconciler[KubeflowTrainJob]:
        return Reconciler(
            self.adapter,
            ResourceClient(self.api, KUBEFLOW_TRAINJOBS),
            self.kubeflow.jobs.store,
            self.caches.snapshots(),
            self.caches.writer(Fanout(0)),
            self,
            self.counted,
            self.clock,
        )

    @property
    def adapter(self) -> KubeflowTrainJobAdapter:
        stores = self.kubeflow.namespaced.store, self.kubeflow.cluster.store
        return KubeflowTrainJobAdapter(*stores, CONFIG, self.clock, restart_rules=True)

    def event(self, regarding: Any, type_: str, reason: str, note: str, action: str = "") -> None:
        assert regarding.api_version == "trainer.kubeflow.org/v1alpha1"
        self.events.append((type_, reason, note))

    def _see_child(self, kind: str, obj: Object) -> None:
        job = JOBS.decode(msgspec.json.encode(obj))
        if kind == "DELETED":
            self.caches.store(JOBS).delete(key_of(job), version_of(job), job)
        else:
            self.caches.store(JOBS).upsert(job)

    def _see_job(self, kind: str, obj: Object) -> None:
        self.kubeflow.jobs.store.upsert(KUBEFLOW_TRAINJOBS.decode(msgspec.json.encode(obj)))

    def _see_runtime(self, kind: str, obj: Object) -> None:
        self.kubeflow.cluster.store.upsert(KUBEFLOW_TRAINING_RUNTIMES.decode(msgspec.json.encode(obj)))

    def create(self, runtime: Any = None, **spec: Any) -> None:
        self.api.put(RUNTIME_PATH, runtime or kubeflow_runtime())
        self.submit(**spec)

    def submit(self, **spec: Any) -> None:
        self.api.put(PATH, kubeflow_trainjob(**spec))

    def sync(self) -> Outcome:
        return self.reconciler.sync("team/example")

    @property
    def job(self) -> Object:
        return self.api.objects[f"{PATH}/example"]

    @property
    def conditions(self) -> dict[str, Object]:
        return {each["type"]: each for each in self.job.get("status", {}).get("conditions", ())}

    @property
    def sent(self) -> list[tuple[str, str]]:
        return [(each.method, each.path.rpartition("/")[2]) for each in self.api.sent]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_children_come_first_then_the_record_and_then_the_status(bench: Bench) -> None:
    bench.create()
    bench.sync()
    assert bench.sent == [("POST", "jobs"), ("POST", "services"), ("PATCH", "example"), ("PATCH", "status")]
    assert RECORD_ANNOTATION in bench.job["metadata"]["annotations"]
    # Somebody else's write in between is not overwritten with what was decided before it.
    (record,) = [each for each in bench.api.sent if each.path.endswith("/example")]
    assert record.body["metadata"]["resourceVersion"]
    (step,) = bench.job["status"]["jobsStatus"]
    assert step == {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    assert [each[1] for each in bench.events] == ["SuccessfulCreate"]


def test_a_job_that_runs_costs_no_request_not_even_after_a_restart_of_the_controller(bench: Bench) -> None:
    bench.create()
    bench.sync()
    sent = len(bench.api.sent)
    assert isinstance(bench.sync(), Done | RequeueAfter)
    bench.reconciler = bench.new_reconciler()
    bench.sync()
    assert len(bench.api.sent) == sent


def test_a_status_that_was_not_written_after_its_record_is_written_later(bench: Bench) -> None:
    bench.create()
    bench.sync()
    bench.api.change(f"{PATH}/example", {"status": None})
    assert not bench.job.get("status")
    sent = len(bench.sent)
    assert bench.sync() == RequeueAfter(METRICS_DEBOUNCE_SECONDS)
    bench.clock.advance(METRICS_DEBOUNCE_SECONDS)
    bench.sync()
    assert bench.sent[sent:] == [("PATCH", "status")]


def test_the_jobs_of_a_finished_job_are_deleted_when_the_runtime_says_so_and_the_job_stays(bench: Bench) -> None:
    bench.create(kubeflow_runtime(job_set={"ttlSecondsAfterFinished": 60}), activeDeadlineSeconds=1)
    bench.sync()
    bench.clock.advance(2)
    for _ in range(4):
        bench.sync()
    assert bench.conditions["Failed"]["reason"] == "DeadlineExceeded"
    assert isinstance(bench.sync(), RequeueAfter)
    assert ("DELETE", "example-node-0") not in bench.sent
    bench.clock.advance(60)
    assert bench.sync() == Done()
    assert bench.sent[-1] == ("DELETE", "example-node-0")
    sent = len(bench.sent)
    assert bench.sync() == Done()
    assert len(bench.sent) == sent
    assert bench.job


def test_claims_are_created_once_although_they_are_not_watched(bench: Bench) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {}}
    bench.create(kubeflow_runtime(job_set={"volumeClaimPolicies": [{"templates": [claim]}]}))
    for _ in range(3):
        bench.sync()
    assert [each for each in bench.sent if each[1] == "persistentvolumeclaims"] == [("POST", "persistentvolumeclaims")]


def test_a_job_of_another_controller_is_never_touched(bench: Bench) -> None:
    bench.create(managedBy="kueue.x-k8s.io/multikueue")
    assert bench.sync() == Done()
    assert bench.sent == []


def test_a_job_waits_a_while_for_its_runtime_and_then_fails(bench: Bench) -> None:
    bench.submit()
    waits = bench.sync()
    assert isinstance(waits, RequeueAfter)
    assert bench.conditions == {}
    bench.clock.advance(RUNTIME_TIMEOUT_SECONDS + 1)
    assert isinstance(bench.sync(), TerminalFailure)
    failed = bench.conditions["Failed"]
    assert failed["reason"] == "JobsBuildFailed"
    assert "there is no ClusterTrainingRuntime torch-distributed" in failed["message"]


def test_an_invalid_runtime_fails_the_job_and_is_named(bench: Bench) -> None:
    bench.create(kubeflow_runtime(policy={"flux": {}}))
    assert isinstance(bench.sync(), TerminalFailure)
    assert "ClusterTrainingRuntime torch-distributed: spec.mlPolicy.flux: " in bench.conditions["Failed"]["message"]
    assert bench.job["status"].get("jobsStatus", []) == []


def test_a_started_job_keeps_its_nodes_and_lives_on_without_its_runtime(bench: Bench) -> None:
    bench.create(kubeflow_runtime(policy={"numNodes": 3, "torch": {}}))
    bench.sync()
    bench.reconciler = bench.new_reconciler()
    bench.api.put(RUNTIME_PATH, kubeflow_runtime(policy={"numNodes": 1, "torch": {}}))
    job = KUBEFLOW_TRAINJOBS.decode(msgspec.json.encode(bench.job))
    assert len(bench.adapter.plan(job).replicas.all) == 3
    bench.kubeflow.cluster.store.delete("torch-distributed", 10**6, bench.kubeflow.cluster.store.list()[0])
    bench.clock.advance(100 * RUNTIME_TIMEOUT_SECONDS)
    assert isinstance(bench.sync(), RequeueAfter)
    assert bench.conditions == {}


def test_jobs_that_have_not_started_are_queued_when_their_runtime_appears(bench: Bench) -> None:
    queue: RateLimitingQueue[str] = RateLimitingQueue(bench.clock, RateLimiter(1.0, 60.0))
    bench.create()
    bench.sync()
    for name, spec in (("waits", {}), ("of-other", {"runtime": "other"}), ("of-kind", {"kind": "TrainingRuntime"})):
        bench.submit(name=name, **spec)
    handler = RuntimeHandler(queue, bench.kubeflow.jobs.store, bench.kubeflow.waits_for)
    (runtime,) = bench.kubeflow.cluster.store.list()
    handler.on_add(runtime, is_initial=True)
    assert len(queue) == 0
    handler.on_add(runtime, is_initial=False)
    assert (len(queue), queue.get()) == (1, "team/waits")
    queue.shut_down()


def test_initializers_that_share_a_name_with_the_training_container_are_not_limited(bench: Bench) -> None:
    bench.create(kubeflow_runtime(replicated_job(), replicated_job("other", ancestor="")))
    job = KUBEFLOW_TRAINJOBS.decode(msgspec.json.encode(bench.job))
    assert bench.adapter.plan(job).mounts.data_containers == frozenset()
