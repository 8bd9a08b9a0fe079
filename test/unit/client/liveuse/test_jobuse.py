"""What a job uses, by its pods and their metrics, and when its GPUs count as unused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helpers.manifests import master, tfjob, workers
from helpers.memoryapi import MemoryApi
from tfjob_controller.client.kinds import snapshot_decoder
from tfjob_controller.client.liveuse.gpus import GpuUse
from tfjob_controller.client.liveuse.jobuse import JobUse, ReplicaUse, read_job_use, unused_gpus
from tfjob_controller.client.liveuse.prometheus import PrometheusError, Sample, SeriesLabels
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kube.errors import ApiError

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD, YOUNG = "2026-01-01T11:29:00Z", "2026-01-01T11:31:00Z"


def gpu_replica(peak: float | None, created: str = OLD, gpus: int = 1) -> ReplicaUse:
    return ReplicaUse("worker-0", "a", created, 0, 0, gpus, gpu=GpuUse(gpus, 0.0, peak=peak))


@pytest.mark.parametrize(
    ("replicas", "unused"),
    [
        ([], 0),
        ([gpu_replica(0.0, gpus=4), gpu_replica(0.0, gpus=4)], 8),
        ([gpu_replica(0.0), gpu_replica(1.0)], 0),
        ([gpu_replica(0.0), gpu_replica(None)], 0),
        ([gpu_replica(0.0), ReplicaUse("worker-1", "b", OLD, 0, 0, 1)], 0),
        ([gpu_replica(0.0), ReplicaUse("ps-0", "c", YOUNG, 1000, 0, 0)], 1),
    ],
)
def test_gpus_are_unused_if_none_of_the_job_was_used_for_half_an_hour(
    replicas: Sequence[ReplicaUse], unused: int
) -> None:
    assert unused_gpus(replicas) == unused


@pytest.mark.parametrize(("created", "unused"), [(OLD, 1), (YOUNG, 0), ("", 0), ("yesterday", 0)])
def test_the_figures_of_an_earlier_pod_with_the_same_name_do_not_count(created: str, unused: int) -> None:
    assert unused_gpus([gpu_replica(0.0, created)], NOW - timedelta(minutes=30)) == unused


PODS, METRICS = "/api/v1/namespaces/team/pods", "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"
JOB = tfjob(master(), workers(2), name="train")
META = {"name": "train", "namespace": "team", "uid": "u", "creationTimestamp": OLD}
SNAPSHOT = snapshot_decoder(TFJOB)(
    json.dumps({**JOB, "metadata": META, "spec": {**JOB["spec"], "RuntimeId": "ab12"}}).encode()
)
SELECTOR = TFJOB.child_selector(SNAPSHOT.job)


class Api(MemoryApi):
    """Has the pods of a job, and metrics-server unless `refusal`."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        super().__init__()
        self._refusal = refusal

    def answer(self, request: Any) -> bytes:
        if request.path == METRICS and self._refusal is not None:
            raise self._refusal
        return super().answer(request)

    def pod(self, index: int, requests: Object, phase: str = "Running", node: str = "n", created: str = OLD) -> str:
        labels = dict(pair.split("=") for pair in SELECTOR.split(",")) | {
            "job_type": "WORKER",
            "task_index": f"{index}",
        }
        name = f"train-worker-ab12-{index}-xyz12"
        spec = {"nodeName": node, "containers": [{"name": "tensorflow", "resources": {"requests": requests}}]}
        metadata = {"name": name, "namespace": "team", "labels": labels, "creationTimestamp": created}
        self.objects[f"{PODS}/{name}"] = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
        return name

    def uses(self, pod: str, *containers: Object) -> None:
        labels = self.objects[f"{PODS}/{pod}"]["metadata"]["labels"]  # metrics-server copies them
        metrics = {
            "metadata": {"name": pod, "namespace": "team", "labels": labels},
            "containers": [{"name": "c", "usage": usage} for usage in containers],
        }
        self.objects[f"{METRICS}/{pod}"] = metrics


