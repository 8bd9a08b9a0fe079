"""Jobs of training-operator, the real program, go on under this controller, and the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane, set_pod_terminated
from helpers.controller import running_controller
from helpers.poll import eventually
from helpers.v1manifests import v1_replicas
from helpers.v1world import (
    JOB_NAME_LABEL,
    KINDS,
    OF_MPI,
    V1Namespace,
    await_rest,
    job_path,
    labels_of,
    manifest_of,
    pod_phase,
    versions_of,
)
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options
from localcluster.trainingoperator import TrainingOperator

pytestmark = [pytest.mark.cluster, pytest.mark.long]

Object = dict[str, Any]

OPTIONS: Object = {"kubeflow_v1_api": KINDS, "trainjobs": False, "gang_scheduling": "off"}
TF, TORCH, BOOST, JAX, PADDLE, MPI = KINDS
# What is decided by which pods: the name of the job is that of its kind.
REPLICAS = {
    TF: {"Chief": 1, "Worker": 2},
    TORCH: {"Master": 1, "Worker": 2},
    BOOST: {"Master": 1, "Worker": 1},
    JAX: {"Worker": 1},
    PADDLE: {"Worker": 1},
    MPI: {"Launcher": 1, "Worker": 2},
}
DECIDING = {
    TF: "chief-0",
    TORCH: "master-0",
    BOOST: "master-0",
    JAX: "worker-0",
    PADDLE: "worker-0",
    MPI: "launcher",
}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1500m"}}}
SPECS: dict[str, Object] = {TORCH: {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": [CPU]}}}


def name_of(kind: str) -> str:
    return kind.lower()


def running_jobs() -> Iterator[Object]:
    for kind, replicas in REPLICAS.items():
        policy = {"cleanPodPolicy": "Running"}
        yield manifest_of(kind, replicas, name_of(kind), runPolicy=policy, **SPECS.get(kind, {}))


def other_jobs() -> Iterator[Object]:
    """Jobs of which nothing runs: they have ended, are suspended, or are another controller's."""
    yield manifest_of(TF, {"Worker": 2}, "ended")
    yield manifest_of(TORCH, {"Worker": 1}, "suspended", runPolicy={"suspend": True})
    yield manifest_of(BOOST, {"Master": 1}, "elsewhere", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})


