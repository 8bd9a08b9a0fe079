"""Programs are removed beside running jobs by the commands of the docs: objects of jobs are deleted only with the CRDs.

All is real but the kubelet: manifests, controller, gang scheduler with its kube-scheduler, Job controller.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.cluster import Cluster, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.docs import commands, section
from helpers.docsshell import Shell, run_all
from helpers.gangscheduler import running_gang_scheduler
from helpers.manifests import master, tfjob, workers
from helpers.renderings import SYSTEM
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.gangscheduler import NAME, GangScheduler
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

GANGS_PAGE, INSTALL_PAGE = "docs/gang-scheduling.md", "docs/install.md"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OF_THE_GANG_SCHEDULER = tuple(
    f"{group}/{'' if plural.startswith(('cluster', 'validating')) else f'namespaces/{SYSTEM}/'}{plural}"
    for group, plurals in {
        "/apis/apps/v1": ("deployments",),
        "/apis/policy/v1": ("poddisruptionbudgets",),
        "/api/v1": ("configmaps", "serviceaccounts"),
        RBAC: ("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
        "/apis/admissionregistration.k8s.io/v1": (
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ),
    }.items()
    for plural in plurals
)
GANGED, PLAIN, TRAIN = "ganged", "plain", "train"
GANG = {"enabled": True}


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the operator and the gang scheduler, and jobs of both kinds that run in one namespace.

    `gang_scheduler` holds the processes of the gang scheduler, `operator` the controller: whoever deletes a Deployment
    closes its stack.
    """

    api: Api
    shell: Shell
    tfjobs: Jobs
    trainjobs: Jobs
    gang_scheduler: contextlib.ExitStack
    operator: contextlib.ExitStack

    def jobs_and_pods(self) -> dict[str, str]:
        """The UIDs of the CRDs, the jobs, the Gangs and all pods that stay."""
        inside = f"namespaces/{self.tfjobs.namespace}"
        paths = (
            CRDS,
            self.tfjobs.path,
            self.trainjobs.path,
            f"/apis/scheduling.kubeflow.org/v1alpha1/{inside}/gangs",
            f"/api/v1/{inside}/pods",
        )
        return {
            f"{path}/{each['metadata']['name']}": each["metadata"]["uid"]
            for path in paths
            for each in self.api.list(path)
            if "deletionTimestamp" not in each["metadata"]
        }

    def owned_by_the_gang_scheduler(self) -> list[str]:
        return [
            f"{path}/{each['metadata']['name']}"
            for path in OF_THE_GANG_SCHEDULER
            for each in self.api.list(path)
            if each["metadata"]["name"].startswith(NAME)
        ]

    def run_jobs(self) -> None:
        self.tfjobs.submit(tfjob(master(), workers(2), name=GANGED, gang=GANG))
        self.tfjobs.submit(tfjob(master(), workers(1), name=PLAIN))
        self.trainjobs.submit(trainjob(TRAIN, 2, ["torchrun"], gang=GANG))
        for jobs, name in ((self.tfjobs, GANGED), (self.tfjobs, PLAIN), (self.trainjobs, TRAIN)):
            jobs.await_phase("Running", name, 60)


@pytest.fixture
def site(own_control_plane: Cluster, tmp_path: Path) -> Iterator[Site]:
    """What the commands of the gang scheduler's page install, at work."""
    kubeconfig, api = own_control_plane.kubeconfig, own_control_plane.api
    namespace = new_namespace(api)
    shell = Shell(tmp_path, kubeconfig)
    with (
        FakeKubelet(Api.from_kubeconfig(kubeconfig)),
        contextlib.ExitStack() as gang_scheduler,
        contextlib.ExitStack() as operator,
    ):
        run_all(shell, section(GANGS_PAGE, "## Install")[:2])
        extender = gang_scheduler.enter_context(running_gang_scheduler(kubeconfig)).extender
        assert extender is not None
        gang_scheduler.enter_context(GangScheduler(own_control_plane.own, f"http://127.0.0.1:{extender.port}"))
        operator.enter_context(running_controller(kubeconfig, namespace))
        jobs = Jobs(api, namespace), Jobs(api, namespace, TRAINJOBS)
        site = Site(api, shell, *jobs, gang_scheduler, operator)
        site.run_jobs()
        yield site


def test_jobs_outlive_the_gang_scheduler_and_the_operator_and_end_with_the_crds(site: Site) -> None:
    before = site.jobs_and_pods()
    deployment = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/tfjob-controller"
    operator = site.api.get(deployment)["metadata"]["uid"]
    assert len(site.owned_by_the_gang_scheduler()) >= len(OF_THE_GANG_SCHEDULER)

    run_all(site.shell, section(GANGS_PAGE, "### Remove it"))
    site.gang_scheduler.close()

    assert site.owned_by_the_gang_scheduler() == []
    assert site.api.get(deployment)["metadata"]["uid"] == operator
    # The operator works, and looks at all jobs, for it creates a new one's pods and ends those that ran.
    site.tfjobs.submit(tfjob(master(), name="new"))
    site.tfjobs.await_phase("Running", "new", 60)
    assert before.items() <= site.jobs_and_pods().items()
    for name in (GANGED, "new"):
        site.tfjobs.end_replica("master", job=name)
        assert site.tfjobs.await_phase("Done", name, 60)["state"] == "Succeeded"

    runtimes = [each for each in commands(INSTALL_PAGE) if each.text.startswith("kubectl apply -k manifests/base/")]
    run_all(site.shell, runtimes)
    site.operator.close()
    before = site.jobs_and_pods()
    *programs, jobs, crds = section(INSTALL_PAGE, "## Remove")
    looks = [each for each in programs if each.text.startswith("kubectl get ")]
    shown = run_all(site.shell, looks)
    run_all(site.shell, programs)
    assert site.api.find(f"/api/v1/namespaces/{SYSTEM}") is None
    # What the page says to look at shows jobs and CRDs as before, and nothing else any more.
    left = run_all(site.shell, looks)
    assert all(shown)
    assert [bool(out) for out in left] == [True, True, False, False]
    assert site.jobs_and_pods() == before
    run_all(site.shell, [jobs])
    assert site.api.list(f"/api/v1/namespaces/{site.tfjobs.namespace}/pods") == []
    run_all(site.shell, [crds])
    assert site.api.list(CRDS) == []
