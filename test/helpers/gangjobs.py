"""Jobs of both kinds that another project's scheduler runs as gangs, for the tests in test/interop.

Every replica requests one CPU, so that quotas and nodes of few CPUs are shared by small jobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from helpers.cluster import Cluster, delete_namespace, own_plane, set_pod_terminated
from helpers.controller import Jobs, running_controller
from helpers.manifests import container, pod_template, tfjob, workers
from helpers.playground import condition
from helpers.poll import eventually, until
from helpers.trainmanifests import override, trainjob
from localcluster import addons
from localcluster.api import Api, RefusedError
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

Object = dict[str, Any]

KINDS = ("TFJob", "TrainJob")
NODE = "node-a"
# A PriorityClass above the default priority.
HIGH = "interop-high"
PERIOD_SECONDS = 0.1
# A busy machine needs this long until two schedulers and a controller have dealt with a change.
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class GangJobs:
    """Jobs of one kind in a namespace whose controller has one of the backends."""

    kind: str
    backend: str
    jobs: Jobs
    namespace: str
    queue: str
    submitted: list[str] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.jobs.api

    def submit(
        self,
        name: str,
        replicas: int,
        *,
        queue: str | None = None,
        priority_class: str = "",
        minimum: int | None = None,
        **gang: Any,
    ) -> None:
        """Creates a job; `minimum` is how many replicas are enough for its start."""
        is_tfjob, of_gang = self.kind == "TFJob", {"enabled": True, **gang}
        manifest = _tfjob(replicas, of_gang, minimum) if is_tfjob else _trainjob(name, replicas, of_gang, minimum)
        if priority_class and is_tfjob:
            manifest["spec"]["priorityClassName"] = priority_class
        elif priority_class:
            manifest["spec"]["podSpecOverrides"] = [override(priorityClassName=priority_class)]
        label = BACKENDS[self.backend].queue_label
        labels = {label: self.queue if queue is None else queue} if label else {}
        manifest["metadata"] = {"name": name, "labels": labels}
        self.jobs.submit(manifest)
        self.submitted.append(name)

    def pods(self, name: str) -> dict[str, Object]:
        """Returns the job's pods that are not being deleted."""
        label = self.jobs.name_label
        return {
            pod: each
            for pod, each in self.jobs.children("pods").items()
            if each["metadata"]["labels"].get(label) == name and "deletionTimestamp" not in each["metadata"]
        }

    def bound(self, name: str) -> list[str]:
        """Returns the names of the job's pods that have a node."""
        return sorted(pod for pod, each in self.pods(name).items() if each["spec"].get("nodeName"))

    def await_pods(self, name: str, count: int) -> None:
        eventually(lambda: len(self.pods(name)) == count, PATIENCE_SECONDS)

    def await_running(self, name: str, replicas: int) -> None:
        def runs() -> bool:
            phases = [each.get("status", {}).get("phase") for each in self.pods(name).values()]
            return phases == ["Running"] * replicas and self.jobs.phase(name) == "Running"

        eventually(runs, PATIENCE_SECONDS)

    def await_stopped(self, name: str) -> None:
        """Waits until no pod of the job has a node."""
        eventually(lambda: not self.bound(name), PATIENCE_SECONDS)

    def await_reason(self, name: str, *words: str) -> str:
        return until(
            lambda: str(self.jobs.status(name).get("reason", "")),
            lambda reason: all(word in reason for word in words),
            PATIENCE_SECONDS,
        )

    def finish(self, name: str) -> None:
        for pod in self.pods(name):
            set_pod_terminated(self.api, self.namespace, pod, 0)
        self.jobs.await_phase("Done", name)

    def suspend(self, name: str, is_suspended: bool) -> None:
        self.jobs.change({"spec": {"suspend": is_suspended}}, name)

    def restarts(self, name: str) -> int:
        return int(self.jobs.status(name).get("restarts", 0))

    def scheduled(self, name: str) -> Object:
        return condition(self.jobs.status(name), "Scheduled")

    def groups(self) -> list[Object]:
        """Returns the objects by which the scheduler knows the gangs."""
        resource = BACKENDS[self.backend].resource
        return self.api.list(f"/apis/{resource.api_version}/namespaces/{self.namespace}/{resource.plural}")

    def await_no_groups(self) -> None:
        eventually(lambda: not self.groups(), PATIENCE_SECONDS)

    def delete_all(self) -> None:
        for name in self.submitted:
            self.jobs.delete(name)
        eventually(lambda: not self.jobs.children("pods"), PATIENCE_SECONDS)


def _tfjob(replicas: int, gang: Object, minimum: int | None) -> Object:
    template = pod_template(container(resources={"requests": {"cpu": "1"}}), restartPolicy="OnFailure")
    of_minimum = {} if minimum is None else {"minWorkers": minimum}
    return tfjob(workers(replicas, template=template), gang={**gang, **of_minimum})


def _trainjob(name: str, replicas: int, gang: Object, minimum: int | None) -> Object:
    bounds = {} if minimum is None else {"elasticPolicy": {"minNodes": minimum, "maxNodes": replicas}}
    requests = {"resourcesPerNode": {"requests": {"cpu": "1"}}}
    # The command would choose a framework whose jobs cannot be elastic.
    return trainjob(name, replicas, framework="torch", gang=gang, trainer=requests, **bounds)


@contextlib.contextmanager
def gang_jobs(cluster: Cluster, kind: str, backend: str, namespace: str, *, queue: str = "queue") -> Iterator[GangJobs]:
    """Starts a controller with that backend for the namespace; all jobs are deleted at the end."""
    resource = TFJOBS if kind == "TFJob" else TRAINJOBS
    jobs = GangJobs(kind, backend, Jobs(cluster.api, namespace, resource), namespace, queue)
    with running_controller(cluster.kubeconfig, namespace, gang_backend=backend):
        yield jobs
        jobs.delete_all()
    delete_namespace(cluster.api, namespace)


@dataclass(slots=True)
class RunningAddon:
    """The real program beside the control plane; it runs with the settings that were asked for last."""

    cluster: Cluster
    name: str
    settings: Mapping[str, Any] | None = None

    def run_with(self, settings: Mapping[str, Any]) -> None:
        if self.settings != settings:
            addons.start(self.cluster.own, self.name, settings)
            self.settings = settings


@contextlib.contextmanager
def gang_cluster(cpus: int) -> Iterator[Cluster]:
    """Starts a control plane with this project's CRDs and one node of so many CPUs, which has a fake kubelet."""
    resources = {"cpu": str(cpus), "memory": "32Gi", "ephemeral-storage": "32Gi", "pods": "100"}
    with own_plane("interop", Options()) as cluster:
        install_crds(cluster.api)
        with FakeKubelet(Api.from_kubeconfig(cluster.kubeconfig), nodes=(NODE,), resources=resources):
            yield cluster


def make_priority_class(api: Api) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": HIGH},
        "value": 1000,
    }
    api.create_if_missing("/apis/scheduling.k8s.io/v1/priorityclasses", body)


def retried(make: Callable[[], None]) -> None:
    """Repeats a request while a webhook of a program that has just started is not served yet."""

    def is_made() -> bool:
        try:
            make()
        except RefusedError as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return False
        return True

    eventually(is_made, PATIENCE_SECONDS)
