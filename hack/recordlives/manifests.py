"""The objects of a case: a TFJob, or a TrainJob with a runtime of its own.

Programs are shell scripts. Each start of a container of the subject leaves a mark in a folder of the node, so that a
script knows how often it has been started: most failures happen twice, and then it succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localcluster import images
from recordlives.matrix import NODE_EVENTS, TFJOB_ROLES, Case

Object = dict[str, Any]

CLAIM = "workspace"
# The nodes of the subject and of all others in events that happen to a node.
VICTIM, SAFE = "node-2", "node-1"
# The `job_type` of the subject, where it is not the role.
_JOB_TYPES = {
    "chief": "MASTER",
    "worker": "WORKER",
    "ps": "PS",
    "elastic-node": "node",
    "initializer": "dataset-initializer",
    "exporter": "model-exporter",
}
# How long the other replicas run; events that are noticed late need longer.
_STAY_SECONDS, _LONG_STAY_SECONDS = 30, 100
_LATE = ("evict-storage", "node-lost", "reboot", "drain")

_COUNT = "marks=/marks/$NAME; mkdir -p $marks; tries=$(ls $marks | wc -l); mkdir $marks/$tries\n"
_FIRST_NODE = '[ "$JOB_COMPLETION_INDEX" = 0 ] && {{ touch /up; sleep {seconds}; exit 0; }}\n'
_SLEEP_FIRST = "[ $tries -ge 1 ] || { sleep 60 & wait; }; sleep 3"
_SCRIPTS = {
    "exit-0": "sleep 3",
    **{f"exit-{code}": f"sleep 3; [ $tries -ge 2 ] || exit {code}" for code in (1, 130, 137)},
    "oom": "sleep 3; [ $tries -ge 2 ] || exec python3 -c 'bytearray(1 << 28)'",
    "liveness-probe": "[ $tries -ge 2 ] || { touch /sick; sleep 60; }; sleep 3",
    "startup-probe": "[ $tries -ge 2 ] || sleep 60; touch /up; sleep 5",
    # The first process of a container ignores SIGTERM unless it handles it.
    "delete-short": _SLEEP_FIRST,
    "delete-long": f"trap 'sleep 6; exit 0' TERM; {_SLEEP_FIRST}",
    "evict-api": f"trap 'exit 143' TERM; {_SLEEP_FIRST}",
    "evict-storage": "[ $tries -ge 1 ] || { head -c 8388608 /dev/zero > /full; sleep 120; }; sleep 3",
    "drain": f"trap 'exit 0' TERM; {_SLEEP_FIRST}",
    "reboot": _SLEEP_FIRST,
    "node-lost": _SLEEP_FIRST,
    "image-gone": "sleep 8; exit 137",
}
_SIDECARS = {
    "sidecar-first-0": "sleep 1; exit 0",
    "sidecar-first-1": "sleep 1; exit 1",
    "sidecar-later-0": "sleep 12; exit 0",
    "sidecar-later-1": "sleep 12; exit 1",
    "sidecar-runs-on": "exec sleep infinity",
    "native-sidecar": "trap 'exit 143' TERM; sleep infinity & wait",
}
_PROBE = {"periodSeconds": 1, "failureThreshold": 3}
_FIELDS: dict[str, Object] = {
    "no-command": {"command": ["/no-such-command"]},
    "oom": {"resources": {"limits": {"memory": "64Mi"}}},
    "evict-storage": {"resources": {"limits": {"ephemeral-storage": "4Mi"}}},
    "liveness-probe": {"livenessProbe": {**_PROBE, "exec": {"command": ["test", "!", "-e", "/sick"]}}},
    "startup-probe": {"startupProbe": {**_PROBE, "exec": {"command": ["test", "-e", "/up"]}}},
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a case is played: the name of the job, and a folder on the nodes."""

    name: str
    marks: str


def image(case: Case) -> str:
    return images.MPI if case["role"] == "launcher" else images.BASE


def own_image(case: Case, place: Place) -> str:
    """Returns the image of the subject. If it is to disappear, it has a tag of its own."""
    return f"{image(case)}:{place.name}" if case["event"] == "image-gone" else image(case)


def job_type_of(case: Case) -> str:
    return _JOB_TYPES.get(case["role"], case["role"])


def subject_of(case: Case) -> str:
    """Returns the replica to which the event happens, such as worker-0; of two nodes it is the second."""
    return f"{job_type_of(case).lower()}-{1 if job_type_of(case) == 'node' else 0}"


def container_of(case: Case) -> str:
    """Returns the name of the subject's main container."""
    return "tensorflow" if case["role"] in TFJOB_ROLES else job_type_of(case)


def manifests(case: Case, place: Place) -> list[Object]:
    """Returns the objects; the last is the job."""
    if case["role"] in TFJOB_ROLES:
        return [_tfjob(case, place)]
    return [_runtime(case, place), _trainjob(case, place)]


