"""The jobs of a run on real nodes, chosen at random from one seed, and their manifests. Pure.

Programs are shell scripts. Each start leaves a mark in a folder that all nodes see, so that a script knows how often
its replica was started: most errors happen at the first start only.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.jobs import EXPECTS, FAILED, KILLED, SUCCESS, TFJOB, TRAINJOB, WRONG, Flavours, JobPlan, Part, plan_of
from localcluster import images

Object = dict[str, Any]

# What is in a pod beside its training container. "init-fails" is an init container that is killed once.
_NATIVE, _INIT_FAILS = "native", "init-fails"
_SIDECARS = ("sidecar-first-0", "sidecar-first-1", "sidecar-later-0", "sidecar-later-1", "sidecar-runs-on")
COMPOSITIONS = ("alone", "alone", *_SIDECARS, _NATIVE, _INIT_FAILS)
# With a sidecar that fails, Kubernetes replaces a node of an elastic job (docs/trainjob.md).
ELASTIC_COMPOSITIONS = ("alone", "sidecar-first-0", "sidecar-runs-on", _NATIVE, _INIT_FAILS)
# What programs do when they get SIGTERM. The first process of a container ignores it by default.
_AT_SIGTERM = ("", "trap 'exit 0' TERM; ", "trap 'exit 143' TERM; ")
_FOREVER_SECONDS = 3600.0
_COUNT = (
    "marks=/marks/$JOB/$ROLE-${INDEX:-$JOB_COMPLETION_INDEX}/$NAME\n"
    "mkdir -p $marks; tries=$(ls $marks | wc -l); mkdir $marks/$tries\n"
)
_PROBE = {"exec": {"command": ["test", "!", "-e", "/sick"]}, "periodSeconds": 1, "failureThreshold": 3}


@dataclass(frozen=True, slots=True)
class PodPart(Part):
    """Replicas of one role, of which each is killed at its first `failures` starts.

    If `is_sick`, the liveness probe fails at the start after these.
    """

    composition: str = "alone"
    at_sigterm: str = ""
    is_sick: bool = False

    @property
    def errors(self) -> int:
        """How many ends the programs of these replicas cause by themselves before they do what they should."""
        return self.count * (self.failures + self.is_sick + (self.composition == _INIT_FAILS))


def node_job_plan(number: int, seed: int) -> JobPlan:
    """Returns job `number` of the run with that seed, independently of other calls."""
    return plan_of(number, seed, _FLAVOURS)


def objects_of(plan: JobPlan, marks: str) -> list[Object]:
    """Returns the manifests of a job; the last one is that of the job itself. `marks` is a folder on the nodes."""
    meta = {"name": plan.name, "annotations": {EXPECTS: plan.expects}}
    templates = {part.role: _template(plan, part, marks) for part in plan.parts if isinstance(part, PodPart)}
    if plan.kind == TFJOB:
        replicas = [
            {"tfReplicaType": part.role, "replicas": part.count, "template": templates[part.role]}
            for part in plan.parts
        ]
        spec = {"replicaSpecs": replicas, **plan.spec}
        return [{"apiVersion": "kubeflow.org/v1alpha1", "kind": plan.kind, "metadata": meta, "spec": spec}]
    version = "kubeflow.org/v2alpha1"
    spec = {"framework": plan.framework, "numNodes": plan.parts[-1].count, "templates": templates}
    runtime = {"apiVersion": version, "kind": "TrainingRuntime", "metadata": {"name": plan.name}, "spec": spec}
    named = {"runtimeRef": {"kind": "TrainingRuntime", "name": plan.name}, "numNodes": plan.parts[-1].count}
    return [runtime, {"apiVersion": version, "kind": plan.kind, "metadata": meta, "spec": {**named, **plan.spec}}]


def _template(plan: JobPlan, part: PodPart, marks: str) -> Object:
    name = "tensorflow" if plan.kind == TFJOB else part.role
    seconds = part.run_seconds or _FOREVER_SECONDS
    main = _container(plan, part, name, _script(part, seconds))
    if part.is_sick:
        main["livenessProbe"] = _PROBE
    if plan.framework == "mpi":
        main["image"] = images.MPI
    if plan.framework == "mpi" and part.role == "node":
        del main["command"]  # the controller adds sshd
    inits, beside = [], []
    if part.composition == _INIT_FAILS:
        inits = [_container(plan, part, "setup", f"{_COUNT}[ $tries -ge 1 ] || exit {KILLED}")]
    elif part.composition == _NATIVE:
        script = "trap 'exit 143' TERM; sleep infinity & wait"
        inits = [{**_container(plan, part, "log", script), "restartPolicy": "Always"}]
    elif part.composition in _SIDECARS:
        _, when, code = part.composition.split("-")
        rests = {"first": "1", "later": f"{min(seconds, 60.0) + 4.0:g}", "runs": "infinity"}[when]
        beside = [_container(plan, part, "log", f"sleep {rests}; exit {code}")]
    spec: Object = {
        "terminationGracePeriodSeconds": 4,
        "initContainers": inits,
        "containers": [main, *beside],
        "volumes": [{"name": "marks", "hostPath": {"path": marks, "type": "DirectoryOrCreate"}}],
    }
    has_policy = plan.kind == TFJOB and plan.restart_policy
    return {"spec": spec | ({"restartPolicy": plan.restart_policy} if has_policy else {})}


def _script(part: PodPart, seconds: float) -> str:
    lines = f"[ $tries -ge {part.failures} ] || {{ sleep 2; exit {KILLED}; }}\n"
    if part.is_sick:
        lines += f"[ $tries != {part.failures} ] || {{ touch /sick; sleep 60; }}\n"
    return f"{_COUNT}{lines}{part.at_sigterm}sleep {seconds:.1f} & wait $!; exit {part.exit_code}"


def _container(plan: JobPlan, part: PodPart, name: str, script: str) -> Object:
    index = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['task_index']"}}}
    return {
        "name": name,
        "image": images.BASE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "env": [*_variables(JOB=plan.name, ROLE=part.role, NAME=name), {"name": "INDEX", **index}],
        "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
        "securityContext": {"runAsUser": 0},
    }


def _variables(**values: str) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _part(
    rng: random.Random, role: str, count: int, seconds: float | None, code: int = 0, among: Sequence[str] = COMPOSITIONS
) -> PodPart:
    first, composition = rng.choice(("", "", "killed", "sick")), rng.choice(among)
    failures, is_sick = int(first == "killed"), first == "sick"
    return PodPart(role, count, seconds, code, failures, composition, rng.choice(_AT_SIGTERM), is_sick)


def _tf(rng: random.Random, *, code: int = 0) -> JobPlan:
    seconds = rng.uniform(5.0, 25.0)
    parts = [
        _part(rng, "MASTER", 1, seconds, code),
        _part(rng, "WORKER", rng.randint(1, 2), rng.choice((seconds * 0.5, seconds * 0.8, None))),
        *([_part(rng, "PS", 1, None)] if rng.random() < 0.5 else []),
    ]
    spec = {"cleanPodPolicy": rng.choice(("Running", "All", "None")), **_limit(rng, "backoffLimit", parts)}
    policy = rng.choice(("", "Never", "OnFailure"))
    return JobPlan(TFJOB, parts, expects=FAILED if code else SUCCESS, restart_policy=policy, spec=spec)


def _tf_kept(rng: random.Random) -> JobPlan:
    """Returns a job whose workers are kept after its end, and fail then: nothing may restart them."""
    seconds = rng.uniform(5.0, 15.0)
    parts = [_part(rng, "MASTER", 1, seconds), _part(rng, "WORKER", 2, seconds + rng.uniform(10.0, 40.0), KILLED)]
    policy = rng.choice(("", "Never", "OnFailure"))
    return JobPlan(TFJOB, parts, restart_policy=policy, spec={"cleanPodPolicy": "None"})


def _train(rng: random.Random, *, code: int = 0) -> JobPlan:
    parts = [_part(rng, "node", rng.randint(1, 3), rng.uniform(5.0, 20.0), code)]
    spec = _limit(rng, "maxRestarts", parts)
    return JobPlan(TRAINJOB, parts, expects=FAILED if code else SUCCESS, framework="plain", spec=spec)


def _train_exhausted(rng: random.Random) -> JobPlan:
    """Returns a job whose nodes are always killed, so that it fails after its last restart."""
    parts = [_part(rng, "node", rng.randint(1, 2), rng.uniform(2.0, 6.0), KILLED)]
    return JobPlan(TRAINJOB, parts, expects=FAILED, framework="plain", spec={"maxRestarts": 1})


def _mpi(rng: random.Random) -> JobPlan:
    node = PodPart("node", rng.randint(1, 2), None, composition=rng.choice(("alone", _NATIVE, "sidecar-first-1")))
    parts = [_part(rng, "launcher", 1, rng.uniform(5.0, 15.0)), node]
    return JobPlan(TRAINJOB, parts, framework="mpi", spec=_limit(rng, "maxRestarts", parts))


def _elastic(rng: random.Random) -> JobPlan:
    parts = [_part(rng, "node", rng.randint(2, 3), rng.uniform(8.0, 20.0), among=ELASTIC_COMPOSITIONS)]
    spec = {"elasticPolicy": {"minNodes": 1, "maxNodes": 3}, **_limit(rng, "maxRestarts", parts)}
    return JobPlan(TRAINJOB, parts, framework="torch", spec=spec)


def _limit(rng: random.Random, field: str, parts: Sequence[PodPart]) -> Mapping[str, Any]:
    """Returns a limit that the errors of the programs just reach, so that no disruption may count; or none."""
    return {field: sum(part.errors for part in parts)} if rng.random() < 0.7 else {}


# Relative frequency of each kind of job.
_FLAVOURS: Flavours = {
    "tf": (8, _tf),
    "tf-fails": (2, functools.partial(_tf, code=WRONG)),
    "tf-kept": (2, _tf_kept),
    "train": (6, _train),
    "train-fails": (1, functools.partial(_train, code=WRONG)),
    "train-exhausted": (1, _train_exhausted),
    "train-mpi": (2, _mpi),
    "train-elastic": (4, _elastic),
}
