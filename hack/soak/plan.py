"""The jobs of a soak, chosen at random from one seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localcluster.podstatus import Outcome

TFJOBS = "/apis/kubeflow.org/v1alpha1/namespaces/{}/tfjobs"
TRAINJOBS = "/apis/kubeflow.org/v2alpha1/namespaces/{}/trainjobs"
JOB_LABELS = {TFJOBS: "tf_job_name", TRAINJOBS: "train_job_name"}

ENDS, FAILS, RESTARTS, SUSPENDED, COMES_SUSPENDED, DELETED, RESIZED = SCENARIOS = (
    *("ends", "fails", "restarts", "suspended"),
    *("comes suspended", "deleted", "resized"),
)
_WEIGHTS: Mapping[str, int] = dict(zip(SCENARIOS, (40, 10, 12, 12, 6, 12, 8), strict=True))
SUCCEEDED, FAILED, GONE = "Succeeded", "Failed", "gone"
_PERMANENT, _RETRYABLE = 1, 130
# Types of replicas that run until they are stopped.
_SERVERS = ("PS",)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job and what happens to it.

    Its pods run for `run_seconds`. The action of its `scenario` takes place `after_seconds` after the creation and is
    undone, if possible, `pause_seconds` later.
    """

    name: str
    path: str
    scenario: str
    framework: str
    replicas: int
    has_server: bool
    is_gang: bool
    run_seconds: float
    after_seconds: float
    pause_seconds: float

    @property
    def expected(self) -> str:
        return {FAILS: FAILED, DELETED: GONE}.get(self.scenario, SUCCEEDED)


def job_plan(number: int, rng: random.Random, most_seconds: float) -> JobPlan:
    """Returns the plan of a job whose pods run for at most `most_seconds`."""
    is_tfjob, is_gang = rng.random() < 0.5, rng.random() < 0.4
    scenario = rng.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
    run_seconds = rng.uniform(0.1, 1.0) * most_seconds
    return JobPlan(
        name=f"job-{number:06d}",
        path=TFJOBS if is_tfjob else TRAINJOBS,
        # Only TFJobs without a gang are resized here.
        scenario=ENDS if scenario == RESIZED and (is_gang or not is_tfjob) else scenario,
        framework=rng.choice(("torch", "torch", "plain", "jax", "mpi")),
        replicas=rng.choice((1, 2, 2, 3, 4)),
        has_server=rng.random() < 0.3,
        is_gang=is_gang,
        run_seconds=run_seconds,
        after_seconds=rng.uniform(0.0, 1.0) * run_seconds,
        pause_seconds=rng.uniform(0.1, 0.3) * most_seconds,
    )


def body_of(plan: JobPlan, ttl_seconds: int) -> Object:
    """Returns the manifest."""
    spec = _tfjob_spec(plan) if plan.path == TFJOBS else _trainjob_spec(plan)
    spec |= {"ttlSecondsAfterFinished": ttl_seconds}
    spec |= {"gang": {"enabled": True}} if plan.is_gang else {}
    spec |= {"suspend": True} if plan.scenario == COMES_SUSPENDED else {}
    version, kind = ("v1alpha1", "TFJob") if plan.path == TFJOBS else ("v2alpha1", "TrainJob")
    return {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "metadata": {"name": plan.name}, "spec": spec}


def _tfjob_spec(plan: JobPlan) -> Object:
    counts = {"MASTER": 1, "WORKER": plan.replicas}
    specs: list[Object] = [
        {"tfReplicaType": kind, "replicas": count, "template": _template()} for kind, count in counts.items()
    ]
    if plan.has_server:
        specs.append({"tfReplicaType": "PS", "replicas": 1})
    return {"replicaSpecs": specs, "tfImage": "localhost/tensorflow"}


def _template() -> Object:
    container = {"name": "tensorflow", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}


def _trainjob_spec(plan: JobPlan) -> Object:
    trainer = {
        "image": "localhost/none",
        "command": ["mpirun" if plan.framework == "mpi" else "train"],
        "numProcPerNode": 1,
        "resourcesPerNode": {"requests": {"cpu": "1"}},
    }
    return {"framework": plan.framework, "numNodes": plan.replicas, "trainer": trainer}


def outcome_of(plan: JobPlan, job_type: str, *, has_failed: bool) -> Outcome:
    """Returns how a pod of the job ends; `has_failed` means that one has failed already, for `RESTARTS`."""
    is_node_of_mpi = plan.path == TRAINJOBS and plan.framework == "mpi" and job_type == "node"
    if job_type in _SERVERS or is_node_of_mpi:
        return Outcome()
    if plan.scenario == RESTARTS and not has_failed:
        return Outcome(after_seconds=plan.run_seconds / 2, exit_code=_RETRYABLE)
    return Outcome(after_seconds=plan.run_seconds, exit_code=_PERMANENT if plan.scenario == FAILS else 0)
