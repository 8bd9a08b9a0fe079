"""One controller, one stand-in kubelet and one namespace for many tests, each with a job of its own.

A test sets how its replicas end (`Trial.plays`), submits the job, and checks the outcome:

    trial.plays("master-0", ends(137), ends(0))    the first container ends with 137, the next one with 0
    trial.submit(master(), workers(2))             other replicas run until they are deleted trial.await_phase("Done")

The kubelet honours restartPolicy and the restart rules of containers, so the child Job determines whether "the next
one" is in the same pod or in a new one. Tests that set the status of pods themselves (a pod that waits, an eviction)
use pods on a node without a kubelet: `alone`.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.cluster import pod_path, set_pod_terminated
from helpers.controller import Jobs
from helpers.manifests import container, pod_template, tfjob
from helpers.poll import PATIENCE_SECONDS, eventually, until
from helpers.trainmanifests import trainjob
from localcluster.api import RefusedError
from localcluster.podstatus import Outcome
from tfjob_controller.api.controllerconfig import parse_controller_config
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.jobs.frameworks.base import NODE
from tfjob_controller.jobs.naming import MAX_LABEL, POD_JOB_NAME, replica_id_of, runtime_id_of
from tfjob_controller.programs.manager import Manager

Object = dict[str, Any]

# A node without a kubelet. Its object exists, because kube-controller-manager deletes pods of missing nodes.
NOBODYS_NODE = "nobodys-node"
_STARTED = ("Pending", "Running")

# The config file of the playground's controller.
CONFIG = parse_controller_config("tfImage: localhost/from-the-config")


def condition(status: Object, condition_type: str) -> Object:
    """Returns the condition of that type in a job's status; one whose status is `absent` if there is none."""
    found = [each for each in status.get("conditions", ()) if each["type"] == condition_type]
    return found[0] if found else {"status": "absent"}


def ends(exit_code: int = 0, message: str = "", reason: str = "", *, after: float = 0.1) -> Outcome:
    return Outcome(after_seconds=after, exit_code=exit_code, message=message, reason=reason, container="tensorflow")


FOREVER = Outcome()


def alone(**pod_spec: Any) -> Object:
    """Returns a template whose pod has no kubelet but the test."""
    return pod_template(container(), nodeName=NOBODYS_NODE, **pod_spec)


def job_name_of(labels: Object) -> str:
    """Returns the name of the job, of either kind, in a child's labels."""
    name: str = labels.get("tf_job_name") or labels.get("train_job_name", "")
    return name


