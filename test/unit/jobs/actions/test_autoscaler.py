"""The HorizontalPodAutoscaler of an elastic TrainJob with metrics: when it exists, and what it says."""

from __future__ import annotations

from typing import Any

from helpers.clusterinmemory import World
from helpers.trainworld import ends, running_train_world, train_plan
from tfjob_controller.api.common.core import HorizontalPodAutoscaler
from tfjob_controller.api.trainjob.types import ElasticPolicy
from tfjob_controller.jobs.actions.children import autoscaler_digest, build_autoscaler
from tfjob_controller.jobs.plan.gangterms import (
    ALWAYS,
    OFF,
    ON,
    GangPolicy,
)
from tfjob_controller.jobs.state.restarts import GRACE_SECONDS

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
TORCHRUN = {"command": ["torchrun", "train.py"]}


def elastic(*metrics: dict[str, Any], most: int = 6) -> ElasticPolicy:
    return ElasticPolicy(2, most, metrics)


def running(*metrics: dict[str, Any]) -> World:
    policy = {"minNodes": 2, "maxNodes": 6, "metrics": list(metrics)}
    return running_train_world(nodes=3, **TORCHRUN, elasticPolicy=policy)


def autoscaler_of(cluster: World) -> HorizontalPodAutoscaler:
    assert cluster.autoscaler is not None
    return cluster.autoscaler


def test_it_scales_the_job_itself_within_the_bounds() -> None:
    policy = {"minNodes": 2, "maxNodes": 6, "metrics": [CPU, MEMORY]}
    body = build_autoscaler(train_plan(nodes=3, **TORCHRUN, elasticPolicy=policy))
    assert body["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "name": "example-train"},
        "minReplicas": 2,
        "maxReplicas": 6,
        "metrics": [CPU, MEMORY],
    }
    (owner,) = body["metadata"]["ownerReferences"]
    assert (body["metadata"]["name"], owner["uid"], owner["controller"]) == ("example-train", "uid-job", True)


def test_a_job_without_metrics_has_none() -> None:
    assert running().autoscaler is None


def test_it_is_made_with_the_job_and_made_again_if_it_is_lost() -> None:
    cluster = running(CPU)
    assert cluster.created.count("HorizontalPodAutoscaler/example-train") == 1
    cluster.autoscaler = None
    cluster.settle()
    assert cluster.created.count("HorizontalPodAutoscaler/example-train") == 2


def test_it_follows_the_metrics() -> None:
    cluster = running(CPU)
    before = autoscaler_of(cluster).spec.digest
    cluster.change(elastic_policy=elastic(CPU, MEMORY))
    cluster.settle()
    assert autoscaler_of(cluster).spec.digest not in (before, "")
    cluster.change(elastic_policy=elastic())
    cluster.settle()
    assert cluster.autoscaler is None


def test_it_follows_the_bounds_and_what_others_change_of_them() -> None:
    cluster = running(CPU)
    found = autoscaler_of(cluster)
    for least, most in ((1, 6), (2, 9)):
        cluster.autoscaler = HorizontalPodAutoscaler(found.metadata, type(found.spec)(least, most, found.spec.digest))
        cluster.settle()
        assert (autoscaler_of(cluster).spec.min_replicas, autoscaler_of(cluster).spec.max_replicas) == (2, 6)


def test_it_is_deleted_while_the_job_is_suspended() -> None:
    cluster = running(CPU)
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.autoscaler is None
    cluster.change(suspend=False)
    cluster.settle()
    assert cluster.autoscaler is not None


def test_it_is_deleted_when_the_job_has_ended() -> None:
    cluster = running(CPU)
    ends(cluster, "node-0", "node-1", "node-2", exit_code=1)
    cluster.advance(GRACE_SECONDS)
    cluster.settle()
    assert cluster.job.status.phase == "Failed"
    assert cluster.autoscaler is None


def test_the_gang_scheduler_does_not_resize_what_it_resizes() -> None:
    for metrics, autoscaling, most in (([], ON, 6), ([CPU], OFF, 0)):
        policy = {"minNodes": 2, "maxNodes": 6, "metrics": metrics}
        gangs = GangPolicy(ALWAYS, "gang-scheduler", autoscaling=ON)
        plan = train_plan(nodes=3, gangs=gangs, **TORCHRUN, elasticPolicy=policy)
        assert plan.scheduling.gang is not None
        assert (plan.scaling.autoscaling, plan.scheduling.gang.max_workers) == (autoscaling, most)


def test_metrics_are_the_same_in_the_notation_of_the_api_server() -> None:
    def digest(value: str | int, **fields: Any) -> str:
        target = {"type": "Value", "value": value}
        metric = {"describedObject": {"kind": "Service", "name": "a"}, "metric": {"name": "rate"}, "target": target}
        return autoscaler_digest({"metrics": [{"type": "Object", "object": metric, **fields}]})

    assert digest("1000m") == digest("1") == digest(1) == digest("1.0", external=None, pods={})
    assert digest("1") != digest("1100m")
    assert digest("1") != digest("x")
