"""The controller of jobs of `kubeflow.org/v1` without threads: see `controllerbench`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from helpers.controllerbench import NAMESPACE, POD_PATH, SERVICE_PATH, Recorded, settled, watcher_of
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi, Object
from helpers.v1manifests import v1_manifest, v1_replicas
from tfjob_controller.api.kubeflowv1.types import V1_KINDS, V1_RESOURCES, V1Job
from tfjob_controller.controller.outcome import Outcome, RequeueAfter
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.reporter import MAX_DEBOUNCE_SECONDS
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.jobs.naming import OPERATOR_NAME_LABEL
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.kinds.kubeflowv1.kind import V1_JOB_KINDS, V1Adapter, V1Caches
from tfjob_controller.kinds.kubeflowv1.plan import DEFAULT_CONTAINERS, AddedContainers
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.telemetry.jobmetrics import JobMetrics
from tfjob_controller.util.timestamps import format_time

NAME = "example-job"


class V1Bench:
    """See the module. Pods run and end when a test says so."""

    def __init__(
        self,
        kind: str = "TFJob",
        gangs: GangPolicy = NO_GANGS,
        added: AddedContainers = DEFAULT_CONTAINERS,
        *,
        strict: bool = False,
    ) -> None:
        self.strict = strict
        self.clock = FakeClock()
        self.api = MemoryApi(self.clock)
        self.kind, self.resource, self.added = kind, V1_RESOURCES[kind], added
        self.recorder, self.registry = Recorded(self.api, kind), CollectorRegistry()
        self.metrics = JobMetrics(self.registry, V1_JOB_KINDS[0].series)
        self.path = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/{self.resource.plural}"
        self.restart(gangs)

    def restart(self, gangs: GangPolicy) -> None:
        """Starts another process, which has this policy."""
        self.gangs = gangs
        self.caches = V1Caches(self.resource, self.api, "", self.clock, gangs)
        self.reconciler = self.new_reconciler()
        informers = {self.resource.plural: self.caches.jobs}
        informers |= {resource.plural: informer for resource, informer in self.caches.children.watched.items()}
        for plural, informer in informers.items():
            tell = watcher_of(informer)
            self.api.watch(plural, tell)
            for obj in self.api.list(plural):
                # The list of children has a selector.
                if informer is self.caches.jobs or OPERATOR_NAME_LABEL in obj["metadata"].get("labels", {}):
                    tell("ADDED", obj)

    def new_reconciler(self) -> Reconciler[V1Job]:
        """Returns the reconciler of a restarted process, without any state of the first one."""
        return Reconciler(
            V1Adapter(self.resource, self.clock, gangs=self.gangs, added=self.added, strict=self.strict),
            ResourceClient(self.api, self.resource),
            self.caches.jobs.store,
            self.caches.children.snapshots(),
            self.caches.children.writer(Fanout(0)),
            self.recorder,
            self.metrics,
            self.clock,
        )

    def create(self, replicas: Mapping[str, int], *, policy: str = "", **spec: Any) -> Object:
        """Creates a job with so many replicas of each type; `policy` is their restartPolicy."""
        fields = {"restartPolicy": policy} if policy else {}
        by_type = {type_: v1_replicas(self.kind, count, **fields) for type_, count in replicas.items()}
        return self.api.put(self.path, v1_manifest(self.kind, by_type, NAME, **spec))

    def change(self, **spec: Any) -> None:
        self.api.change(f"{self.path}/{NAME}", {"spec": spec})

    def resize(self, type_: str, replicas: int) -> None:
        field = V1_KINDS[self.kind].replicas_field
        self.change(**{field: {type_: {"replicas": replicas}}})

    def sync(self) -> Outcome:
        return self.reconciler.sync(f"{NAMESPACE}/{NAME}")

    def settle(self) -> None:
        """Syncs until a sync sends no request, also after the delay of minor writes has passed."""
        if isinstance(settled(self.api, self.sync), RequeueAfter):
            self.clock.advance(MAX_DEBOUNCE_SECONDS)
            settled(self.api, self.sync)

    # What there is

    @property
    def job(self) -> Object:
        return self.api.objects[f"{self.path}/{NAME}"]

    @property
    def status(self) -> Object:
        status: Object = self.job.get("status", {})
        return status

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Returns type and status of each condition, in the order of the list."""
        return [(condition["type"], condition["status"]) for condition in self.status.get("conditions", ())]

    @property
    def state(self) -> str:
        """Returns the type of the last condition, as the column State shows it."""
        return self.conditions[-1][0]

    def counts(self, type_: str) -> Object:
        counts: Object = self.status["replicaStatuses"][type_]
        return counts

    @property
    def pods(self) -> list[str]:
        """Returns the replicas that have a pod which is not being deleted."""
        return [
            pod["metadata"]["name"].removeprefix(f"{NAME}-")
            for pod in self.api.list("pods")
            if "deletionTimestamp" not in pod["metadata"]
        ]

    @property
    def services(self) -> list[str]:
        return [service["metadata"]["name"].removeprefix(f"{NAME}-") for service in self.api.list("services")]

    def pod(self, replica: str) -> Object:
        return self.api.objects[f"{POD_PATH}/{NAME}-{replica}"]

    def service(self, replica: str) -> Object:
        return self.api.objects[f"{SERVICE_PATH}/{NAME}-{replica}"]

    # What kubelets and users do

    def runs(self, *replicas: str, restarts: int = 0) -> None:
        """The pods of these replicas run; their programs have been started again so often."""
        for replica in replicas:
            state = {"running": {"startedAt": format_time(self.clock.now())}}
            self._set(replica, "Running", state, restarts=restarts)

    def restarts_sidecar(self, replica: str, restarts: int) -> None:
        """A container beside the training container is started again."""
        status = self.pod(replica)["status"]
        sidecar = {**status["containerStatuses"][0], "name": "sidecar", "restartCount": restarts}
        containers = [*status["containerStatuses"], sidecar]
        self.api.change(f"{POD_PATH}/{NAME}-{replica}", {"status": {**status, "containerStatuses": containers}})

    def exits(self, replica: str, exit_code: int) -> None:
        ended = {"exitCode": exit_code, "finishedAt": format_time(self.clock.now())}
        self._set(replica, "Failed" if exit_code else "Succeeded", {"terminated": ended})

    def exits_beside_a_sidecar(self, replica: str, exit_code: int) -> None:
        """The training container ends, and the pod runs on."""
        ended = {"exitCode": exit_code, "finishedAt": format_time(self.clock.now())}
        self._set(replica, "Running", {"terminated": ended})

    def deletes(self, replica: str) -> None:
        """A user deletes a pod: it runs on for its grace period."""
        self.api.request("DELETE", f"{POD_PATH}/{NAME}-{replica}")

    def is_told_to_end(self, replica: str, exit_code: int) -> None:
        """A pod that is being deleted ends, and its kubelet deletes it once more, without a grace period."""
        self.exits(replica, exit_code)
        self.clock.advance(1)
        last = {"deletionTimestamp": format_time(self.clock.now()), "deletionGracePeriodSeconds": 0}
        self.api.change(f"{POD_PATH}/{NAME}-{replica}", {"metadata": last})

    def is_being_deleted(self, replica: str) -> None:
        """The deletion of a pod that may not have started was requested."""
        deletion = {"deletionTimestamp": format_time(self.clock.now()), "deletionGracePeriodSeconds": 30}
        self.api.change(f"{POD_PATH}/{NAME}-{replica}", {"metadata": deletion, "status": {"phase": "Pending"}})

    def fails_before_training(self, replica: str, container: str) -> None:
        """An init container fails, and its pod with it."""
        ended = {"exitCode": 1, "finishedAt": format_time(self.clock.now())}
        init = {"name": container, "state": {"terminated": ended}, "restartCount": 0, "ready": False}
        waiting = {"name": V1_KINDS[self.kind].container, "state": {"waiting": {"reason": "PodInitializing"}}}
        status = {"phase": "Failed", "initContainerStatuses": [init], "containerStatuses": [waiting | {"ready": False}]}
        self.api.change(f"{POD_PATH}/{NAME}-{replica}", {"status": status})

    def is_gone(self, *replicas: str) -> None:
        """The programs of pods that are being deleted have ended."""
        for replica in replicas:
            self.api.remove(f"{POD_PATH}/{NAME}-{replica}")

    def _set(self, replica: str, phase: str, state: Object, *, restarts: int = 0) -> None:
        container = {"name": V1_KINDS[self.kind].container, "state": state, "restartCount": restarts, "ready": False}
        if restarts:
            killed = {"exitCode": 137, "finishedAt": format_time(self.clock.now())}
            container["lastState"] = {"terminated": killed}
        status = {"phase": phase, "startTime": format_time(self.clock.now()), "containerStatuses": [container]}
        self.api.change(f"{POD_PATH}/{NAME}-{replica}", {"status": status})
