"""The defaults of jobs of `kubeflow.org/v1`.

Defaults live in memory only: the stored object stays as its user submitted it, as training-operator leaves it. All
functions are pure.

Source: kubeflow/trainer, branch release-1.9, pkg/apis/kubeflow.org/v1/*_defaults.go and defaulting_utils.go, and
pkg/controller.v1/mpi/mpijob_controller.go for `cleanPodPolicy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tfjob_controller.api.common.podtemplates import containers_of
from tfjob_controller.api.common.policies import CLEAN_ALL, CLEAN_NONE, CLEAN_POD_POLICIES
from tfjob_controller.api.common.schema import INT32_MAX
from tfjob_controller.api.kubeflowv1.types import (
    AUTO,
    MPI_JOB,
    PYTORCH_JOB,
    V1_KINDS,
    WORKER,
    V1ElasticPolicy,
    V1Job,
    V1Kind,
    V1ReplicaSpec,
    V1RunPolicy,
    V1Spec,
)


def with_defaults(job: V1Job) -> V1Job:
    """Returns the job with all defaults, and with the names of replica types in the case of its kind.

    The replica types come in the order of the kind, and those that it does not know after them.
    """
    kind, spec = V1_KINDS[job.kind], job.spec
    by_type = _by_type(kind, spec.replica_specs)
    replica_specs = {name: _replica_defaults(kind, name, entry) for name, entry in by_type.items()}
    spec_with_defaults = replace(
        spec,
        replica_specs=replica_specs,
        run_policy=_policy_defaults(kind, spec),
        elastic_policy=_elastic_defaults(spec.elastic_policy, replica_specs.get(WORKER)),
        nproc_per_node=_nproc_per_node(kind, spec),
    )
    return replace(job, spec=spec_with_defaults)


def _by_type(kind: V1Kind, replica_specs: Mapping[str, V1ReplicaSpec]) -> dict[str, V1ReplicaSpec]:
    """The entries by type, in the case of the kind; no two types differ only in their case (`validation`)."""
    types = {name.lower(): name for name in kind.types}
    entries = {types.get(name.lower(), name): entry for name, entry in replica_specs.items()}
    order = [*(name for name in kind.types if name in entries), *sorted(entries.keys() - set(kind.types))]
    return {name: entries[name] for name in order}


def _replica_defaults(kind: V1Kind, name: str, entry: V1ReplicaSpec) -> V1ReplicaSpec:
    default_replicas = 0 if (kind.kind, name) == (MPI_JOB, WORKER) else 1
    return V1ReplicaSpec(
        replicas=default_replicas if entry.replicas is None else entry.replicas,
        template=_with_port(kind, entry.template) if kind.port else entry.template,
        restart_policy=entry.restart_policy or kind.restart_policy,
    )


def _with_port(kind: V1Kind, template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The template whose training container, or else its first one, has the port of the kind."""
    containers = containers_of(template)
    if not containers:
        return template
    names = [container.get("name") for container in containers]
    index = names.index(kind.container) if kind.container in names else 0
    ports = containers[index].get("ports") or []
    if any(port.get("name") == kind.port_name for port in ports):
        return template
    added = {**containers[index], "ports": [*ports, {"name": kind.port_name, "containerPort": kind.port}]}
    with_port = [*containers[:index], added, *containers[index + 1 :]]
    return {**template, "spec": {**template["spec"], "containers": with_port}}


def _policy_defaults(kind: V1Kind, spec: V1Spec) -> V1RunPolicy:
    """The policy of the job. An MPIJob may have cleanPodPolicy in its spec; that of `runPolicy` comes first."""
    policy = spec.run_policy
    of_spec = spec.clean_pod_policy if kind.kind == MPI_JOB else None
    clean_policies = (policy.clean_pod_policy, of_spec, CLEAN_NONE)
    # Upstream deletes everything for a value that it does not know.
    policy_name = next(clean_policy for clean_policy in clean_policies if clean_policy is not None)
    deadline = policy.active_deadline_seconds
    return replace(
        policy,
        clean_pod_policy=policy_name if policy_name in CLEAN_POD_POLICIES else CLEAN_ALL,
        # Upstream has no maximum.
        active_deadline_seconds=None if deadline is None else min(deadline, INT32_MAX),
    )


def _elastic_defaults(policy: V1ElasticPolicy | None, workers: V1ReplicaSpec | None) -> V1ElasticPolicy | None:
    """The policy with both limits: one that is absent has the value of the other one, or is the number of workers."""
    if policy is None:
        return None
    limits = (policy.min_replicas, policy.max_replicas, workers.replicas if workers is not None else None)
    default = next((limit for limit in limits if limit is not None), None)
    return replace(
        policy,
        min_replicas=default if policy.min_replicas is None else policy.min_replicas,
        max_replicas=default if policy.max_replicas is None else policy.max_replicas,
    )


def _nproc_per_node(kind: V1Kind, spec: V1Spec) -> str | None:
    of_policy = spec.elastic_policy.n_proc_per_node if spec.elastic_policy is not None else None
    needs_default = kind.kind == PYTORCH_JOB and spec.nproc_per_node is None and of_policy is None
    return AUTO if needs_default else spec.nproc_per_node
