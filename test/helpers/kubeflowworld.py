"""Plans of Kubeflow Trainer's TrainJobs, and a cluster in memory with one of them.

Each status is recorded, encoded and decoded as the controller does it, so that tests find fields that get lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from helpers.clusterinmemory import START, World
from helpers.kubeflowmanifests import Manifest, kubeflow_runtime, kubeflow_trainjob
from helpers.trainworld import CONFIG
from tfjob_controller.api.common.record import RecordAnnotations
from tfjob_controller.api.kubeflowtrainer.runtime import KUBEFLOW_TRAINING_RUNTIMES, KubeflowRuntime
from tfjob_controller.api.kubeflowtrainer.types import (
    KUBEFLOW_TRAINJOBS,
    KubeflowTrainJob,
    KubeflowTrainJobStatus,
)
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus
from tfjob_controller.kinds.kubeflowtrainer.kind import kubeflow_work
from tfjob_controller.kinds.kubeflowtrainer.plan import build_kubeflow_plan
from tfjob_controller.kinds.kubeflowtrainer.recipe import KubeflowRecipe
from tfjob_controller.kinds.kubeflowtrainer.status import record_of, recorded_status, upstream_status
from tfjob_controller.util.timestamps import format_time


def decoded_kubeflow(manifest: Manifest, **metadata: Any) -> KubeflowTrainJob:
    """Returns the job of a manifest as the controller reads it."""
    meta = {"namespace": "ns", "uid": "uid-job", "generation": 1, "creationTimestamp": format_time(START), **metadata}
    return KUBEFLOW_TRAINJOBS.decode(json.dumps({**manifest, "metadata": manifest["metadata"] | meta}).encode())


def decoded_runtime(manifest: Manifest) -> KubeflowRuntime:
    return KUBEFLOW_TRAINING_RUNTIMES.decode(json.dumps(manifest).encode())


def kubeflow_recipe(
    *jobs: Manifest, runtime: Manifest | None = None, gangs: GangPolicy = NO_GANGS, name: str = "example", **spec: Any
) -> KubeflowRecipe:
    """`jobs` are the replicated jobs of the runtime, unless `runtime` is given."""
    manifest = runtime or kubeflow_runtime(*jobs)
    job = decoded_kubeflow(kubeflow_trainjob(name, manifest["metadata"]["name"], **spec))
    return KubeflowRecipe(job, decoded_runtime(manifest).spec, CONFIG, gangs, restart_rules=True)


def kubeflow_plan(*jobs: Manifest, **given: Any) -> Plan:
    return build_kubeflow_plan(kubeflow_recipe(*jobs, **given))


def job_of(plan: Plan, replica_id: str = "node-0") -> Mapping[str, Any]:
    """Returns the Job that runs a replica."""
    return build_job(plan, next(each for each in plan.replicas.all if each.id == replica_id))


def pod_of(plan: Plan, replica_id: str = "node-0") -> Mapping[str, Any]:
    """Returns the pod template of that Job."""
    template: Mapping[str, Any] = job_of(plan, replica_id)["spec"]["template"]
    return template


def container_in(plan: Plan, replica_id: str = "node-0", name: str = "node") -> Mapping[str, Any]:
    return next(each for each in pod_of(plan, replica_id)["spec"]["containers"] if each["name"] == name)


def env_in(plan: Plan, replica_id: str = "node-0", name: str = "node") -> dict[str, Any]:
    """Returns the variables of a container that have a value."""
    env = container_in(plan, replica_id, name).get("env", ())
    return {each["name"]: each["value"] for each in env if "value" in each}


@dataclass(frozen=True)
class KubeflowTrainJobs:
    """See `clusterinmemory.Kind`."""

    runtime: Manifest

    def plan(self, job: KubeflowTrainJob, gangs: GangPolicy, *, restart_rules: bool) -> Plan:
        spec = decoded_runtime(self.runtime).spec
        return build_kubeflow_plan(KubeflowRecipe(job, spec, CONFIG, gangs, restart_rules))

    def work(self, job: KubeflowTrainJob) -> TrainingJob:
        return kubeflow_work(job)

    def written(self, job: KubeflowTrainJob, status: TrainingStatus) -> KubeflowTrainJob:
        annotations = RecordAnnotations(record_of(job, status))
        recorded = replace(job, metadata=replace(job.metadata, annotations=annotations))
        assert recorded_status(recorded) == status
        wire = msgspec.json.encode(upstream_status(recorded, status))
        return replace(recorded, status=msgspec.json.decode(wire, type=KubeflowTrainJobStatus))


def kubeflow_world(
    *jobs: Manifest, runtime: Manifest | None = None, gangs: GangPolicy = NO_GANGS, **spec: Any
) -> World:
    """Returns a world with one new TrainJob; deleted objects stay until `reap`."""
    manifest = runtime or kubeflow_runtime(*jobs)
    job = decoded_kubeflow(kubeflow_trainjob("example", manifest["metadata"]["name"], **spec))
    return World(job, KubeflowTrainJobs(manifest), gangs=gangs, lingers=True)


def conditions_in(world: World) -> dict[str, tuple[str, str, str]]:
    """Returns status, reason and message of each condition that clients see."""
    return {each.type: (each.status, each.reason, each.message) for each in world.job.status.conditions}


def job_status_in(world: World, name: str = "node") -> dict[str, int]:
    """Returns the numbers of a replicated job that are not 0."""
    found = next(each for each in world.job.status.jobs_status if each.name == name)
    return {name: count for name, count in msgspec.to_builtins(found).items() if count and name != "name"}
