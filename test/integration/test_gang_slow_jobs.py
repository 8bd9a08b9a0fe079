"""A Job controller at its default limits makes about ten pods in a second: a large gang is not given up for that."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from helpers.auditor import gang_auditor
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangkeeper import Keeper
from helpers.gangscheduler import extender_url, running_gang_scheduler
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import eventually
from localcluster import process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.fakekubelet import make_node
from localcluster.gangscheduler import GangScheduler
from localcluster.programs import Options

pytestmark = pytest.mark.cluster

REPLICAS = 300
NODES = 6
# kube-controller-manager's own, which the test stacks raise otherwise (its pkg/controller/apis/config/v1alpha1 and
# pkg/controller/job/config/v1alpha1).
DEFAULTS = ("--kube-api-qps=20", "--kube-api-burst=30", "--concurrent-job-syncs=5")
# It takes 35 to 45 s, whatever else the machine does.
PATIENCE_SECONDS = 240.0
# Less than that: what counts is the time without any new pod.
BIND_TIMEOUT_SECONDS = 15.0


@pytest.fixture
def slow_plane() -> Iterator[Cluster]:
    """A control plane whose controllers have their default limits."""
    if stack.existing_kubeconfig() is not None:
        pytest.skip("needs a control plane with flags of its own: unset KUBECONFIG")
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-slow")
    options = Options(controller_manager_flags=DEFAULTS)
    with ControlPlane(folder, options, owner=process.identify(os.getpid())) as plane:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        api.create("/api/v1/namespaces", {"metadata": {"name": "gangs"}})
        for number in range(NODES):
            room = {"cpu": str(REPLICAS // NODES), "memory": "64Gi", "pods": "110"}
            make_node(api, f"node-{number}", room)
        yield Cluster(plane.kubeconfig, api, plane)
        api.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_a_gang_of_300_is_bound_in_its_first_attempt_though_its_pods_come_slowly(slow_plane: Cluster) -> None:
    template = pod_template(container(resources={"requests": {"cpu": "1"}}))
    job = tfjob(master(template=template), workers(REPLICAS - 1, template=template), gang={"enabled": True})
    keeper = Keeper(slow_plane.api)
    with (
        gang_auditor(slow_plane.kubeconfig, "--bind-deadline=60"),
        running_gang_scheduler(slow_plane.kubeconfig, bind_timeout=BIND_TIMEOUT_SECONDS) as scheduler,
        GangScheduler(slow_plane.own, extender_url(scheduler)),
        running_controller(slow_plane.kubeconfig, "gangs"),
    ):
        Jobs(slow_plane.api, "gangs").submit(job)
        (gang,) = eventually(keeper.look)
        (found,) = keeper.await_phase("Bound", gang, timeout=PATIENCE_SECONDS).values()
    assert found.is_whole
    assert (found.attempt, found.bound) == (1, REPLICAS)
