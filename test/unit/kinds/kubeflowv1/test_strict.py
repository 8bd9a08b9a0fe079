"""The rules of training-operator that hold with --kubeflow-v1-strict, and those of this project without it."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controllerbench import NAMESPACE
from helpers.v1bench import V1Bench
from helpers.v1manifests import v1_manifest, v1_replicas
from tfjob_controller.jobs.plan.gangterms import ALWAYS, GangPolicy

STRICT = pytest.mark.parametrize("strict", [True, False])


def started(kind: str, replicas: dict[str, int], *, strict: bool, policy: str = "OnFailure", **spec: Any) -> V1Bench:
    """Creates a job whose pods all run."""
    bench = V1Bench(kind, strict=strict)
    bench.create(replicas, policy=policy, **spec)
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    return bench


def ends(bench: V1Bench, replica: str, exit_code: int) -> None:
    bench.exits(replica, exit_code)
    bench.settle()
    bench.clock.advance(600)
    bench.settle()
    bench.runs(replica)
    bench.settle()


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode", "Never"])
def test_a_tfjob_fails_when_somebody_deletes_a_running_pod(policy: str) -> None:
    bench = started("TFJob", {"Worker": 2}, strict=True, policy=policy)
    bench.deletes("worker-1")
    bench.settle()
    assert (bench.state, bench.counts("Worker")) == ("Failed", {"active": 1, "failed": 1})


@pytest.mark.parametrize(
    ("kind", "policy", "state"),
    [
        ("PyTorchJob", "OnFailure", "Restarting"),
        ("PyTorchJob", "Never", "Failed"),
        ("JAXJob", "ExitCode", "Restarting"),
        ("PaddleJob", "Always", "Restarting"),
        ("XGBoostJob", "OnFailure", "Failed"),
        ("XGBoostJob", "ExitCode", "Restarting"),
        ("MPIJob", "Always", "Failed"),
        ("MPIJob", "ExitCode", "Restarting"),
    ],
)
def test_a_deleted_pod_ends_jobs_of_other_kinds_by_their_policy(kind: str, policy: str, state: str) -> None:
    first = {"JAXJob": "Worker", "MPIJob": "Launcher"}.get(kind, "Master")
    bench = started(kind, {first: 1} | {"Worker": 2}, strict=True, policy=policy)
    bench.deletes("worker-1")
    bench.settle()
    assert bench.state == state


@STRICT
def test_a_pod_whose_sidecar_outlives_a_retryable_end_is_replaced(strict: bool) -> None:
    """Its program has ended before this controller deletes it."""
    bench = started("TFJob", {"Worker": 2}, strict=strict, policy="ExitCode")
    bench.exits_beside_a_sidecar("worker-1", 137)
    for _ in range(3):
        bench.settle()
        bench.clock.advance(60)
    bench.settle()
    assert bench.state == "Restarting"


def test_a_dynamic_worker_that_is_deleted_is_replaced() -> None:
    bench = started("TFJob", {"PS": 1, "Worker": 2}, strict=True, enableDynamicWorker=True)
    bench.deletes("worker-1")
    bench.settle()
    bench.is_gone("worker-1")
    bench.settle()
    assert "worker-1" in bench.pods


@STRICT
def test_a_pod_that_did_not_run_yet_is_replaced(strict: bool) -> None:
    bench = V1Bench(strict=strict)
    bench.create({"Worker": 2})
    bench.settle()
    bench.is_being_deleted("worker-1")
    bench.settle()
    bench.is_gone("worker-1")
    bench.settle()
    assert bench.pods == ["worker-0", "worker-1"]


@pytest.mark.parametrize(("strict", "state"), [(True, "Failed"), (False, "Restarting")])
def test_a_replica_that_is_removed_and_added_again(strict: bool, state: str) -> None:
    bench = started("TFJob", {"Worker": 2}, strict=strict)
    bench.resize("Worker", 1)
    bench.settle()
    bench.resize("Worker", 2)
    bench.settle()
    assert bench.state == state


@pytest.mark.parametrize(("strict", "state"), [(True, "Failed"), (False, "Running")])
@pytest.mark.parametrize(("kind", "replica"), [("XGBoostJob", "master-0"), ("MPIJob", "launcher")])
def test_a_failed_pod_of_an_xgboostjob_or_mpijob(kind: str, replica: str, strict: bool, state: str) -> None:
    first = replica.partition("-")[0].capitalize()
    bench = started(kind, {first: 1, "Worker": 1}, strict=strict)
    bench.exits(replica, 137)
    bench.settle()
    if replica in bench.pods:
        bench.runs(replica)
        bench.settle()
    assert bench.state == state


@pytest.mark.parametrize(
    ("strict", "limit", "state"), [(True, 2, "Running"), (False, 2, "Failed"), (True, 0, "Failed")]
)
def test_replaced_pods_and_the_backoff_limit(strict: bool, limit: int, state: str) -> None:
    bench = started("TFJob", {"Worker": 1}, strict=strict, policy="ExitCode", runPolicy={"backoffLimit": limit})
    for _ in range(3):
        if bench.state != "Failed":
            ends(bench, "worker-0", 137)
    assert bench.state == state


@pytest.mark.parametrize(("strict", "state"), [(True, "Failed"), (False, "Running")])
def test_the_restarts_of_sidecars_and_the_backoff_limit(strict: bool, state: str) -> None:
    bench = started("TFJob", {"Worker": 1}, strict=strict, runPolicy={"backoffLimit": 2})
    bench.restarts_sidecar("worker-0", 2)
    bench.settle()
    assert bench.state == state


@STRICT
def test_restarts_in_running_pods_count_for_the_backoff_limit(strict: bool) -> None:
    bench = started("TFJob", {"Worker": 2}, strict=strict, runPolicy={"backoffLimit": 2})
    bench.runs("worker-0", "worker-1", restarts=1)
    bench.settle()
    assert bench.state == "Failed"


@pytest.mark.parametrize(("strict", "pods"), [(True, ["worker-0", "worker-1"]), (False, ["worker-0"])])
def test_a_success_whose_pod_is_gone(strict: bool, pods: list[str]) -> None:
    bench = started("TFJob", {"Worker": 2}, strict=strict, policy="Never", successPolicy="AllWorkers")
    bench.exits("worker-1", 0)
    bench.settle()
    assert bench.counts("Worker") == {"active": 1, "succeeded": 1}
    bench.is_gone("worker-1")
    bench.settle()
    assert bench.pods == pods
    bench.reconciler = bench.new_reconciler()
    bench.runs("worker-0", *pods[1:])
    bench.settle()
    assert bench.counts("Worker") == ({"active": 2} if strict else {"active": 1, "succeeded": 1})


@pytest.mark.parametrize(("strict", "pods"), [(True, ["worker-0", "worker-1"]), (False, ["worker-0"])])
def test_a_pod_that_has_not_started_when_a_job_ends_whose_pods_are_kept(strict: bool, pods: list[str]) -> None:
    bench = V1Bench(strict=strict)
    bench.create({"Worker": 2}, runPolicy={"cleanPodPolicy": "None"})
    bench.settle()
    bench.exits("worker-0", 0)
    bench.settle()
    assert (bench.state, bench.pods) == ("Succeeded", pods)


@pytest.mark.parametrize(("strict", "state"), [(True, "Restarting"), (False, "Failed")])
def test_an_init_container_that_fails_with_exit_code(strict: bool, state: str) -> None:
    bench = V1Bench(strict=strict)
    replicas = v1_replicas("TFJob", 1, restartPolicy="ExitCode")
    replicas["template"]["spec"]["initContainers"] = [{"name": "prepare", "image": "prepare:1"}]
    bench.api.put(bench.path, v1_manifest("TFJob", {"Worker": replicas}, "example-job"))
    bench.settle()
    bench.fails_before_training("worker-0", "prepare")
    bench.sync()
    assert bench.state == state


@pytest.mark.parametrize(("strict", "pods"), [(True, ["worker-0"]), (False, [])])
def test_a_jaxjob_of_another_controller(strict: bool, pods: list[str]) -> None:
    bench = V1Bench("JAXJob", strict=strict)
    bench.create({"Worker": 1}, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    bench.settle()
    assert bench.pods == pods


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_pods_that_are_deleted_because_their_job_is_suspended_fail_no_job(policy: str) -> None:
    bench = started("TFJob", {"Worker": 2}, strict=True, policy=policy)
    bench.change(runPolicy={"suspend": True})
    bench.settle()
    assert bench.state == "Suspended"
    bench.clock.advance(60)
    bench.change(runPolicy={"suspend": False})
    bench.settle()
    bench.is_gone("worker-0", "worker-1")
    bench.settle()
    assert (bench.pods, bench.state) == (["worker-0", "worker-1"], "Suspended")


def test_pods_that_are_deleted_because_their_gang_loses_its_place_fail_no_job() -> None:
    bench = V1Bench("TFJob", GangPolicy(ALWAYS, scheduler_name="gang-scheduler"), strict=True)
    bench.create({"Worker": 2})
    bench.settle()
    (gang,) = bench.api.list("gangs")
    path = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/gangs/{gang['metadata']['name']}"
    placement = [{"node": "node-1", "members": ["worker-0", "worker-1"]}]
    bench.api.change(path, {"status": {"phase": "Admitted", "attempt": 1, "placement": placement}})
    bench.settle()
    bench.runs("worker-0", "worker-1")
    bench.settle()
    bench.api.change(path, {"status": {"phase": "Waiting", "placement": []}})
    bench.settle()
    assert (bench.pods, bench.state) == ([], "Restarting")
