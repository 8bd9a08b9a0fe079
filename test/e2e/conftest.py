"""What all end-to-end tests share: namespaces on the real nodes, and the real controller over them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.poll import eventually
from helpers.realtrainjobs import TrainJobs
from helpers.s3server import S3Server
from localcluster import images, network
from localcluster import nodes as nodes_module
from localcluster.crds import install_crds
from tfjob_controller.api.controllerconfig import ControllerConfig

# By file, and begun in this order: nobody should be left with a long one while other workers have nothing to do.
LONGEST = (
    "test_demo_autoscale.py",
    "test_autoscale.py",
    "test_replica_ends.py",
    "test_deployment.py",
    "test_demo.py",
    "test_production.py",
    "test_failures.py",
    "test_first_hour.py",
    "test_samples.py",
    "test_cluster_up.py",
    "test_gang_deployment.py",
    "test_trainjob_storage.py",
    "test_mistakes.py",
    "test_log_following.py",
    "test_overlays.py",
    "test_trainjobs.py",
    "test_kubeflow_sdk.py",
    "test_progress_reports.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called with the tests of all folders that were asked for; those of other folders stay where they are."""
    here = Path(__file__).parent
    ordered = iter(sorted((item for item in items if item.path.parent == here), key=_rank))
    items[:] = [next(ordered) if item.path.parent == here else item for item in items]


def _rank(item: pytest.Item) -> int:
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)


@pytest.fixture
def space(nodes: Cluster) -> Iterator[str]:
    """A namespace on the real nodes whose ServiceAccount pods can use at once."""
    name = new_namespace(nodes.api, "nodes")
    eventually(lambda: nodes.api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    yield name
    delete_namespace(nodes.api, name)


@pytest.fixture
def own_nodes(nodes: Cluster) -> Cluster:
    """Nodes that a test may hurt, and whose images are ours."""
    if nodes.plane is None:
        pytest.skip("hurts its nodes, so it needs nodes of its own: unset KUBECONFIG")
    return nodes


@pytest.fixture(scope="session")
def tensorflow(nodes: Cluster) -> None:
    """The nodes have TensorFlow's image."""
    if nodes.plane is None:
        pytest.skip("needs the image localhost/tensorflow, which an existing cluster may not have: unset KUBECONFIG")
    nodes_module.load_image(nodes.folder, images.TENSORFLOW)


@pytest.fixture
def kubectl(nodes: Cluster, space: str, tmp_path: Path) -> Kubectl:
    return Kubectl(nodes.kubeconfig, tmp_path / "kubectl", space)


@pytest.fixture(scope="session")
def installed_kinds(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Installs the operator's kinds and the built-in runtimes, unless an earlier test has and nobody removed them."""
    kubectl = Kubectl(nodes.kubeconfig, tmp_path_factory.mktemp("kubectl"))
    uids: set[str] = set()

    def install() -> None:
        last = nodes.api.find("/apis/kubeflow.org/v2alpha1/clustertrainingruntimes/xgboost-distributed")
        if last is not None and last["metadata"]["uid"] in uids:
            return
        install_crds(nodes.api)
        kubectl.must("apply", "--server-side", "--force-conflicts", "-k", str(MANIFESTS / "base" / "runtimes"))
        last = nodes.api.get("/apis/kubeflow.org/v2alpha1/clustertrainingruntimes/xgboost-distributed")
        uids.add(last["metadata"]["uid"])

    return install


@pytest.fixture
def jobs(nodes: Cluster, space: str, installed_kinds: Callable[[], None]) -> Iterator[Jobs]:
    """The TFJobs of the test's namespace, and a controller at work there."""
    installed_kinds()
    with running_controller(nodes.kubeconfig, space):
        yield Jobs(nodes.api, space)


@pytest.fixture
def trainjobs(nodes: Cluster, space: str, kubectl: Kubectl, installed_kinds: Callable[[], None]) -> Iterator[TrainJobs]:
    """The TrainJobs of the test's namespace, with the built-in runtimes, and a controller at work there."""
    installed_kinds()
    config = ControllerConfig(initializer_image=images.INITIALIZER)
    with running_controller(nodes.kubeconfig, space, config=config):
        yield TrainJobs(nodes, space, kubectl)


@pytest.fixture
def s3(nodes: Cluster, space: str) -> Iterator[S3Server]:
    """An S3 server with the bucket of the samples where pods can reach it, and the Secret that the samples name."""
    if nodes.plane is None:
        pytest.skip("serves on the address of its own nodes' bridge: unset KUBECONFIG")
    plan = network.claim_of(nodes.folder.absolute())
    assert plan is not None
    with S3Server(plan.host) as s3:
        client = s3.client()
        client.create_bucket(Bucket="checkpoints")
        data = {name: base64.b64encode(value.encode()).decode() for name, value in s3.environ.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "storage"}, "data": data}
        nodes.api.create(f"/api/v1/namespaces/{space}/secrets", secret)
        yield s3
        # Buckets of the server outlive it in this process.
        for each in client.list_objects_v2(Bucket="checkpoints").get("Contents", ()):
            client.delete_object(Bucket="checkpoints", Key=each["Key"])
        client.delete_bucket(Bucket="checkpoints")


@pytest.fixture
def shared_claim(nodes: Cluster, space: str, tmp_path: Path) -> Iterator[str]:
    """A claim that pods on all nodes may write at once: these nodes see one disk."""
    if nodes.plane is None:
        pytest.skip("needs nodes that share a disk: unset KUBECONFIG")
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": space}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": space},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": common["accessModes"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": space, "name": "shared"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared"},
        "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}},
    }
    nodes.api.create("/api/v1/persistentvolumes", volume)
    nodes.api.create(f"/api/v1/namespaces/{space}/persistentvolumeclaims", claim)
    yield "shared"
    nodes.api.delete(f"/api/v1/persistentvolumes/{space}")
