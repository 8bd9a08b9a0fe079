"""Validates jobs of `kubeflow.org/v1`, as the webhooks of training-operator do, and its controller an MPIJob.

The texts are upstream's, in the form of the API server's field errors. Beyond upstream's rules, what no pod can come of
is refused: templates of the wrong shape, restart policies and types that do not exist, and more replicas than the
controller can run. All functions are pure: they take jobs as they are stored, without defaults, and return None or the
first problem.

Source: kubeflow/trainer, branch release-1.9, pkg/webhooks/*, pkg/common/util/webhooks.go and
pkg/apis/kubeflow.org/v1/mpi_validation.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfjob_controller.api.common.podtemplates import containers_of, template_problem
from tfjob_controller.api.kubeflowv1.types import (
    CHIEF,
    JAX_JOB,
    LAUNCHER,
    MANAGED_HERE,
    MASTER,
    MPI_JOB,
    MULTIKUEUE,
    PADDLE_JOB,
    PYTORCH_JOB,
    RESTART_POLICIES,
    TF_JOB,
    V1_KINDS,
    WORKER,
    XGBOOST_JOB,
    V1Job,
    V1Kind,
    V1ReplicaSpec,
    V1RunPolicy,
    V1Spec,
)

# All replicas of a job; upstream has no limit.
MAX_REPLICAS = 5000

# apimachinery pkg/util/validation: IsDNS1035Label.
_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_MAX_LABEL = 63
_NOT_A_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL}')"
)
_MANAGED_BY = "spec.runPolicy.managedBy"
# The part of the name of a pod that is the type of its replica.
_TYPE = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def problem(job: V1Job) -> str | None:
    """Returns the first problem of a job."""
    return job.invalid or next(_problems(job), None)


def _problems(job: V1Job) -> Iterator[str]:
    kind, spec = V1_KINDS[job.kind], job.spec
    at = f"spec.{kind.replicas_field}"
    for name, entry in spec.replica_specs.items():
        yield from _shape_problems(entry.template, f"{at}[{name}].template")
    if kind.kind == MPI_JOB:
        yield from _mpi_problems(kind, spec)
    else:
        yield from _name_problems(job.metadata.name)
        if kind.kind != JAX_JOB:
            yield from _manager_problems(spec.run_policy)
        yield from _spec_problems(kind, spec, at)
    yield from _limit_problems(spec.replica_specs, at)


# Field errors: apimachinery pkg/util/validation/field.


def _required(path: str, detail: str) -> str:
    return f"{path}: Required value: {detail}"


def _forbidden(path: str, detail: str) -> str:
    return f"{path}: Forbidden: {detail}"


def _invalid(path: str, value: str | int | None, detail: str) -> str:
    return f"{path}: Invalid value: {_quoted(value)}: {detail}"


def _not_supported(path: str, value: str, supported: Iterable[str]) -> str:
    quoted = ", ".join(_quoted(name) for name in supported)
    return f"{path}: Unsupported value: {_quoted(value)}: supported values: {quoted}"


def _quoted(value: str | int | None) -> str:
    return json.dumps(value, ensure_ascii=False)


# Upstream's rules


def _name_problems(name: str) -> Iterator[str]:
    problems = [f"must be no more than {_MAX_LABEL} characters"] if len(name) > _MAX_LABEL else []
    if not re.fullmatch(_LABEL, name):
        problems.append(_NOT_A_LABEL)
    if problems:
        yield _invalid("metadata.name", name, f"should match: {','.join(problems)}")


def _manager_problems(policy: V1RunPolicy) -> Iterator[str]:
    if policy.managed_by not in (None, MANAGED_HERE, MULTIKUEUE):
        yield _not_supported(_MANAGED_BY, policy.managed_by, (MANAGED_HERE, MULTIKUEUE))


def _spec_problems(kind: V1Kind, spec: V1Spec, at: str) -> Iterator[str]:
    if spec.elastic_policy is not None and kind.kind == PYTORCH_JOB:
        yield from _elastic_problems(spec, at)
    if not spec.replica_specs:
        yield _required(at, "must be required")
    for name, entry in spec.replica_specs.items():
        yield from _entry_problems(kind, name, entry, f"{at}[{name}]")
    if kind.kind == XGBOOST_JOB and MASTER not in spec.replica_specs:
        yield _required(f"{at}[{MASTER}]", "must be present")
    if kind.kind == TF_JOB and {CHIEF, MASTER} <= spec.replica_specs.keys():
        yield _forbidden(at, "must not have more than 1 Chief or Master role")


def _elastic_problems(spec: V1Spec, at: str) -> Iterator[str]:
    if WORKER not in spec.replica_specs:
        yield _required(f"{at}[{WORKER}]", "must be configured if elastic policy is used")
    of_policy = spec.elastic_policy.n_proc_per_node if spec.elastic_policy is not None else None
    if of_policy is not None and spec.nproc_per_node is not None:
        yield _forbidden("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")


def _entry_problems(kind: V1Kind, name: str, entry: V1ReplicaSpec, at: str) -> Iterator[str]:
    if kind.kind != TF_JOB and name not in kind.types:
        yield _not_supported(at, name, kind.types)
    yield from _container_problems(kind, entry, f"{at}.template.spec.containers")
    if kind.kind not in (PYTORCH_JOB, XGBOOST_JOB):
        return
    if name == MASTER:
        if entry.replicas != 1:
            yield _forbidden(f"{at}.replicas", "must be 1")
    elif kind.kind == PYTORCH_JOB and entry.replicas is not None and entry.replicas < 1:
        yield _forbidden(f"{at}.replicas", "must be at least 1")


def _container_problems(kind: V1Kind, entry: V1ReplicaSpec, at: str) -> Iterator[str]:
    containers = containers_of(entry.template)
    if not containers:
        yield _required(at, "must be specified")
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield _required(f"{at}[{index}].image", "must be required")
    if all(container["name"] != kind.container for container in containers):
        name = _quoted(kind.container) if kind.kind == PADDLE_JOB else kind.container
        yield _required(at, f"must have at least one container with name {name}")


def _mpi_problems(kind: V1Kind, spec: V1Spec) -> Iterator[str]:
    if not spec.replica_specs:
        yield "MPIReplicaSpecs is not valid"
    for name, entry in spec.replica_specs.items():
        containers = containers_of(entry.template)
        if not containers:
            yield f"MPIReplicaSpecs is not valid: containers definition expected in {name}"
        if name not in kind.types:
            yield f"MPIReplicaType is {name} but must be one of [{' '.join(kind.types)}]"
        for container in containers:
            if not container.get("image"):
                yield f"MPIReplicaSpec is not valid: Image is undefined in the container of {name}"
            if not container["name"]:
                yield f"MPIReplicaSpec is not valid: ImageName is undefined in the container of {name}"
        if name == LAUNCHER and entry.replicas not in (None, 1):
            yield "MPIReplicaSpec is not valid: There must be only 1 launcher replica"
    if LAUNCHER not in spec.replica_specs:
        yield "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"


# Rules that upstream leaves to its CRDs and to the API server


def _shape_problems(template: Mapping[str, Any], at: str) -> Iterator[str]:
    shape = template_problem(dict(template))
    if shape is not None:
        yield f"{at}{shape}"
        return
    for index, container in enumerate(containers_of(template)):
        ports = container.get("ports") or []
        if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
            yield f"{at}.spec.containers[{index}].ports: expected a list of objects"
        env = container.get("env") or []
        if not isinstance(env, list) or not all(isinstance(entry, dict) and _has_name(entry) for entry in env):
            yield f"{at}.spec.containers[{index}].env: expected a list of objects with names"


def _has_name(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("name"), str)


def _limit_problems(replica_specs: Mapping[str, V1ReplicaSpec], at: str) -> Iterator[str]:
    types: set[str] = set()
    for name, entry in replica_specs.items():
        if name.lower() in types:
            yield f"{at}[{name}]: Duplicate value: {_quoted(name)}"
        types.add(name.lower())
        if not _TYPE.fullmatch(name.lower()):
            yield _invalid(f"{at}[{name}]", name, "must be of letters, digits and -, as a part of the names of pods")
        if entry.replicas is not None and entry.replicas < 0:
            yield _invalid(f"{at}[{name}].replicas", entry.replicas, "must be at least 0")
        if entry.restart_policy and entry.restart_policy not in RESTART_POLICIES:
            yield _not_supported(f"{at}[{name}].restartPolicy", entry.restart_policy, RESTART_POLICIES)
    replicas = sum(1 if entry.replicas is None else entry.replicas for entry in replica_specs.values())
    if replicas > MAX_REPLICAS:
        yield _invalid(at, replicas, f"must have at most {MAX_REPLICAS} replicas in all")
