"""kubectl and this tree's kinds, for tests on the shared control plane; a controller that many tests share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from helpers import plugin as plugins
from helpers.auditor import gang_auditor
from helpers.browser import chromium
from helpers.cluster import Cluster, clear_jobs, clear_nodes, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.gangowner import SMALL
from helpers.gangscheduler import running_schedulers
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.playground import CONFIG, NOBODYS_NODE, Playground, Script, Trial
from helpers.policies import Site, policy_site
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.certificates import of_loopback
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet, make_node


@pytest.fixture(scope="session")
def administrator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """In namespace default, with the CRDs applied."""
    install_crds(control_plane.api)
    return Kubectl(control_plane.kubeconfig, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def kubectl(administrator: Kubectl, namespace: str) -> Kubectl:
    """In the test's own namespace, with the CRDs applied."""
    return Kubectl(administrator.kubeconfig, administrator.cache, namespace)


@pytest.fixture(scope="module")
def crd_namespace(administrator: Kubectl, control_plane: Cluster) -> Iterator[str]:
    """A namespace for many tests that store nothing, or delete it again, with the CRDs applied."""
    name = new_namespace(control_plane.api)
    yield name
    delete_namespace(control_plane.api, name)


@pytest.fixture(scope="session")
def playground(control_plane: Cluster, administrator: Kubectl) -> Iterator[Playground]:
    """A controller and a kubelet in a namespace of this worker's own, for all tests that need no other."""
    if control_plane.plane is None:
        pytest.skip("plays the kubelet, and an existing cluster has real ones: unset KUBECONFIG")
    make_node(control_plane.api, NOBODYS_NODE)
    control_plane.api.patch(f"/api/v1/nodes/{NOBODYS_NODE}", {"spec": {"unschedulable": True}})
    namespace, script = new_namespace(control_plane.api, "playground"), Script()
    with (
        FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace, behaviour=script),
        running_controller(control_plane.kubeconfig, namespace, config=CONFIG) as manager,
    ):
        yield Playground(manager, Jobs(control_plane.api, namespace), script)
    delete_namespace(control_plane.api, namespace)


@pytest.fixture
def trial(playground: Playground) -> Iterator[Trial]:
    """A TFJob of the test's own, on the playground."""
    trial = playground.new_trial()
    yield trial
    trial.clear()


@pytest.fixture
def train(playground: Playground) -> Iterator[Trial]:
    """A TrainJob of the test's own, on the playground."""
    trial = playground.new_train_trial()
    yield trial
    trial.clear()


@pytest.fixture(scope="session")
def gang_plane(spare_control_plane: Cluster) -> Cluster:
    """A control plane of this worker's own, with the CRDs: tests of gangs are about its nodes."""
    install_crds(spare_control_plane.api)
    return spare_control_plane


@pytest.fixture
def gang_cluster(gang_plane: Cluster) -> Iterator[Cluster]:
    """Two small nodes with nothing on them, a namespace `gangs`, and an auditor that fails a test for what it saw."""
    api = gang_plane.api
    clear_jobs(api)
    clear_nodes(api)
    for name in ("node-a", "node-b"):
        make_node(api, name, SMALL)
    api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": "gangs"}})
    eventually(lambda: not api.list("/api/v1/namespaces/gangs/pods"))
    try:
        with gang_auditor(gang_plane.kubeconfig):
            yield gang_plane
    finally:
        # Others use this plane too, and would wait for pods on nodes that have no kubelet.
        clear_nodes(api)


@pytest.fixture
def gang_scheduling(gang_cluster: Cluster) -> Iterator[Cluster]:
    """The same with the gang scheduler and its kube-scheduler at work."""
    with running_schedulers(gang_cluster):
        yield gang_cluster


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A control plane of this worker's own with the shipped admission policies, for tests of those."""
    with policy_site(tmp_path_factory.mktemp("site"), "kubeflow-trainer", "node-autoscaler") as site:
        yield site


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A kubelet's certificate and its key."""
    return of_loopback(tmp_path_factory.mktemp("kubelet"), "kubelet")


@pytest.fixture
def logging_node(api: Api, pair: tuple[Path, Path]) -> Iterator[Kubelet]:
    with Kubelet(api, f"node-{secrets.token_hex(4)}", pair) as kubelet:
        yield kubelet


@pytest.fixture
def plugin(control_plane: Cluster, playground: Playground, capfd: pytest.CaptureFixture[str]) -> Iterator[plugins.Run]:
    """Runs `kubectl tfjob` in this process, in the playground's namespace unless told."""
    with plugins.quiet():
        yield plugins.runner(capfd, control_plane.kubeconfig, playground.jobs.namespace)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, in which the name evil.test leads to this machine, as after a DNS rebinding."""
    with chromium("--host-resolver-rules=MAP evil.test 127.0.0.1") as running:
        yield running