def _tfjob(case: Case, place: Place) -> Object:
    other = "WORKER" if case["role"] == "chief" else "MASTER"
    replicas = [
        {"tfReplicaType": job_type_of(case), "replicas": 1, "template": _pod(case, place)},
        {"tfReplicaType": other, "replicas": 1, "template": _bystander(case, "tensorflow", _stay_seconds(case))},
    ]
    spec: Object = {"replicaSpecs": replicas, "cleanPodPolicy": case["cleanPodPolicy"], **_common(case, "backoffLimit")}
    if case["failurePolicy"] != "Default":
        spec["failurePolicy"] = case["failurePolicy"]
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": place.name}, "spec": spec}


def _trainjob(case: Case, place: Place) -> Object:
    spec: Object = {"runtimeRef": {"kind": "TrainingRuntime", "name": place.name}, **_common(case, "maxRestarts")}
    if case["role"] == "elastic-node":
        spec["elasticPolicy"] = {"minNodes": 1, "maxNodes": 2}
    if case["role"] == "initializer" or case["composition"] == "own-storage":
        spec["datasetConfig"] = {"storageUri": "file:///etc/os-release"}
    if case["role"] == "exporter":
        spec["modelConfig"] = {"output": {"storageUri": "file:///tmp/output"}}
    return {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "metadata": {"name": place.name}, "spec": spec}


def _common(case: Case, limit: str) -> Object:
    checkpoint = {"storageUri": "file:///tmp/checkpoints", "settleSeconds": 1}
    return {
        **({limit: int(case["limit"])} if case["limit"] != "none" else {}),
        **({"checkpoint": checkpoint} if case["checkpoint"] == "on" else {}),
    }


def _runtime(case: Case, place: Place) -> Object:
    role = job_type_of(case)
    spec: Object = {
        "framework": {"launcher": "mpi", "elastic-node": "torch"}.get(case["role"], "plain"),
        "numNodes": 2 if role == "node" else 1,
        "templates": {role: _pod(case, place)},
    }
    if role == "launcher":
        # Nodes without a command run sshd.
        node = {"name": "node", "image": images.MPI, "imagePullPolicy": "IfNotPresent"}
        spec["templates"]["node"] = {"spec": {"containers": [node], **_beside(case)}}
    elif role != "node":
        spec["workspace"] = {"persistentVolumeClaim": {"claimName": CLAIM}}
        spec["templates"]["node"] = _bystander(case, "node", 3)
    meta = {"name": place.name}
    return {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainingRuntime", "metadata": meta, "spec": spec}


def _pod(case: Case, place: Place) -> Object:
    """Returns the template of the subject, which it shares with the other node if it is one."""
    event, composition, name = case["event"], case["composition"], container_of(case)
    head = _FIRST_NODE.format(seconds=_stay_seconds(case)) if name == "node" else ""
    main = _container(name, head + _COUNT + _SCRIPTS.get(event, ""))
    main |= {"image": own_image(case, place), **_FIELDS.get(event, {})}
    inits, sidecars = [], []
    if composition.startswith("init-fails-"):
        code = composition.removeprefix("init-fails-")
        inits = [_container("setup", f"{_COUNT}[ $tries -ge 1 ] || exit {code}")]
    elif composition == "native-sidecar":
        inits = [{**_container("log", _SIDECARS[composition]), "restartPolicy": "Always"}]
    elif composition in _SIDECARS:
        sidecars = [_container("log", _SIDECARS[composition])]
    spec: Object = {
        "terminationGracePeriodSeconds": 20 if event == "delete-long" else 2,
        "initContainers": inits,
        "containers": [main, *sidecars],
        "volumes": [{"name": "marks", "hostPath": {"path": place.marks, "type": "DirectoryOrCreate"}}],
        **({"restartPolicy": case["restartPolicy"]} if case["restartPolicy"] != "unset" else {}),
    }
    if event in NODE_EVENTS:
        # A preference only: after the loss of the node, the next pod runs elsewhere.
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [VICTIM]}
        term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"spec": spec}


def _container(name: str, script: str) -> Object:
    return {
        "name": name,
        "image": images.BASE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "env": [{"name": "NAME", "value": name}],
        "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
        "securityContext": {"runAsUser": 0},
    }


def _bystander(case: Case, name: str, seconds: int) -> Object:
    script = f"trap 'exit 143' TERM; sleep {seconds} & wait"
    container = {**_container(name, script), "volumeMounts": []}
    return {"spec": {"containers": [container], **_beside(case)}}


def _stay_seconds(case: Case) -> int:
    return _LONG_STAY_SECONDS if case["event"] in _LATE else _STAY_SECONDS


def _beside(case: Case) -> Object:
    return {"nodeSelector": {"kubernetes.io/hostname": SAFE}} if case["event"] in NODE_EVENTS else {}
