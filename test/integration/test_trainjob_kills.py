"""The controller is killed during a restart of all nodes: the next one completes the restart.

The nodes have one Job; with MPI the launcher has another one, so that a restart can be half done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.controller import Jobs
from helpers.controllerprocess import WORKING, controller_process
from helpers.kubectl import Kubectl
from helpers.playground import condition
from helpers.poll import eventually
from helpers.trainjobs import GENERATION, step_of
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Late, LoseRequest
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.jobs.naming import replica_id_of

pytestmark = pytest.mark.cluster

NAME, NODES, ALWAYS = "job", 3, 10**6
TORCHRUN, MPIRUN = ("torchrun",), ("mpirun",)

Object = dict[str, Any]


def lose(proxy: FaultProxy, method: str, path: str, passing: int) -> None:
    """All such requests but the first ones."""
    if passing:
        proxy.next(Late(0.0), times=passing, method=method, path=path)
    proxy.next(LoseRequest(), times=ALWAYS, method=method, path=path)


def generations(jobs: Jobs) -> list[str]:
    """Of its Jobs, but for those that are on their way out."""
    found = [each["metadata"] for each in jobs.children("jobs").values()]
    return sorted(each["labels"][GENERATION] for each in found if "deletionTimestamp" not in each)


def has_tried(proxy: FaultProxy, method: str) -> bool:
    return any(each.fault == LoseRequest() and each.method == method for each in proxy.seen)


@pytest.mark.parametrize(
    ("command", "method", "path", "passing", "left"),
    [
        pytest.param(TORCHRUN, "PATCH", f"/{NAME}/status", 0, ["0"], id="before it is counted"),
        # A Job is deleted in the version that was seen, so the first request of the other one may be a conflict.
        pytest.param(MPIRUN, "DELETE", f"/jobs/{NAME}-launcher-", 0, ["0"], id="when one of two Jobs is deleted"),
        pytest.param(MPIRUN, "POST", "/jobs", 1, ["1"], id="when one of two Jobs is made"),
    ],
)
def test_a_set_that_is_restarted_becomes_whole_whenever_its_controller_is_killed(
    control_plane: Cluster,
    kubectl: Kubectl,
    kubelet: FakeKubelet,
    api: Api,
    namespace: str,
    tmp_path: Path,
    command: tuple[str],
    method: str,
    path: str,
    passing: int,
    left: list[str],
) -> None:
    jobs = Jobs(api, namespace, TRAINJOBS)
    wanted = {"node": NODES} if command == TORCHRUN else {"launcher": 1, "node": NODES}

    def is_whole() -> bool:
        status = jobs.status(NAME)
        is_ready = all(step_of(status, role).get("ready") == count for role, count in wanted.items())
        return is_ready and condition(status, "Restarting")["status"] != "True"

    with FaultProxy(control_plane.own.server) as proxy:
        through = proxy.kubeconfig(tmp_path, control_plane.own.token)
        with controller_process(through, namespace, tmp_path / "first", "--qps=0") as controller:
            controller.await_log(WORKING)
            jobs.submit(trainjob(NAME, NODES, command=command, metrics={"names": []}))
            eventually(is_whole)
            lose(proxy, method, path, passing)
            (pod,) = [name for name in jobs.children("pods") if name.startswith(f"{NAME}-node-") and "-1-" in name]
            set_pod_terminated(api, namespace, pod, 137)
            eventually(lambda: has_tried(proxy, method) and generations(jobs) == left)
            controller.kill()
    with controller_process(control_plane.kubeconfig, namespace, tmp_path / "second"):
        eventually(lambda: is_whole() and generations(jobs) == ["1"] * len(wanted))
    status = jobs.status(NAME)
    assert status["restarts"] == 1
    pods = [each["metadata"]["labels"] for each in jobs.children("pods").values()]
    replicas = [f"{role}-{index}" for role, count in wanted.items() for index in range(count)]
    assert sorted((replica_id_of(each), each[GENERATION]) for each in pods) == [(each, "1") for each in replicas]