class Gpus:
    """A Prometheus with GPUs of these pods, which were not used, or with an error."""

    def __init__(self, *pods: str, error: str = "") -> None:
        self.asked: list[str] = []
        self._pods, self._error = pods, error

    def query(self, expression: str) -> Sequence[Sample]:
        self.asked.append(expression)
        if self._error:
            raise PrometheusError(self._error)
        return [Sample(SeriesLabels("DCGM_FI_DEV_GPU_UTIL", "team", pod), (0.0, "0")) for pod in self._pods]


def read(api: MemoryApi, prometheus: Gpus | None = None) -> JobUse:
    return read_job_use(api, SNAPSHOT, NOW, prometheus)


def has_figures(use: JobUse) -> bool:
    return any(replica.cpu_used is not None for replica in use.replicas)


def test_containers_are_added_up_and_compared_with_the_requests_of_the_pod() -> None:
    api = Api()
    pod = api.pod(1, {"cpu": "2", "memory": "1Gi"})
    api.uses(pod, {"cpu": "1500000001n", "memory": "1024Ki"}, {"cpu": "250m", "memory": "1Mi"})
    api.pod(0, {})
    first, second = read(api).replicas
    assert (first.replica, first.cpu_used, first.memory_used, first.cpu_requested) == ("worker-0", None, None, 0)
    assert (second.replica, second.cpu_used, second.memory_used) == ("worker-1", 1751, 2 * 2**20)
    assert (second.cpu_requested, second.memory_requested) == (2000, 2**30)


@pytest.mark.parametrize("usage", [{"cpu": "much"}, {"memory": ""}])
def test_metrics_that_are_no_quantities_are_left_out(usage: Object) -> None:
    api = Api()
    api.uses(api.pod(0, {"cpu": "1"}), usage)
    assert not has_figures(read(api))


@pytest.mark.parametrize("status", [403, 404, 503])
def test_without_metrics_server_or_the_right_to_read_it_there_are_no_figures_and_no_error(status: int) -> None:
    api = Api(ApiError(status, "", "no"))
    api.uses(api.pod(0, {"cpu": "1"}), {"cpu": "1"})
    use = read(api)
    assert len(use.replicas) == 1
    assert not has_figures(use)
    assert use.gpu_problem == ""


def test_only_pods_of_the_job_with_a_node_count() -> None:
    api = Api()
    api.pod(0, {"nvidia.com/gpu": "1"}, phase="Succeeded")
    api.pod(1, {"nvidia.com/gpu": "1"}, phase="Pending", node="")
    api.pod(2, {"nvidia.com/gpu": "1"}, created="2025-01-01T00:00:00Z")
    prometheus = Gpus()
    assert read(api, prometheus) == JobUse()
    assert prometheus.asked == []


def test_gpus_are_asked_for_exactly_the_pods_that_hold_some() -> None:
    api = Api()
    with_gpu = api.pod(0, {"nvidia.com/gpu": "2"})
    partition = api.pod(1, {"nvidia.com/mig-1g.10gb": "1"})
    without = api.pod(2, {"cpu": "1"})
    prometheus = Gpus(with_gpu, partition, without, "of-somebody-else")
    use = read(api, prometheus)
    assert use.unused_gpus == 3
    assert [replica.gpu is not None for replica in use.replicas] == [True, True, False]
    assert all(f'pod=~"{with_gpu}|{partition}"' in query for query in prometheus.asked)
    assert not any(without in query for query in prometheus.asked)


def test_why_the_use_of_gpus_is_unknown_is_said() -> None:
    api = Api()
    api.uses(api.pod(0, {"nvidia.com/gpu": "1"}), {"cpu": "1"})
    use = read(api, Gpus(error="it cannot be reached"))
    assert (use.gpu_problem, use.unused_gpus, has_figures(use)) == ("it cannot be reached", 0, True)
