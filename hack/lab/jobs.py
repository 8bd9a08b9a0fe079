"""The jobs of a run, chosen at random from one seed: their plans, manifests, and how their pods end."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localcluster.fakekubelet import by_annotations
from localcluster.podstatus import Outcome
from tfjob_controller.jobs.naming import replica_id_of

TFJOB, TRAINJOB = "TFJob", "TrainJob"
SUCCESS, FAILED = "SUCCESS", "FAILED"
# Exit codes: of a program that was killed by a signal, which is retryable, and of a permanent error.
KILLED, WRONG = 137, 1


@dataclass(frozen=True, slots=True)
class Part:
    """Replicas of one role, and how their containers end.

    They end after `run_seconds` with `exit_code`; with None they run until they are stopped. The first `failures`
    starts of the replica with index 0 end with `KILLED` before that.
    """

    role: str
    count: int
    run_seconds: float | None
    exit_code: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job. `expects` is its expected result in spite of all faults; `spec` has the fields besides `parts`.

    An urgent gang is a TFJob that preempts others.
    """

    kind: str
    parts: Sequence[Part]
    name: str = ""
    expects: str = SUCCESS
    namespace: str = ""
    is_gang: bool = False
    is_urgent: bool = False
    cpu: str = "500m"
    restart_policy: str = "OnFailure"
    framework: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_suspended_at_first(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def has_ttl(self) -> bool:
        return "ttlSecondsAfterFinished" in self.spec

    @property
    def sizes(self) -> tuple[int, int]:
        """The bounds of the number of workers or nodes to which users scale the job; (0, 0) if they cannot."""
        if self.kind == TRAINJOB:
            policy = self.spec.get("elasticPolicy") or {"minNodes": 0, "maxNodes": 0}
            return policy["minNodes"], policy["maxNodes"]
        workers = next((part.count for part in self.parts if part.role == "WORKER"), 0)
        if not workers:
            return 0, 0
        bounds = self.spec.get("autoscaling")
        return (bounds["minWorkers"], bounds["maxWorkers"]) if bounds else (1, workers + 2)


# Relative frequency of each kind of job, and the function that makes one from random numbers.
Flavours = Mapping[str, tuple[int, Callable[[random.Random], JobPlan]]]


def job_plan(number: int, seed: int) -> JobPlan:
    """Returns job `number` of the run with that seed, independently of other calls."""
    return plan_of(number, seed, FLAVOURS)


def plan_of(number: int, seed: int, flavours: Flavours) -> JobPlan:
    """Returns a job of one of the flavours; the same for the same number and seed."""
    rng = random.Random(f"{seed}-{number}")  # noqa: S311 -- to be repeated, not to be kept secret
    flavour = rng.choices(list(flavours), weights=[weight for weight, _ in flavours.values()])[0]
    return replace(flavours[flavour][1](rng), name=f"{flavour}-{number:04d}")


def warm_up_plans() -> list[JobPlan]:
    """Returns the jobs that run before the first fault."""
    return [
        JobPlan(TFJOB, [Part("MASTER", 1, 0.5), Part("WORKER", 3, 0.4)], "warm-up-tf", cpu="100m"),
        JobPlan(TRAINJOB, [Part("node", 3, 0.5)], "warm-up-train", framework="torch", cpu="100m"),
    ]


def _tf_parts(rng: random.Random, *, master: int = 0, failures: int = 0, with_ps: bool = False) -> list[Part]:
    """Returns a master that decides, workers that end before or after it, and perhaps parameter servers."""
    seconds = rng.uniform(2.0, 14.0)
    worker_seconds = rng.choice((seconds * 0.5, seconds * 0.8, None))
    parts = [
        Part("MASTER", 1, seconds, master, failures),
        Part("WORKER", rng.randint(1, 4), worker_seconds, failures=rng.choice((0, 0, 1)) if worker_seconds else 0),
    ]
    return [*parts, Part("PS", rng.randint(1, 2), None)] if with_ps else parts


def _master(rng: random.Random) -> JobPlan:
    policy = rng.choice(("OnFailure", "OnFailure", "Never"))
    clean = rng.choice(("Running", "Running", "All", "None"))
    parts = _tf_parts(rng, with_ps=rng.random() < 0.4)
    return JobPlan(TFJOB, parts, restart_policy=policy, spec={"cleanPodPolicy": clean})


def _workers(rng: random.Random) -> JobPlan:
    seconds = rng.uniform(2.0, 12.0)
    chief = {"terminationPolicy": {"chief": {"replicaName": "WORKER", "replicaIndex": 0}}}
    return JobPlan(TFJOB, [Part("WORKER", rng.randint(2, 5), seconds)], spec=chief)


def _gang(rng: random.Random) -> JobPlan:
    parts = _tf_parts(rng, with_ps=rng.random() < 0.4)
    return JobPlan(TFJOB, parts, is_gang=True, cpu=rng.choice(("500m", "1", "2")))


def _elastic(rng: random.Random) -> JobPlan:
    bounds = {"minWorkers": 1, "maxWorkers": 6, "resize": rng.choice(("InPlace", "Restart"))}
    seconds = rng.uniform(6.0, 16.0)
    parts = [Part("MASTER", 1, seconds), Part("WORKER", rng.randint(1, 4), None), Part("PS", 1, None)]
    return JobPlan(TFJOB, parts, is_gang=rng.random() < 0.6, spec={"autoscaling": bounds})


def _fails(rng: random.Random) -> JobPlan:
    policy = rng.choice(("OnFailure", "Never"))
    parts = _tf_parts(rng, master=WRONG)
    return JobPlan(TFJOB, parts, expects=FAILED, restart_policy=policy, is_gang=rng.random() < 0.2)


def _retries(rng: random.Random) -> JobPlan:
    policy = rng.choice(("OnFailure", "Never"))
    return JobPlan(TFJOB, _tf_parts(rng, failures=1), restart_policy=policy)


def _deadline(rng: random.Random) -> JobPlan:
    parts = [Part("MASTER", 1, None), Part("WORKER", rng.randint(1, 3), None)]
    return JobPlan(TFJOB, parts, expects=FAILED, spec={"activeDeadlineSeconds": rng.randint(5, 15)})


def _suspended(rng: random.Random) -> JobPlan:
    return JobPlan(TFJOB, _tf_parts(rng), is_gang=rng.random() < 0.3, spec={"suspend": True})


def _ttl(rng: random.Random) -> JobPlan:
    return JobPlan(TFJOB, _tf_parts(rng), spec={"ttlSecondsAfterFinished": rng.randint(1, 10)})


def _train(rng: random.Random) -> JobPlan:
    framework = rng.choice(("torch", "plain", "tensorflow", "jax", "xgboost"))
    parts = [Part("node", rng.randint(1, 4), rng.uniform(2.0, 12.0))]
    return JobPlan(TRAINJOB, parts, framework=framework, spec=_RESTARTS)


def _train_mpi(rng: random.Random) -> JobPlan:
    parts = [Part("launcher", 1, rng.uniform(2.0, 10.0)), Part("node", rng.randint(1, 3), None)]
    return JobPlan(TRAINJOB, parts, framework="mpi", is_gang=rng.random() < 0.3, spec=_RESTARTS)


def _train_gang(rng: random.Random) -> JobPlan:
    parts = [Part("node", rng.randint(2, 6), rng.uniform(2.0, 12.0))]
    return JobPlan(TRAINJOB, parts, framework="torch", is_gang=True, cpu="1", spec=_RESTARTS)


def _train_elastic(rng: random.Random) -> JobPlan:
    nodes = rng.randint(1, 4)
    parts = [Part("node", nodes, rng.uniform(6.0, 16.0), failures=rng.choice((0, 0, 1)))]
    spec = {**_RESTARTS, "elasticPolicy": {"minNodes": rng.randint(1, nodes), "maxNodes": rng.randint(nodes, 6)}}
    is_gang = rng.random() < 0.6
    return JobPlan(TRAINJOB, parts, framework="torch", is_gang=is_gang, cpu="1", spec=spec)


def _train_fails(rng: random.Random) -> JobPlan:
    parts = [Part("node", rng.randint(1, 3), rng.uniform(2.0, 8.0), WRONG)]
    return JobPlan(TRAINJOB, parts, expects=FAILED, framework="torch", spec=_RESTARTS)


def _train_retries(rng: random.Random) -> JobPlan:
    parts = [Part("node", rng.randint(1, 3), rng.uniform(2.0, 8.0), failures=1)]
    return JobPlan(TRAINJOB, parts, framework="plain", is_gang=rng.random() < 0.3, spec=_RESTARTS)


def _train_exhausted(rng: random.Random) -> JobPlan:
    """Returns a job whose nodes are always killed, so that it fails after its last restart."""
    parts = [Part("node", rng.randint(1, 3), rng.uniform(1.0, 4.0), KILLED)]
    return JobPlan(TRAINJOB, parts, expects=FAILED, framework="torch", spec={"maxRestarts": 1})


# More restarts than a run can cause.
_RESTARTS: Mapping[str, Any] = {"maxRestarts": 100}

FLAVOURS: Flavours = {
    "master": (8, _master),
    "workers": (5, _workers),
    "gang": (8, _gang),
    "elastic": (6, _elastic),
    "fails": (3, _fails),
    "retries": (4, _retries),
    "deadline": (2, _deadline),
    "suspended": (3, _suspended),
    "ttl": (3, _ttl),
    "train": (8, _train),
    "train-mpi": (3, _train_mpi),
    "train-gang": (6, _train_gang),
    "train-elastic": (6, _train_elastic),
    "train-fails": (3, _train_fails),
    "train-retries": (3, _train_retries),
    "train-exhausted": (2, _train_exhausted),
}


Object = dict[str, Any]

EXPECTS = "chaos.kubeflow.org/expects"
# The PriorityClass of the pods of urgent gangs.
URGENT = "chaos-urgent"
_URGENT_PRIORITY = 10
TFJOBS = "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs"
TRAINJOBS = "/apis/kubeflow.org/v2alpha1/namespaces/{}/trainjobs"
_IMAGE = "localhost/none"
_COMMANDS = {"mpi": ["mpirun", "train"], "torch": ["torchrun", "train.py"]}


def manifest(plan: JobPlan) -> Object:
    """Returns the manifest of a job."""
    is_tf = plan.kind == TFJOB
    spec = {**(_tf_spec(plan) if is_tf else _train_spec(plan)), **plan.spec}
    return {
        "apiVersion": "kubeflow.org/v1alpha1" if is_tf else "kubeflow.org/v2alpha1",
        "kind": plan.kind,
        "metadata": {"name": plan.name, "annotations": {EXPECTS: plan.expects}},
        "spec": {**spec, **({"gang": _gang_spec(plan)} if plan.is_gang else {})},
    }


def _gang_spec(plan: JobPlan) -> Object:
    return {"enabled": True, **({"priority": _URGENT_PRIORITY} if plan.is_urgent else {})}


def path_of(plan: JobPlan, namespace: str) -> str:
    """Returns the path of all objects of the job's kind."""
    return (TFJOBS if plan.kind == TFJOB else TRAINJOBS).format(namespace)


def _tf_spec(plan: JobPlan) -> Object:
    return {"replicaSpecs": [_replica_spec(plan, part) for part in plan.parts]}


def _replica_spec(plan: JobPlan, part: Part) -> Object:
    container = {"name": "tensorflow", "image": _IMAGE, "resources": {"requests": {"cpu": plan.cpu}}}
    pod = {
        "restartPolicy": plan.restart_policy,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **({"priorityClassName": URGENT} if plan.is_urgent else {}),
    }
    return {"tfReplicaType": part.role, "replicas": part.count, "template": {"spec": pod}}


def _train_spec(plan: JobPlan) -> Object:
    nodes = next(part.count for part in plan.parts if part.role == "node")
    command = _COMMANDS.get(plan.framework, ["python3", "train.py"])
    trainer = {"image": _IMAGE, "command": command, "resourcesPerNode": {"requests": {"cpu": plan.cpu}}}
    return {"numNodes": nodes, "framework": plan.framework, "trainer": trainer}


class PodOutcomes:
    """The behaviour of a fake kubelet: pods end by the plan of their job, however often they are recreated.

    `plan_of` gets a job's name, and may be set later. Thread-safe.
    """

    def __init__(self, plan_of: Callable[[str], JobPlan | None] = lambda name: None) -> None:
        self.plan_of = plan_of
        self._lock = threading.Lock()
        self._starts: Counter[tuple[str, str, str]] = Counter()

    def __call__(self, pod: Object, attempt: int) -> Outcome:
        labels = pod["metadata"].get("labels") or {}
        job = labels.get("tf_job_name") or labels.get("train_job_name") or ""
        plan = self.plan_of(job)
        part = next((part for part in plan.parts if part.role == labels.get("job_type")), None) if plan else None
        if part is None:
            return by_annotations(pod, attempt)
        index = replica_id_of(labels).rpartition("-")[2]
        with self._lock:
            starts = self._starts[job, part.role, index]
            self._starts[job, part.role, index] += 1
        if index == "0" and starts < part.failures:
            return Outcome(after_seconds=min(1.0, part.run_seconds or 1.0), exit_code=KILLED)
        return Outcome(after_seconds=part.run_seconds, exit_code=part.exit_code)
