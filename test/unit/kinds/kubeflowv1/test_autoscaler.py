"""The HorizontalPodAutoscaler of a PyTorchJob with `elasticPolicy.metrics`. Ids name the cases of upstream's tests."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.controllerbench import NAMESPACE
from helpers.memoryapi import Object
from helpers.v1bench import NAME, V1Bench
from tfjob_controller.jobs.naming import OPERATOR_NAME_LABEL
from tfjob_controller.jobs.plan.gangterms import NO_GANGS

FOLDER = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
PATH = f"{FOLDER}/{NAME}"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}


@pytest.fixture
def bench() -> V1Bench:
    return V1Bench("PyTorchJob")


def started(bench: V1Bench, *metrics: Object, workers: int = 2, **spec: Any) -> V1Bench:
    policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": list(metrics)}
    bench.create({"Worker": workers}, elasticPolicy=policy, **spec)
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    return bench


def autoscaler(bench: V1Bench) -> Object:
    return bench.api.objects[PATH]


def requests(bench: V1Bench, since: int) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in bench.api.sent[since:]]


def made_by_training_operator(bench: V1Bench, job: Object, spec: Object) -> None:
    owner = {name: job[name] for name in ("apiVersion", "kind")}
    owner |= {"name": NAME, "uid": job["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": "theirs", "ownerReferences": [owner]}
    bench.api.put(FOLDER, {"metadata": metadata, "spec": spec})


def test_case_69_it_scales_the_job_itself_within_the_bounds(bench: V1Bench) -> None:
    started(bench, CPU, MEMORY)
    found = autoscaler(bench)
    assert found["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": NAME},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [CPU, MEMORY],
    }
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("PyTorchJob", bench.job["metadata"]["uid"], True)


def test_without_bounds_those_are_the_number_of_workers(bench: V1Bench) -> None:
    bench.create({"Worker": 4}, elasticPolicy={"metrics": [CPU]})
    bench.settle()
    assert (autoscaler(bench)["spec"]["minReplicas"], autoscaler(bench)["spec"]["maxReplicas"]) == (4, 4)


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_other_jobs_have_none(kind: str) -> None:
    bench = V1Bench(kind)
    metrics = [CPU] if kind == "PaddleJob" else []
    bench.create({"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3, "metrics": metrics})
    bench.settle()
    assert PATH not in bench.api.objects


def test_a_job_that_runs_costs_no_request_for_it_also_for_the_next_process(bench: V1Bench) -> None:
    started(bench, CPU, MEMORY)
    before = len(bench.api.sent)
    # The API server stores quantities in its own notation.
    stored = {**MEMORY, "resource": {**MEMORY["resource"], "target": {"type": "AverageValue", "averageValue": 2**30}}}
    bench.api.change(PATH, {"spec": {"metrics": [CPU, stored]}})
    bench.settle()
    bench.restart(NO_GANGS)
    bench.settle()
    assert requests(bench, before) == []


@pytest.mark.parametrize(
    "change",
    [
        {"minReplicas": 2},
        {"maxReplicas": 9},
        {"metrics": [MEMORY]},
        {"metrics": None},
        {"scaleTargetRef": {"name": "another"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_others_change_of_it_is_restored(bench: V1Bench, change: Object) -> None:
    spec = autoscaler(started(bench, CPU))["spec"]
    bench.api.change(PATH, {"spec": change})
    bench.settle()
    assert autoscaler(bench)["spec"] == spec


def test_behavior_that_others_add_stays(bench: V1Bench) -> None:
    started(bench, CPU)
    bench.api.change(PATH, {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}})
    bench.change(elasticPolicy={"maxReplicas": 7})
    bench.settle()
    assert autoscaler(bench)["spec"]["maxReplicas"] == 7
    assert "behavior" in autoscaler(bench)["spec"]


def test_it_follows_the_metrics_of_the_job(bench: V1Bench) -> None:
    started(bench, CPU)
    bench.change(elasticPolicy={"metrics": [MEMORY]})
    bench.settle()
    assert autoscaler(bench)["spec"]["metrics"] == [MEMORY]
    bench.change(elasticPolicy={"metrics": []})
    bench.settle()
    assert PATH not in bench.api.objects


def test_case_70_it_is_deleted_while_the_job_is_suspended(bench: V1Bench) -> None:
    started(bench, CPU)
    bench.change(runPolicy={"suspend": True})
    bench.settle()
    assert PATH not in bench.api.objects
    bench.change(runPolicy={"suspend": False})
    bench.settle()
    assert PATH in bench.api.objects


def test_it_is_deleted_when_the_job_has_ended(bench: V1Bench) -> None:
    started(bench, CPU)
    bench.exits("worker-0", 0)
    bench.settle()
    assert bench.state == "Succeeded"
    assert PATH not in bench.api.objects


@pytest.mark.parametrize("most", [3, 5])
def test_that_of_training_operator_is_taken_over(bench: V1Bench, most: int) -> None:
    job = started(bench).job
    spec = {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": NAME},
        "minReplicas": 1,
        "maxReplicas": most,
        "metrics": [MEMORY if most == 5 else CPU],
    }
    made_by_training_operator(bench, job, spec)
    bench.change(elasticPolicy={"metrics": [CPU]})
    # Without the label the watch does not show it.
    bench.restart(NO_GANGS)
    before = len(bench.api.sent)
    bench.settle()
    found = autoscaler(bench)
    assert found["metadata"]["uid"] == "theirs"
    assert found["metadata"]["labels"][OPERATOR_NAME_LABEL] == "pytorchjob-controller"
    assert found["spec"] == {**spec, "maxReplicas": 3, "metrics": [CPU]}
    patches = [path for method, path in requests(bench, before) if (method, path) == ("PATCH", PATH)]
    assert len(patches) == (1 if most == 3 else 2)


@pytest.mark.parametrize("owner", [None, "another"])
def test_one_of_somebody_else_is_left_alone_and_named(bench: V1Bench, owner: str | None) -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner, "controller": True}] if owner else []
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": "others", "ownerReferences": owners}
    others = bench.api.put(FOLDER, {"metadata": metadata, "spec": {"maxReplicas": 9}})
    bench.create({"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3, "metrics": [CPU]})
    for _ in range(4):
        bench.sync()
    assert bench.api.objects[PATH] == others
    assert bench.pods == ["worker-0", "worker-1"]
    notes = [note for _, reason, note in bench.recorder.events if reason == "FailedCreateHorizontalPodAutoscaler"]
    assert notes[0].startswith(f"cannot create HorizontalPodAutoscaler {NAME}: ")
