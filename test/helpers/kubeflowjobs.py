"""TrainJobs of Kubeflow Trainer on a real API server, with a controller that runs them and a stand-in for kubelets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import running_controller
from helpers.kubeflowmanifests import kubeflow_trainjob
from helpers.playground import Script
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import DEFAULT_NODES, DEFAULT_RESOURCES, FakeKubelet
from localcluster.kubeflowtrainer import RUNTIMES, install_kubeflow_crds, kubeflow_manifests, kubeflow_runtimes
from localcluster.podstatus import Outcome
from tfjob_controller.programs.manager import Manager

Object = dict[str, Any]

GROUP_PATH = "/apis/trainer.kubeflow.org/v1alpha1"
RUNTIMES_PATH = f"{GROUP_PATH}/clustertrainingruntimes"


@dataclass(frozen=True, slots=True)
class KubeflowCluster:
    """A controller with --kubeflow-trainer-api, upstream's CRDs and runtimes, and a namespace."""

    api: Api
    namespace: str
    script: Script
    manager: Manager
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def submit(self, runtime: str = "torch-distributed", **spec: Any) -> KubeflowTrial:
        """Creates a TrainJob with a name of its own."""
        trial = KubeflowTrial(self, f"job-{next(self.numbers)}")
        return trial.submit(kubeflow_trainjob(trial.name, runtime, **spec))

    def trial(self) -> KubeflowTrial:
        return KubeflowTrial(self, f"job-{next(self.numbers)}")


@dataclass(frozen=True, slots=True)
class KubeflowTrial:
    """One TrainJob."""

    cluster: KubeflowCluster
    name: str

    @property
    def path(self) -> str:
        return f"{GROUP_PATH}/namespaces/{self.cluster.namespace}/trainjobs"

    def submit(self, manifest: Object) -> KubeflowTrial:
        self.cluster.api.create(self.path, manifest)
        return self

    def plays(self, replica: str, *outcomes: Outcome) -> None:
        self.cluster.script.plays(self.name, replica, *outcomes)

    def get(self) -> Object:
        return self.cluster.api.get(f"{self.path}/{self.name}")

    def change(self, **spec: Any) -> Object:
        return self.cluster.api.patch(f"{self.path}/{self.name}", {"spec": spec})

    def status(self) -> Object:
        status: Object = self.get().get("status", {})
        return status

    def conditions(self) -> dict[str, Object]:
        return {each["type"]: each for each in self.status().get("conditions", ())}

    def job_status(self, name: str = "node") -> Object:
        found = [each for each in self.status().get("jobsStatus", ()) if each["name"] == name]
        return found[0] if found else {}

    def await_condition(self, condition_type: str, status: str = "True") -> Object:
        return self.eventually(
            lambda: (found := self.conditions().get(condition_type, {})).get("status") == status and found
        )

    def eventually(self, found: Callable[[], Any]) -> Any:
        try:
            return eventually(found)
        except AssertionError:
            raise AssertionError(f"the last state was {self.get()}") from None

    def children(self, plural: str) -> dict[str, Object]:
        group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        found = self.cluster.api.list(f"{group}/namespaces/{self.cluster.namespace}/{plural}", "kubeflow.org")
        return {
            each["metadata"]["name"]: each
            for each in found
            if each["metadata"]["labels"].get("train_job_name") == self.name
        }

    def await_job(self, replicated_job: str = "node") -> Object:
        """Waits for the Job of a replicated job."""
        found: Object = self.eventually(lambda: self.children("jobs").get(f"{self.name}-{replicated_job}-0"))
        return found

    def await_pods(self, count: int) -> list[Object]:
        def all_run() -> list[Object]:
            pods = [*self.children("pods").values()]
            runs = [each for each in pods if each.get("status", {}).get("phase") == "Running"]
            return runs if len(runs) == count else []

        found: list[Object] = self.eventually(all_run)
        return found


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
        yield KubeflowCluster(api, namespace, script, manager)
    delete_namespace(api, namespace)
