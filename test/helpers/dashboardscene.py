"""A namespace of which every page of the dashboard is full: all that people, programs and kubelets write has one text.

No controller runs in it, so nothing changes what is written here. The text may be hostile, or a plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from helpers.cluster import make_node, pod_path
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from tfjob_controller.jobs.naming import TF_JOB_NAME, TRAIN_JOB_NAME, job_labels, replica_labels, runtime_id_of

Object = dict[str, Any]

TFJOB_NAME, TRAINJOB_NAME = "full-tfjob", "full-trainjob"
_RUNTIME_ID = "a1b2"
_DEVICE = "example.com/device"
_ALLOCATABLE = {"cpu": "8", "memory": "16Gi", "pods": "20", _DEVICE: "4"}
# The longest reason of an event that the API server accepts, and the longest text of a reported metric.
_MAX_REASON, _MAX_METRIC = 128, 64


@dataclass(frozen=True, slots=True)
class Scene:
    """`text` stands wherever the API accepts any text; `state` is what both jobs say they are."""

    api: Api
    namespace: str
    node: str
    zone: str
    text: str
    state: str = "Running"

    def build(self) -> None:
        self._build_node()
        tfjob_uid = self._create("v1alpha1", "tfjobs", self._tfjob())
        trainjob_uid = self._create("v2alpha1", "trainjobs", self._trainjob())
        self.write_statuses()
        owners = {
            TFJOB_NAME: ("TFJob", tfjob_uid, job_labels(TFJOB_NAME, _RUNTIME_ID, TF_JOB_NAME)),
            TRAINJOB_NAME: (
                "TrainJob",
                trainjob_uid,
                job_labels(TRAINJOB_NAME, runtime_id_of(trainjob_uid), TRAIN_JOB_NAME),
            ),
        }
        for name, (kind, uid, labels) in owners.items():
            for index in range(2):
                self._build_pod(f"{name}-{index}", replica_labels(labels, "WORKER", str(index)), is_waiting=index > 0)
            self._build_gang(f"{name}-gang", labels)
            for event_type in ("Normal", "Warning"):
                self._build_event(kind, name, uid, event_type)

    def write_statuses(self, loss: float = 0.5) -> None:
        """Writes the statuses of both jobs, the TrainJob's with this loss."""
        common = {**self._status(), "summary": self.state, "phase": self.state, "state": self.state}
        progress = {"done": 40, "total": 100, "ignored": self.text, "counts": {self.text: 1}}
        scaling = {"target": 3, "targetReason": self.text, "reason": self.text, "workers": 2}
        replicas = {"state": self.text, "tf_replica_type": self.text, "ReplicasStates": {self.text: 1}}
        own = {"progress": progress, "scaling": scaling, "replicaStatuses": [replicas], "ready": {self.text: self.text}}
        self._patch_status("v1alpha1", "tfjobs", TFJOB_NAME, {**common, **own})
        metric = {"name": self.text[:_MAX_METRIC], "value": self.text[:_MAX_METRIC]}
        own = {
            "metrics": [{"name": "loss", "value": str(loss)}, {"name": self.text, "value": "0.25"}],
            "trainerStatus": {"progressPercentage": 40, "metrics": [metric]},
            "progress": self.text,
            "nodes": self.text,
            "runtime": self.text,
            "selector": self.text,
            "jobsStatus": [{"name": self.text, "active": 1}],
            "scaling": {**{name: scaling[name] for name in ("target", "targetReason", "reason")}, "nodes": 2},
        }
        self._patch_status("v2alpha1", "trainjobs", TRAINJOB_NAME, {**common, **own})

    def clear(self) -> None:
        self.api.delete(f"/api/v1/nodes/{self.node}")

    def _status(self) -> Object:
        condition = dict.fromkeys(("type", "status", "reason", "message"), self.text)
        return {
            "reason": self.text,
            "observedGeneration": 1,
            "startTime": _moment(60),
            "restarts": 2,
            "restartCounts": {self.text: 1},
            "succeededIndexes": [self.text],
            "conditions": [{**condition, "lastTransitionTime": _moment(30)}],
        }

    def _tfjob(self) -> Object:
        template = pod_template(self._container("tensorflow"))
        found = tfjob(master(template=template), workers(2, template=template), name=TFJOB_NAME)
        found["metadata"]["annotations"] = {"example.com/words": self.text}
        autoscaling = {"minWorkers": 1, "maxWorkers": 4}
        found["spec"] |= {"RuntimeId": _RUNTIME_ID, "autoscaling": autoscaling, "gang": {"queue": self.text}}
        return found

    def _trainjob(self) -> Object:
        program = self._container("node")
        trainer = {name: program[name] for name in ("image", "command", "args", "env")}
        found = trainjob(TRAINJOB_NAME, 2, trainer=trainer)
        found["metadata"]["annotations"] = {"example.com/words": self.text}
        return found

    def _container(self, name: str) -> Object:
        env = [{"name": "WORDS", "value": self.text}]
        words = {"image": self.text.strip(), "command": [self.text], "args": [self.text], "env": env}
        return {**container(name), **words}

    def _build_node(self) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "annotations": {"example.com/words": self.text}},
            "spec": {"unschedulable": True},
        }
        self.api.create("/api/v1/nodes", node)
        make_node(self.api, self.node, _ALLOCATABLE, {"topology.kubernetes.io/zone": self.zone})

    def _build_pod(self, name: str, labels: Object, *, is_waiting: bool) -> None:
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {_DEVICE: "1"}}
        template = pod_template({**self._container("tensorflow"), "resources": resources}, nodeName=self.node)
        meta = {"name": name, "labels": labels, "annotations": {"example.com/words": self.text}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **template}
        self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", pod)
        self.api.patch(f"{pod_path(self.namespace, name)}/status", {"status": self._pod_status(is_waiting)})

    def _pod_status(self, is_waiting: bool) -> Object:
        words = {"reason": self.text, "message": self.text}
        ended = {**words, "exitCode": 3, "startedAt": _moment(50), "finishedAt": _moment(40), "containerID": self.text}
        state = {"waiting": words} if is_waiting else {"running": {"startedAt": _moment(20)}}
        conditions = [
            {"type": kind, "status": status, **words, "lastTransitionTime": _moment(55)}
            for kind, status in (("PodScheduled", "True"), ("Ready", "False"), ("DisruptionTarget", "True"))
        ]
        status = {
            "name": "tensorflow",
            "image": self.text,
            "imageID": self.text,
            "ready": not is_waiting,
            "restartCount": 1,
            "state": state,
            "lastState": {"terminated": ended},
        }
        phase = "Pending" if is_waiting else "Running"
        return {"phase": phase, **words, "conditions": conditions, "containerStatuses": [status]}

    def _build_gang(self, name: str, labels: Object) -> None:
        owner = {"apiVersion": "example.com/v1", "kind": self.text, "name": self.text, "uid": name, "controller": True}
        gang = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {"queue": self.text, "priority": 5, "members": [{"name": "worker", "count": 2}]},
        }
        path = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{self.namespace}/gangs"
        self.api.create(path, {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", **gang})
        words = dict.fromkeys(("message", "members", "targetReason"), self.text)
        missing = {"resource": self.text, "requested": self.text, "available": self.text}
        times = {each: _moment(30) for each in ("queuedTime", "admittedTime", "boundTime", "lastResizeTime")}
        status = {
            **words,
            **times,
            "phase": "Waiting",
            "position": 1,
            "missing": [missing, {**missing, "resource": _DEVICE}],
            "placement": [{"node": self.text, "members": [self.text]}],
            "leaving": [self.text],
            "targetMembers": {self.text: 1},
            "conditions": self._status()["conditions"],
        }
        self.api.patch(f"{path}/{name}/status", {"status": status})

    def _build_event(self, kind: str, name: str, uid: str, event_type: str) -> None:
        group = "v1alpha1" if kind == "TFJob" else "v2alpha1"
        about = {"apiVersion": f"kubeflow.org/{group}", "kind": kind, "name": name, "uid": uid}
        event = {
            "metadata": {"generateName": "full-", "annotations": {"kubeflow.org/reconcile-id": self.text}},
            "involvedObject": {**about, "namespace": self.namespace, "fieldPath": self.text},
            "reason": self.text[:_MAX_REASON],
            "message": self.text,
            "source": {"component": self.text, "host": self.text},
            "reportingComponent": self.text,
            "reportingInstance": self.text,
            "action": self.text,
            "type": event_type,
            "count": 2,
            "firstTimestamp": _moment(25),
            "lastTimestamp": _moment(15),
        }
        self.api.create(f"/api/v1/namespaces/{self.namespace}/events", event)

    def _create(self, version: str, plural: str, body: Object) -> str:
        created = self.api.create(self._path(version, plural), body)
        return str(created["metadata"]["uid"])

    def _patch_status(self, version: str, plural: str, name: str, status: Object) -> None:
        self.api.patch(f"{self._path(version, plural)}/{name}/status", {"status": status})

    def _path(self, version: str, plural: str) -> str:
        return f"/apis/kubeflow.org/{version}/namespaces/{self.namespace}/{plural}"


def _moment(seconds_ago: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
