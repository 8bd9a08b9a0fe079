"""TrainJobs of Kubeflow Trainer on a real API server, with a controller that runs them and a stand-in for kubelets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.kubeflowmanifests import kubeflow_trainjob
from helpers.playground import Playground, Script, Trial
from helpers.poll import eventually, until
from localcluster.api import Api
from localcluster.fakekubelet import DEFAULT_NODES, DEFAULT_RESOURCES, FakeKubelet
from localcluster.kubeflowtrainer import RUNTIMES, install_kubeflow_crds, kubeflow_manifests, kubeflow_runtimes
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS
from tfjob_controller.jobs.naming import TRAIN_JOB_NAME

Object = dict[str, Any]

GROUP_PATH = "/apis/trainer.kubeflow.org/v1alpha1"
RUNTIMES_PATH = f"{GROUP_PATH}/clustertrainingruntimes"


class KubeflowCluster(Playground):
    """A playground of a controller with --kubeflow-trainer-api; `jobs` are the TrainJobs of its namespace."""

    __slots__ = ()

    @property
    def api(self) -> Api:
        return self.jobs.api

    @property
    def namespace(self) -> str:
        return self.jobs.namespace

    def submit(self, runtime: str = "torch-distributed", **spec: Any) -> KubeflowTrial:
        """Creates a TrainJob with a name of its own."""
        trial = KubeflowTrial(self, f"job-{next(self.numbers)}")
        self.jobs.submit(kubeflow_trainjob(trial.name, runtime, **spec))
        return trial


class KubeflowTrial(Trial):
    """One TrainJob."""

    __slots__ = ()

    def __init__(self, cluster: KubeflowCluster, name: str) -> None:
        super().__init__(cluster, name, cluster.jobs, container="")

    @property
    def path(self) -> str:
        return self.jobs.path

    def conditions(self) -> dict[str, Object]:
        return {each["type"]: each for each in self.status().get("conditions", ())}

    def job_status(self, name: str = "node") -> Object:
        found = [each for each in self.status().get("jobsStatus", ()) if each["name"] == name]
        return found[0] if found else {}

    def await_condition(self, condition_type: str) -> Object:
        """Waits until the condition is true; returns it."""
        found: Object = self.eventually(
            lambda: (condition := self.conditions().get(condition_type, {})).get("status") == "True" and condition
        )
        return found

    def eventually(self, found: Callable[[], Any]) -> Any:
        try:
            return eventually(found)
        except AssertionError:
            raise AssertionError(f"the last state was {self.get()}") from None

    def children(self, plural: str) -> dict[str, Object]:
        children = self.jobs.children(plural).items()
        return {name: child for name, child in children if child["metadata"]["labels"].get(TRAIN_JOB_NAME) == self.name}

    def await_job(self) -> Object:
        """Waits for the Job of the nodes."""
        found: Object = self.eventually(lambda: self.children("jobs").get(f"{self.name}-node-0"))
        return found

    def await_pods(self, count: int) -> list[Object]:
        """Waits until so many pods run."""

        def running() -> list[Object]:
            return [pod for pod in self.children("pods").values() if pod.get("status", {}).get("phase") == "Running"]

        return until(running, lambda pods: len(pods) == count)


def local_torch_runtime() -> Object:
    """Returns upstream's torch-distributed without pulls: a kubelet asks a registry if an image has no tag."""
    (runtime,) = kubeflow_manifests(f"{RUNTIMES}/torch_distributed.yaml")
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    return runtime


@contextmanager
def kubeflow_cluster(
    control_plane: Cluster,
    *,
    nodes: Sequence[str] = DEFAULT_NODES,
    resources: Mapping[str, str] = DEFAULT_RESOURCES,
    **options: Any,
) -> Iterator[KubeflowCluster]:
    """Runs a controller with these options; simulated kubelets run the pods of a new namespace on these nodes."""
    api, script = control_plane.api, Script()
    install_kubeflow_crds(api)
    for runtime in kubeflow_runtimes():
        api.create_if_missing(RUNTIMES_PATH, runtime)
    namespace = new_namespace(api, "kubeflow")
    with (
        FakeKubelet(
            Api.from_kubeconfig(control_plane.own.kubeconfig),
            namespace=namespace,
            nodes=nodes,
            resources=resources,
            behaviour=script,
        ),
        running_controller(control_plane.kubeconfig, namespace, kubeflow_trainer_api=True, **options) as manager,
    ):
        yield KubeflowCluster(manager, Jobs(api, namespace, KUBEFLOW_TRAINJOBS), script)
    delete_namespace(api, namespace)