class Take:
    """The jobs of a namespace before another program takes them over."""

    def __init__(self, namespace: V1Namespace) -> None:
        self._namespace = namespace
        self._before = namespace.objects()
        # The second version of a job is the first that the next program has written.
        self._watched = {kind: namespace.api.list(job_path(namespace.name, kind)) for kind in KINDS}

    def children(self) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the versions of pods and Services before and now."""
        return versions_of(self._before, "Pod", "Service"), versions_of(self._namespace.objects(), "Pod", "Service")

    def mpi_objects(self) -> tuple[set[str], set[str]]:
        """Returns the UIDs of the objects of MPIJobs before and now."""
        return set(versions_of(self._before, *OF_MPI)), set(versions_of(self._namespace.objects(), *OF_MPI))

    def changed_jobs(self) -> dict[str, tuple[Object, Object]]:
        """Returns the statuses before and now of jobs that were written."""
        now = self._namespace.objects()
        jobs = {each["metadata"]["uid"]: each for kind in KINDS for each in now[kind]}
        return {
            each["metadata"]["name"]: (each.get("status", {}), jobs[each["metadata"]["uid"]].get("status", {}))
            for kind in KINDS
            for each in self._before[kind]
            if jobs[each["metadata"]["uid"]]["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]
        }


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_plane("v1takeover", Options()) as cluster, FakeKubelet(cluster.api):
        yield cluster


def submit_all(namespace: V1Namespace) -> None:
    for manifest in (*running_jobs(), *other_jobs()):
        namespace.submit(manifest)
    end_pod(namespace, "ended-worker-0")
    await_rest(namespace.api, [namespace])
    states = {kind: state(namespace, kind, name_of(kind)) for kind in KINDS}
    assert states == dict.fromkeys(KINDS, "Running")
    assert state(namespace, TF, "ended") == "Succeeded"


def end_pod(namespace: V1Namespace, pod: str) -> None:
    eventually(lambda: pod_phase(namespace, pod) == "Running")
    set_pod_terminated(namespace.api, namespace.name, pod)


def state(namespace: V1Namespace, kind: str, name: str) -> str:
    """Returns the type of the last condition, as the column State shows it."""
    conditions = namespace.api.get(job_path(namespace.name, kind, name)).get("status", {}).get("conditions") or ()
    return str(conditions[-1]["type"]) if conditions else ""


def end_all(namespace: V1Namespace) -> None:
    """Ends the deciding pods, and waits for the ends of the jobs and the clean-up of the other pods."""
    for kind, replica in DECIDING.items():
        end_pod(namespace, f"{name_of(kind)}-{replica}")
    await_rest(namespace.api, [namespace])
    assert {kind: state(namespace, kind, name_of(kind)) for kind in KINDS} == dict.fromkeys(KINDS, "Succeeded")
    pods = {each["metadata"]["name"] for each in namespace.objects()["Pod"]}
    assert pods == {"ended-worker-0", "ended-worker-1", *(f"{name_of(kind)}-{DECIDING[kind]}" for kind in KINDS)}


def autoscaler_of(namespace: V1Namespace) -> tuple[str, Object]:
    """Returns the UID and the spec of the only HorizontalPodAutoscaler."""
    (found,) = namespace.api.list(f"/apis/autoscaling/v2/namespaces/{namespace.name}/horizontalpodautoscalers")
    return found["metadata"]["uid"], found["spec"]


def is_admitted(api: Api, namespace: V1Namespace) -> bool:
    """Reports whether a job with two chiefs is accepted, which training-operator's webhooks refuse."""
    manifest = manifest_of(TF, {"Chief": v1_replicas(TF, 1), "Master": v1_replicas(TF, 1)}, "two")
    try:
        api.create(f"{job_path(namespace.name, TF)}?dryRun=All", manifest)
    except RefusedError as error:
        return "must not have more than 1 Chief or Master role" not in str(error)
    return True


def test_jobs_go_on_under_this_controller_and_back(cluster: Cluster) -> None:
    api = cluster.api
    first, second = (V1Namespace(api, new_namespace(api)) for _ in range(2))
    # One after the other, since the operator runs the jobs of one namespace.
    operator = TrainingOperator(cluster.own, first.name)
    operator.install()
    operator.start()
    eventually(lambda: not is_admitted(api, first))
    submit_all(first)
    take, autoscaler = Take(first), autoscaler_of(first)
    operator.stop()
    assert is_admitted(api, first)
    with running_controller(cluster.kubeconfig, first.name, **OPTIONS):
        await_rest(api, [first])
        before, after = take.children()
        assert after == before
        assert take.changed_jobs() == {}
        assert autoscaler_of(first) == autoscaler
        # Those are written, since without the labels they are not watched.
        before_objects, objects = take.mpi_objects()
        assert objects == before_objects
        found = first.objects()
        assert {labels_of(each).get(JOB_NAME_LABEL) for kind in OF_MPI for each in found[kind]} == {name_of(MPI)}
        end_all(first)

    with running_controller(cluster.kubeconfig, second.name, **OPTIONS):
        submit_all(second)
        take, autoscaler = Take(second), autoscaler_of(second)
    operator = TrainingOperator(cluster.own, second.name)
    operator.start()
    await_rest(api, [second])
    before, after = take.children()
    assert after == before
    assert take.changed_jobs() == {}
    assert autoscaler_of(second) == autoscaler
    before_objects, objects = take.mpi_objects()
    assert objects == before_objects
    end_all(second)
    operator.stop()
