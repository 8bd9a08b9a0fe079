"""kubectl and this tree's kinds, for tests on the shared control plane."""

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl


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