class Script:
    """The behaviour of pods, by job and replica. Thread-safe; a `localcluster.fakekubelet.Behaviour`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scenes: dict[tuple[str, str], list[Outcome]] = {}
        self._starts: dict[tuple[str, str], int] = defaultdict(int)

    def plays(self, job: str, replica: str, *outcomes: Outcome) -> None:
        with self._lock:
            self._scenes[job[:MAX_LABEL], replica] = list(outcomes)

    def starts(self, job: str, replica: str) -> int:
        """Returns how often a container of that replica was started, over all its pods."""
        with self._lock:
            return self._starts[job[:MAX_LABEL], replica]

    def __call__(self, pod: Object, attempt: int) -> Outcome:
        labels = pod["metadata"]["labels"]
        key = job_name_of(labels), replica_id_of(labels)
        with self._lock:
            self._starts[key] += 1
            scenes = self._scenes.get(key)
            return scenes.pop(0) if scenes else FOREVER


@dataclass(frozen=True, slots=True)
class Playground:
    manager: Manager
    jobs: Jobs
    script: Script
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def new_trial(self) -> Trial:
        return Trial(self, f"trial-{next(self.numbers)}", self.jobs)

    def new_train_trial(self) -> Trial:
        jobs = Jobs(self.jobs.api, self.jobs.namespace, TRAINJOBS)
        return Trial(self, f"train-{next(self.numbers)}", jobs, container="")


@dataclass(frozen=True, slots=True)
class Trial:
    """One job from its submission to its removal. `container` is the one that `end` ends; all, if it is empty."""

    playground: Playground
    name: str
    jobs: Jobs
    container: str = "tensorflow"

    @property
    def namespace(self) -> str:
        return self.jobs.namespace

    def plays(self, replica: str, *outcomes: Outcome) -> None:
        self.playground.script.plays(self.name, replica, *outcomes)

    def starts(self, replica: str) -> int:
        return self.playground.script.starts(self.name, replica)

    def submit(self, *replica_specs: Object, **spec: Any) -> Object:
        return self.jobs.submit(tfjob(*replica_specs, name=self.name, **spec))

    def train(self, nodes: int | None = 2, **spec: Any) -> Object:
        """Submits a TrainJob."""
        return self.jobs.submit(trainjob(self.name, nodes, **spec))

    def get(self) -> Object:
        return self.jobs.get(self.name)

    def status(self) -> Object:
        return self.jobs.status(self.name)

    def change(self, **spec: Any) -> Object:
        return self.jobs.change({"spec": spec}, self.name)

    def delete(self) -> None:
        self.jobs.delete(self.name)

    def await_status(self, predicate: Callable[[Object], object], timeout: float = PATIENCE_SECONDS) -> Object:
        """Waits for the first status that fulfils `predicate`."""
        return until(self.status, predicate, timeout)

    def await_phase(self, phase: str) -> Object:
        return self.await_status(lambda status: status.get("phase") == phase)

    def await_end(self) -> Object:
        """Waits until the job has ended in any way; returns its status."""
        return self.await_status(lambda status: status.get("phase") in ("Done", "Failed"))

    def await_reason(self, *words: str) -> Object:
        return self.await_status(lambda status: all(word in status.get("reason", "") for word in words))

    # Children

    @property
    def runtime_id(self) -> str:
        if self.jobs.resource is TRAINJOBS:
            return runtime_id_of(self.get()["metadata"]["uid"])
        return str(eventually(lambda: self.get()["spec"].get("RuntimeId")))

    def child(self, replica: str) -> str:
        """Returns the name of the Job that runs a replica such as `worker-3`; all nodes of a TrainJob share one."""
        role, _, index = replica.rpartition("-")
        job = f"{self.name}-{role}-{self.runtime_id}"
        return job if self.jobs.resource is TRAINJOBS and role == NODE else f"{job}-{index}"

    @property
    def node_service(self) -> str:
        """The name of the Service that all nodes of a TrainJob share."""
        return f"{self.name}-{self.runtime_id}"

    def children(self, plural: str) -> dict[str, Object]:
        """Returns the children by name; `plural` is jobs, services, pods or configmaps."""
        runtime_id = self.runtime_id
        children = {name: (child["metadata"]["labels"], child) for name, child in self.jobs.children(plural).items()}
        return {
            name: child
            for name, (labels, child) in children.items()
            if labels["runtime_id"] == runtime_id and self.jobs.name_label in labels
        }

    def await_children(self, plural: str, count: int) -> dict[str, Object]:
        return until(lambda: self.children(plural), lambda children: len(children) == count)

    def child_job(self, replica: str) -> Object:
        return self.jobs.api.get(self.child_path("jobs", self.child(replica)))

    def child_path(self, plural: str, name: str) -> str:
        group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{plural}/{name}"

    def pods(self, replica: str) -> list[Object]:
        """Returns the pods of one replica, including terminating ones."""
        name = self.child(replica)
        found = [(pod["metadata"]["labels"], pod) for pod in self.children("pods").values()]
        return [pod for labels, pod in found if labels[POD_JOB_NAME] == name and replica_id_of(labels) == replica]

    def await_pod(self, replica: str, but: str = "") -> Object:
        """Waits for a pod of that replica that has started (or waits for the test), other than the pod of that name."""

        def is_fresh(pod: Object) -> bool:
            is_other = pod["metadata"]["name"] != but and "deletionTimestamp" not in pod["metadata"]
            return is_other and pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") in _STARTED

        return eventually(lambda: [pod for pod in self.pods(replica) if is_fresh(pod)])[0]

    def await_running(self, replica: str, but: str = "") -> Object:
        """Waits for a pod of that replica whose containers run."""
        return until(lambda: self.await_pod(replica, but), lambda pod: pod.get("status", {}).get("phase") == "Running")

    def end(self, replica: str, exit_code: int = 0, message: str = "") -> None:
        """Ends the training container of that replica's running pod now, and the pod."""
        name = self.await_running(replica)["metadata"]["name"]
        set_pod_terminated(self.jobs.api, self.namespace, name, exit_code, message=message, container=self.container)

    def remove_pod(self, pod: Object) -> None:
        """Removes a pod at once, since no kubelet confirms its end."""
        self.jobs.api.delete(pod_path(self.namespace, pod["metadata"]["name"]), gracePeriodSeconds=0)

    # Events

    def events(self) -> list[Object]:
        """Returns the events about the job itself, oldest first."""
        uid = self.get()["metadata"]["uid"]
        found = [each for each in self.jobs.events() if each["regarding"].get("uid") == uid]
        return sorted(found, key=lambda each: str(each.get("eventTime")))

    def notes(self, reason: str) -> list[str]:
        return [each["note"] for each in self.events() if each["reason"] == reason]

    def await_event(self, reason: str, *words: str) -> Object:
        def is_it(event: Object) -> bool:
            return event["reason"] == reason and all(word in event["note"] for word in words)

        return eventually(lambda: [event for event in self.events() if is_it(event)])[0]

    def clear(self) -> None:
        """Deletes the job after a test, and removes pods that no kubelet would end."""
        try:
            self.delete()
            leftovers = self.jobs.children("pods").values()
        except RefusedError:
            return  # the namespace is gone
        for pod in leftovers:
            if job_name_of(pod["metadata"]["labels"]) == self.name[:MAX_LABEL]:
                self.remove_pod(pod)
