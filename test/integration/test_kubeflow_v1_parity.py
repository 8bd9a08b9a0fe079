"""The same jobs under training-operator, the real program, and under this controller: what clients see is equal.

Each job runs in a namespace of each controller. All jobs take their steps at the same time, and are compared whenever
everything rests. Deliberate differences are named in the table of jobs, with what is seen. A second table has jobs that
are equal only with --kubeflow-v1-strict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane, pod_path, set_pod_terminated
from helpers.controller import running_controller
from helpers.poll import eventually
from helpers.v1manifests import v1_replicas
from helpers.v1world import (
    KINDS,
    V1Namespace,
    await_rest,
    differences,
    manifest_of,
    pod_phase,
    replicas_change,
)
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options
from localcluster.trainingoperator import TrainingOperator

pytestmark = [pytest.mark.cluster, pytest.mark.long]

Object = dict[str, Any]
# What a client sees of one job, by controller.
Seen = tuple[Object, Object]


@dataclass(frozen=True, slots=True)
class Exit:
    """The containers of these pods end with these codes, one after another; the names are without the job's."""

    codes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Restart:
    """The kubelets have restarted the containers of these pods so often."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A user changes the job."""

    patch: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Somebody deletes a pod. With `at_once` it is gone; otherwise its program runs on, as no kubelet ends it."""

    replica: str
    at_once: bool = False


Step = Exit | Restart | Change | Delete


@dataclass(frozen=True, slots=True)
class Case:
    """A job, the steps of its life, and a part of the path of each deliberate difference (see below)."""

    name: str
    kind: str
    replicas: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    differs: tuple[str, ...] = ()

    @property
    def manifest(self) -> Object:
        return manifest_of(self.kind, self.replicas, self.name, **self.spec)


def suspend(on: bool) -> Change:
    return Change({"spec": {"runPolicy": {"suspend": on}}})


def policy(**fields: Any) -> Object:
    return {"runPolicy": fields}


def replicas(kind: str, count: int | None, restarts: str = "", **metadata: Any) -> Object:
    fields = {"restartPolicy": restarts} if restarts else {}
    entry = v1_replicas(kind, count, **fields)
    if metadata:
        entry["template"]["metadata"] = metadata
    return entry


def with_container(entry: Object, **fields: Any) -> Object:
    """Returns the replicas with these fields in their container, and with a second container."""
    spec = entry["template"]["spec"]
    containers = [{**spec["containers"][0], **fields}, {"name": "sidecar", "image": "sidecar:1"}]
    return {**entry, "template": {**entry["template"], "spec": {**spec, "containers": containers}}}


def unschedulable(entry: Object) -> Object:
    """Returns the replicas with a selector that no node has, so that their pods stay Pending."""
    spec = {**entry["template"]["spec"], "nodeSelector": {"no": "node"}}
    return {**entry, "template": {**entry["template"], "spec": spec}}


def with_account(entry: Object, name: str) -> Object:
    """Returns the replicas with that ServiceAccount."""
    spec = {**entry["template"]["spec"], "serviceAccountName": name}
    return {**entry, "template": {**entry["template"], "spec": spec}}


# Deliberate differences, by a part of their path.
# The script waits in the same way, and is this project's own.
WAIT = "/spec/initContainers"
# A pod that replaces another one tells how often its replica was restarted.
RESTARTS = "/annotations/kubeflow.org/restarts"
# Every job that has ended has it; otherwise it would never expire.
COMPLETION = "/status/times/completionTime: False / True"
# training-operator visits types in random order, and leaves this out if it sees the success of the master first.
VARYING = "/status/replicaStatuses/Worker/selector: 'absent' / "


def of_mpi(name: str, *kinds: str) -> tuple[str, ...]:
    """Returns how the objects of an MPIJob always differ: labels, by which they are watched, and the script."""
    ends = {"ConfigMap": "config", "Role": "launcher", "RoleBinding": "launcher", "ServiceAccount": "launcher"}
    objects = [f"/objects/{kind}/{name}-{ends[kind]}" for kind in kinds or ends]
    return (
        *(f"{path}/metadata/labels/training.kubeflow.org/{label}" for path in objects for label in OBJECT_LABELS),
        f"/objects/ConfigMap/{name}-config/data/kubexec.sh: ",
    )


OBJECT_LABELS = ("job-name: 'absent'", "operator-name: 'absent'")
# training-operator creates an account that the user names, which would get the job's rights.
ACCOUNT = "/objects/ServiceAccount/mine"
# It lets a launcher without workers run commands in all pods.
ANY_POD = "/objects/Role/mpi-alone-launcher/rules"
NO_WORKERS = "/status/replicaStatuses/Worker: {} / 'absent'"
# The objects of a job that has ended do not change any more.
STILL_LISTED = "/objects/ConfigMap/mpi-worker-fails-config/data/discover_hosts.sh: "

TF, TORCH, BOOST, JAX, PADDLE, MPI = KINDS
NOTES = {
    "name": "mine",
    "namespace": "elsewhere",
    "labels": {"team": "a", "training.kubeflow.org/job-name": "x"},
    "annotations": {"b": "c"},
}
CASES = (
    Case(
        "tf-chief",
        TF,
        {
            "Chief": replicas(TF, 1),
            "Worker": replicas(TF, 2, **NOTES),
            "PS": with_container(
                replicas(TF, 1),
                env=[{"name": "TF_CONFIG", "value": "mine"}, {"name": "A", "value": "1"}],
                ports=[{"name": "other", "containerPort": 80}, {"name": "tfjob-port", "containerPort": 3333}],
            ),
            "Evaluator": replicas(TF, None),
        },
        (Exit({"worker-0": 0}), Exit({"chief-0": 0})),
        policy(cleanPodPolicy="Running"),
    ),
    Case("tf-chief-fails", TF, {"Chief": 1, "Worker": 1}, (Exit({"worker-0": 0}), Exit({"chief-0": 1}))),
    Case("tf-master", TF, {"Master": 1, "Worker": 1, "PS": 1}, (Exit({"ps-0": 1}),), policy(cleanPodPolicy="All")),
    Case("tf-workers", TF, {"Worker": 2}, (Exit({"worker-0": 0}),), policy(cleanPodPolicy="All")),
    Case(
        "tf-all-workers",
        TF,
        {"Worker": 2},
        (Exit({"worker-0": 0}), Exit({"worker-1": 0})),
        {"successPolicy": "AllWorkers"},
    ),
    Case("tf-one", TF, {"Worker": with_container(replicas(TF, 1, "OnFailure"))}, (Exit({"worker-0": 0}),)),
    Case(
        "tf-exit-code",
        TF,
        {"Worker": replicas(TF, 2, "ExitCode"), "PS": replicas(TF, 1, "Always")},
        (Exit({"worker-1": 137}), Exit({"worker-1": 1})),
        differs=(RESTARTS,),
    ),
    Case(
        "tf-suspended",
        TF,
        {"Worker": 2, "PS": 1},
        (suspend(True), suspend(False), Exit({"worker-0": 0})),
    ),
    Case(
        "tf-dynamic",
        TF,
        {"Worker": 2, "PS": 1},
        (Change(replicas_change(TF, Worker=3)), Change(replicas_change(TF, Worker=1))),
        {"enableDynamicWorker": True},
    ),
    Case(
        "tf-expires",
        TF,
        {"Worker": 1},
        (Exit({"worker-0": 0}),),
        policy(ttlSecondsAfterFinished=1),
    ),
    Case(
        "tf-dynamic-goes-on",
        TF,
        {"Worker": 2},
        (Exit({"worker-1": 1}), Exit({"worker-0": 0})),
        {"enableDynamicWorker": True},
    ),
    Case("tf-other-case", TF, {"worker": 1, "ps": 1}, (Exit({"worker-0": 0}),), policy(cleanPodPolicy="Running")),
    Case("tf-unknown-type", TF, {"Worker": 1, "Other": 1}, (Exit({"other-0": 1}), Exit({"worker-0": 0}))),
    Case(
        "tf-restarts",
        TF,
        {"Worker": replicas(TF, 2, "OnFailure")},
        (Restart({"worker-1": 2}), Exit({"worker-0": 0})),
        policy(backoffLimit=3),
    ),
    Case(
        "tf-restarts-too-often",
        TF,
        {"Worker": replicas(TF, 2, "Always"), "PS": 1},
        (Restart({"worker-1": 1}), Restart({"worker-0": 1})),
        policy(backoffLimit=2, cleanPodPolicy="Running"),
    ),
    Case(
        "paddle-restarts-once",
        PADDLE,
        {"Worker": 1},
        (Restart({"worker-0": 1}),),
        policy(backoffLimit=0, cleanPodPolicy="All"),
    ),
    Case("tf-elsewhere", TF, {"Worker": 1}, (), policy(managedBy="kueue.x-k8s.io/multikueue")),
    Case(
        "torch-master",
        TORCH,
        {"Master": replicas(TORCH, 1, **NOTES), "Worker": replicas(TORCH, 2)},
        (Exit({"worker-0": 0}), Exit({"master-0": 0})),
        {"nprocPerNode": "2"},
        differs=(WAIT,),
    ),
    Case(
        "torch-never",
        TORCH,
        {"Master": replicas(TORCH, 1, "Never"), "Worker": replicas(TORCH, 1, "Never")},
        (Exit({"worker-0": 1}),),
        policy(cleanPodPolicy="Running"),
        differs=(WAIT,),
    ),
    Case(
        "torch-exit-code",
        TORCH,
        {"Master": replicas(TORCH, 1, "ExitCode")},
        (Exit({"master-0": 130}), Exit({"master-0": 0})),
        differs=(RESTARTS,),
    ),
    Case(
        "torch-exit-code-1",
        TORCH,
        {"Worker": replicas(TORCH, 2, "ExitCode")},
        (Exit({"worker-1": 2}),),
        differs=(COMPLETION,),
    ),
    Case("torch-workers", TORCH, {"Worker": 2}, (Exit({"worker-0": 0}), Exit({"worker-1": 0}))),
    Case(
        "torch-evicted",
        TORCH,
        {"Master": 1, "Worker": 1},
        (Exit({"worker-0": 1}), Exit({"master-0": 0})),
        differs=(
            WAIT,
            RESTARTS,
        ),
    ),
    Case(
        "torch-elastic",
        TORCH,
        {"Worker": 2},
        (Change(replicas_change(TORCH, Worker=3)), Exit({"worker-1": 0})),
        {
            "elasticPolicy": {
                "minReplicas": 1,
                "maxReplicas": 3,
                "maxRestarts": 5,
                "rdzvBackend": "etcd",
                "rdzvId": "r",
                "rdzvConf": [{"key": "a", "value": "b"}, {"key": "c", "value": "d"}],
            }
        },
    ),
    Case(
        "torch-created-suspended",
        TORCH,
        {"Master": 1, "Worker": 1},
        (suspend(False), suspend(True)),
        policy(suspend=True),
        differs=(WAIT,),
    ),
    Case(
        "torch-suspended",
        TORCH,
        {"Master": 1, "Worker": 1},
        (suspend(True), suspend(False), Exit({"master-0": 0})),
        differs=(WAIT,),
    ),
    Case("boost", BOOST, {"Master": 1, "Worker": 2}, (Exit({"worker-0": 0}), Exit({"master-0": 0}))),
    Case("boost-fails", BOOST, {"Master": 1, "Worker": 1}, (Exit({"worker-0": 1}),), policy(cleanPodPolicy="All")),
    Case(
        "boost-exit-code",
        BOOST,
        {"Master": replicas(BOOST, 1, "ExitCode"), "Worker": replicas(BOOST, 1, "ExitCode")},
        (Exit({"worker-0": 137}), Exit({"master-0": 0})),
        differs=(RESTARTS,),
    ),
    Case(
        "boost-fails-early",
        BOOST,
        {"Master": unschedulable(replicas(BOOST, 1)), "Worker": 1},
        (Exit({"worker-0": 1}),),
        policy(cleanPodPolicy="Running"),
    ),
    Case("boost-alone", BOOST, {"Master": 1}, (Exit({"master-0": 2}),)),
    Case("boost-suspended", BOOST, {"Master": 1, "Worker": 1}, (suspend(True), suspend(False))),
    Case("jax", JAX, {"Worker": replicas(JAX, 2, **NOTES)}, (Exit({"worker-1": 0}), Exit({"worker-0": 0}))),
    Case("jax-fails", JAX, {"Worker": 2}, (Exit({"worker-1": 1}),), policy(cleanPodPolicy="All")),
    Case(
        "jax-exit-code",
        JAX,
        {"Worker": replicas(JAX, 2, "ExitCode")},
        (Exit({"worker-0": 137}), Exit({"worker-0": 0, "worker-1": 0})),
        differs=(RESTARTS,),
    ),
    Case("jax-suspended", JAX, {"Worker": 2}, (suspend(True), suspend(False), Change(replicas_change(JAX, Worker=1)))),
    Case("paddle-master", PADDLE, {"Master": 1, "Worker": 2}, (Exit({"worker-0": 0}), Exit({"master-0": 0}))),
    Case("paddle-workers", PADDLE, {"Worker": 2}, (Exit({"worker-0": 0}), Exit({"worker-1": 0}))),
    Case("paddle-never", PADDLE, {"Worker": replicas(PADDLE, 2, "Never")}, (Exit({"worker-1": 1}),)),
    Case(
        "paddle-evicted",
        PADDLE,
        {"Master": 1, "Worker": 1},
        (Exit({"master-0": 1}), Exit({"master-0": 0})),
        policy(cleanPodPolicy="All"),
        differs=(RESTARTS,),
    ),
    Case("paddle-suspended", PADDLE, {"Master": 1, "Worker": 1}, (suspend(True), suspend(False))),
    Case(
        "mpi",
        MPI,
        {"Launcher": replicas(MPI, 1, **NOTES), "Worker": replicas(MPI, 2, **NOTES)},
        (Exit({"launcher": 0}),),
        {"slotsPerWorker": 2, **policy(cleanPodPolicy="Running")},
        of_mpi("mpi"),
    ),
    Case(
        "mpi-fails",
        MPI,
        {"Launcher": 1, "Worker": 1},
        (Exit({"launcher": 1}),),
        policy(cleanPodPolicy="All"),
        of_mpi("mpi-fails"),
    ),
    Case(
        "mpi-worker-fails",
        MPI,
        {"Launcher": 1, "Worker": 2},
        (Exit({"worker-1": 1}),),
        differs=(*of_mpi("mpi-worker-fails"), STILL_LISTED),
    ),
    Case(
        "mpi-worker-restarts",
        MPI,
        {"Launcher": 1, "Worker": replicas(MPI, 1, "OnFailure")},
        (Restart({"worker-0": 1}), Exit({"launcher": 0})),
        differs=of_mpi("mpi-worker-restarts"),
    ),
    Case(
        "mpi-variables",
        MPI,
        {
            "Launcher": with_container(
                replicas(MPI, 1),
                env=[{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "mine"}, {"name": "A", "value": "1"}],
            ),
            "Worker": with_container(replicas(MPI, 1), command=["serve"], args=["here"]),
        },
        (Exit({"launcher": 0}),),
        {"mainContainer": "sidecar"},
        of_mpi("mpi-variables"),
    ),
    Case(
        "mpi-gpu",
        MPI,
        {
            "Launcher": with_container(replicas(MPI, 1), resources={"limits": {"nvidia.com/gpu": "1"}}),
            "Worker": 1,
        },
        differs=of_mpi("mpi-gpu"),
    ),
    Case(
        "mpi-account",
        MPI,
        {"Launcher": with_account(replicas(MPI, 1), "mine"), "Worker": 1},
        differs=(*of_mpi("mpi-account", "ConfigMap", "Role", "RoleBinding"), ACCOUNT),
    ),
    Case(
        "mpi-dynamic",
        MPI,
        {"Launcher": 1, "Worker": 2},
        (Change(replicas_change(MPI, Worker=3)), Change(replicas_change(MPI, Worker=1)), Exit({"launcher": 0})),
        differs=of_mpi("mpi-dynamic"),
    ),
    Case(
        "mpi-alone",
        MPI,
        {"Launcher": 1},
        (Exit({"launcher": 0}),),
        differs=(*of_mpi("mpi-alone"), ANY_POD, NO_WORKERS),
    ),
    Case(
        "mpi-suspended",
        MPI,
        {"Launcher": 1, "Worker": 1},
        (suspend(True), suspend(False), Exit({"launcher": 0})),
        differs=of_mpi("mpi-suspended"),
    ),
)
# What --kubeflow-v1-strict repeats. Deletions come last, when no kubelet serves the pods.
STRICT_CASES = (
    Case("tf-deleted", TF, {"Worker": replicas(TF, 2, "OnFailure")}, (Delete("worker-1"),)),
    Case("tf-dynamic-deleted", TF, {"Worker": 2, "PS": 1}, (Delete("ps-0"),), {"enableDynamicWorker": True}),
    Case("torch-deleted", TORCH, {"Worker": 2}, (Delete("worker-1"),)),
    Case("torch-never-deleted", TORCH, {"Worker": replicas(TORCH, 2, "Never")}, (Delete("worker-1"),)),
    Case("boost-deleted", BOOST, {"Master": replicas(BOOST, 1, "OnFailure"), "Worker": 1}, (Delete("master-0"),)),
    Case("jax-deleted", JAX, {"Worker": replicas(JAX, 2, "ExitCode")}, (Delete("worker-1"),)),
    Case("paddle-deleted", PADDLE, {"Worker": 2}, (Delete("worker-0"),)),
    Case(
        "tf-success-gone",
        TF,
        {"Worker": 2},
        (Exit({"worker-1": 0}), Delete("worker-1", at_once=True)),
        {"successPolicy": "AllWorkers"},
    ),
    Case(
        "torch-replaced",
        TORCH,
        {"Master": replicas(TORCH, 1, "ExitCode")},
        (Exit({"master-0": 137}),),
        policy(backoffLimit=1),
        differs=(RESTARTS,),
    ),
    Case(
        "boost-evicted",
        BOOST,
        {"Master": 1, "Worker": replicas(BOOST, 1, "OnFailure")},
        (Exit({"worker-0": 137}),),
        # Its log tells why the job has failed.
        differs=("/pods/boost-evicted-worker-0: 'absent' / ",),
    ),
    Case("tf-kept", TF, {"Chief": 1, "Worker": unschedulable(replicas(TF, 1))}, (Exit({"chief-0": 0}),)),
    Case("jax-elsewhere", JAX, {"Worker": 1}, (), policy(managedBy="kueue.x-k8s.io/multikueue")),
)
BY_NAME = {case.name: case for case in (*CASES, *STRICT_CASES)}


def set_restarts(api: Api, namespace: str, pod: str, count: int) -> None:
    path = pod_path(namespace, pod)
    statuses = [{**each, "restartCount": count} for each in api.get(path)["status"]["containerStatuses"]]
    api.patch(f"{path}/status", {"status": {"containerStatuses": statuses}})


class Trial:
    """All jobs in the namespaces of both controllers."""

    def __init__(self, api: Api, namespaces: tuple[V1Namespace, V1Namespace], cases: Sequence[Case]) -> None:
        self._api = api
        self._namespaces = namespaces
        self._cases = cases
        # What was seen of each job, at each rest.
        self.seen: dict[str, list[Seen]] = {case.name: [] for case in cases}

    def run(self) -> None:
        with FakeKubelet(self._api):
            for case in self._cases:
                for namespace in self._namespaces:
                    namespace.submit(case.manifest)
            self._rest(self._cases)
            served = {case.name: [step for step in case.steps if not isinstance(step, Delete)] for case in self._cases}
            for number in range(max(map(len, served.values()))):
                self._step({name: steps[number] for name, steps in served.items() if number < len(steps)})
        self._step({case.name: case.steps[-1] for case in self._cases if isinstance((*case.steps, None)[-1], Delete)})

    def _step(self, steps: Mapping[str, Step]) -> None:
        cases = [case for case in self._cases if case.name in steps]
        for case in cases:
            for namespace in self._namespaces:
                self._take(namespace, case, steps[case.name])
        if cases:
            self._rest(cases)

    def _take(self, namespace: V1Namespace, case: Case, step: Step) -> None:
        if isinstance(step, Change):
            namespace.patch(case.kind, case.name, step.patch)
            return
        if isinstance(step, Delete):
            path = pod_path(namespace.name, f"{case.name}-{step.replica}")
            self._api.delete(path, **({"gracePeriodSeconds": 0} if step.at_once else {}))
            return
        for replica, number in (step.codes if isinstance(step, Exit) else step.counts).items():
            pod = f"{case.name}-{replica}"
            eventually(lambda pod=pod: pod_phase(namespace, pod) == "Running")
            if isinstance(step, Exit):
                set_pod_terminated(self._api, namespace.name, pod, number)
            else:
                set_restarts(self._api, namespace.name, pod, number)

    def _rest(self, cases: Sequence[Case]) -> None:
        await_rest(self._api, self._namespaces)
        upstream, ours = (namespace.seen() for namespace in self._namespaces)
        nothing: Object = {}
        for case in cases:
            self.seen[case.name].append((upstream.get(case.name, nothing), ours.get(case.name, nothing)))


@pytest.fixture(scope="module")
def seen() -> Iterator[Mapping[str, Sequence[Seen]]]:
    """What was seen of each job by its name."""
    with own_plane("v1parity", Options()) as cluster:
        seen = _trial(cluster, CASES)
        yield {**seen, **_trial(cluster, STRICT_CASES, kubeflow_v1_strict=True)}


def _trial(cluster: Cluster, cases: Sequence[Case], **options: Any) -> Mapping[str, Sequence[Seen]]:
    api, names = cluster.api, [new_namespace(cluster.api, prefix) for prefix in ("upstream", "ours")]
    operator = TrainingOperator(cluster.own, names[0])
    operator.install()
    operator.start()
    trial = Trial(api, (V1Namespace(api, names[0]), V1Namespace(api, names[1])), cases)
    given = {"kubeflow_v1_api": KINDS, "trainjobs": False, "gang_scheduling": "off", **options}
    with running_controller(cluster.kubeconfig, names[1], **given):
        trial.run()
    operator.stop()
    return trial.seen


@pytest.mark.parametrize("name", BY_NAME)
def test_clients_see_the_same_of_a_job(seen: Mapping[str, Sequence[Seen]], name: str) -> None:
    case = BY_NAME[name]
    lines = [
        f"rest {number}{line}"
        for number, (upstream, ours) in enumerate(seen[name])
        for line in differences(upstream, ours)
    ]
    unexpected = [line for line in lines if not any(part in line for part in (*case.differs, VARYING))]
    assert not unexpected, "\n".join(unexpected)
    assert all(any(part in line for line in lines) for part in case.differs), "\n".join(lines)
