"""The gang scheduler beside a real, unmodified kube-scheduler: all pods of a gang, or none."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import NAME, GangScheduler
from tfjob_controller import gangscheduler
from tfjob_controller.flags import BindAddress
from tfjob_controller.kube.config import load_config
from tfjob_controller.options import ExtenderOptions

ANY_PORT = BindAddress("127.0.0.1", 0)
SMALL = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "8Gi", "pods": "20"}
GANGS = "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{}/gangs"

Object = dict[str, Any]


@contextlib.contextmanager
def running(cluster: Cluster, **options: Any) -> Iterator[gangscheduler.GangScheduler]:
    given: dict[str, Any] = {
        "kubeconfig": str(cluster.kubeconfig),
        "qps": 0.0,
        "extender_bind_address": ANY_PORT,
        "metrics_bind_address": ANY_PORT,
        "health_probe_bind_address": ANY_PORT,
    }
    stop = threading.Event()
    scheduler = gangscheduler.GangScheduler(
        ExtenderOptions(**{**given, **options}), load_config(str(cluster.kubeconfig)), stop=stop
    )
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(scheduler.run()), name="gang-scheduler")
    thread.start()
    try:
        eventually(lambda: not scheduler.problems(), 30)
        yield scheduler
    finally:
        stop.set()
        thread.join(20)
    assert codes == [0], "the gang scheduler did not stop in time"


@pytest.fixture
def gang_cluster(own_control_plane: Cluster, tmp_path: Path) -> Cluster:
    """A cluster of two small nodes."""
    Kubectl(own_control_plane.kubeconfig, tmp_path).install_crds()
    for name in ("node-a", "node-b"):
        make_node(own_control_plane.api, name, SMALL)
    return own_control_plane


@pytest.fixture
def both(gang_cluster: Cluster) -> Iterator[Cluster]:
    """With the gang scheduler and its kube-scheduler at work."""
    with running(gang_cluster) as scheduler:
        assert scheduler.extender is not None
        with GangScheduler(gang_cluster.own, f"http://127.0.0.1:{scheduler.extender.port}"):
            yield gang_cluster


class Owner:
    """A plain owner of gangs: writes the Gang, and makes its pods once it is admitted. Anybody could be one."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def submit(self, name: str, cpu: str = "1", **members: int) -> None:
        spec = {
            "members": [{"name": kind, "count": count, "resources": {"cpu": cpu}} for kind, count in members.items()]
        }
        body = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        self._api.create(GANGS.format(self._namespace), {**body, "spec": spec})

    def status(self, name: str) -> Object:
        found: Object = self._api.get(f"{GANGS.format(self._namespace)}/{name}").get("status", {})
        return found

    def await_phase(self, name: str, phase: str, timeout: float = 20.0) -> Object:
        eventually(lambda: self.status(name).get("phase") == phase, timeout, 0.05)
        return self.status(name)

    def make_pods(self, name: str, cpu: str = "1", skip: frozenset[str] = frozenset()) -> None:
        status = self.status(name)
        for place in status["placement"]:
            for member in place["members"]:
                if member not in skip:
                    self.make_pod(name, member, status["attempt"], cpu)

    def make_pod(self, name: str, member: str, attempt: int, cpu: str = "1") -> None:
        prefix = "scheduling.kubeflow.org"
        labels = {f"{prefix}/gang": name, f"{prefix}/member": member, f"{prefix}/attempt": str(attempt)}
        self._api.create(
            f"/api/v1/namespaces/{self._namespace}/pods", pod(f"{name}-{member}-{attempt}", cpu, labels, NAME)
        )

    def nodes(self, name: str) -> Mapping[str, str]:
        """Where the gang's pods are, by member; empty for one without a node."""
        found = self._api.list(f"/api/v1/namespaces/{self._namespace}/pods", f"scheduling.kubeflow.org/gang={name}")
        return {
            each["metadata"]["labels"]["scheduling.kubeflow.org/member"]: each["spec"].get("nodeName", "")
            for each in found
        }


def pod(name: str, cpu: str, labels: Mapping[str, str] | None = None, scheduler: str = "default-scheduler") -> Object:
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}


@pytest.fixture
def owner(both: Cluster) -> Owner:
    both.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gangs"}})
    return Owner(both.api, "gangs")


def test_a_gang_that_fits_is_admitted_and_all_its_pods_are_bound_where_it_was_placed(owner: Owner) -> None:
    owner.submit("one", worker=3, ps=2)
    status = owner.await_phase("one", "Admitted")
    owner.make_pods("one")
    owner.await_phase("one", "Bound")
    placed = {member: place["node"] for place in status["placement"] for member in place["members"]}
    assert owner.nodes("one") == placed
    assert len(placed) == 5


def test_of_two_gangs_that_together_do_not_fit_one_runs_and_the_other_waits_with_words(owner: Owner) -> None:
    owner.submit("first", worker=6)
    owner.await_phase("first", "Admitted")
    owner.submit("second", worker=6)
    waiting = owner.await_phase("second", "Waiting")
    assert waiting["position"] == 1
    assert "cpu" in waiting["message"]
    owner.make_pods("first")
    owner.await_phase("first", "Bound")
    assert owner.nodes("second") == {}


def test_a_gang_starts_as_soon_as_another_has_gone(owner: Owner, both: Cluster) -> None:
    owner.submit("first", worker=6)
    owner.await_phase("first", "Admitted")
    owner.make_pods("first")
    owner.await_phase("first", "Bound")
    owner.submit("second", worker=6)
    owner.await_phase("second", "Waiting")
    for member in owner.nodes("first"):
        both.api.delete(f"/api/v1/namespaces/gangs/pods/first-{member}-1", gracePeriodSeconds=0)
    owner.await_phase("first", "Released")
    owner.await_phase("second", "Admitted")


def test_no_pod_of_a_gang_is_bound_before_the_last_one_has_come(owner: Owner) -> None:
    owner.submit("slow", worker=3)
    status = owner.await_phase("slow", "Admitted")
    owner.make_pods("slow", skip=frozenset({"worker-2"}))
    with pytest.raises(AssertionError):
        eventually(lambda: any(owner.nodes("slow").values()), 3)
    owner.make_pod("slow", "worker-2", status["attempt"])
    owner.await_phase("slow", "Bound")
    assert all(owner.nodes("slow").values())
