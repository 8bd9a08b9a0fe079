"""kubectl and this tree's kinds, for tests on the shared control plane; a controller that many tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.playground import CONFIG, Playground, Script, Trial
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet


@pytest.fixture(scope="session")
def administrator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """In namespace default, with the CRDs applied."""
    kubectl = Kubectl(control_plane.kubeconfig, tmp_path_factory.mktemp("kubectl"))
    kubectl.install_crds()
    return kubectl


@pytest.fixture
def kubectl(administrator: Kubectl, namespace: str) -> Kubectl:
    """In the test's own namespace, with the CRDs applied."""
    return Kubectl(administrator.kubeconfig, administrator.cache, namespace)


@pytest.fixture(scope="session")
def playground(control_plane: Cluster, administrator: Kubectl) -> Iterator[Playground]:
    """A controller and a kubelet in a namespace of this worker's own, for all tests that need no other."""
    if control_plane.plane is None:
        pytest.skip("plays the kubelet, and an existing cluster has real ones: unset KUBECONFIG")
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
