"""A cluster in memory with one TrainJob, and steps of its nodes.

Each status is encoded and decoded, so that tests find fields that get lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from helpers.clusterinmemory import START, World
from helpers.gangs import member_ids
from helpers.trainmanifests import Manifest, trainjob
from tfjob_controller.api.common.core import ContainerState, ContainerStatus, Terminated
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.gang import ADMITTED, GangStatus, NodePlacement
from tfjob_controller.api.trainjob.runtime import RuntimeSpec
from tfjob_controller.api.trainjob.types import TrainJob, TrainJobStatus
from tfjob_controller.jobs.frameworks.base import Framework
from tfjob_controller.jobs.frameworks.environment import PLAIN as PLAIN
from tfjob_controller.jobs.frameworks.registry import by_command, frameworks
from tfjob_controller.jobs.naming import RESTART_ATTEMPT
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.podtemplate.checkpoint import RESTORER, SAVER
from tfjob_controller.jobs.trainingjob import TrainingJob, TrainingStatus
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.recipe import Recipe
from tfjob_controller.kinds.trainjob.status import from_wire, to_wire, trainjob_work
from tfjob_controller.util.timestamps import format_time

CONFIG = ControllerConfig(initializer_image="localhost/storage")
CLAIM = {"persistentVolumeClaim": {"claimName": "shared"}}
# With the runtime of CLAIM, this is a job of three steps.
IN_STEPS: Manifest = {
    "datasetConfig": {"storageUri": "s3://data/set"},
    "modelConfig": {"input": {"storageUri": "hf://gpt2"}, "output": {"storageUri": "s3://models/out"}},
}


def decoded_train(manifest: Manifest, **metadata: Any) -> TrainJob:
    """Returns the job of a manifest as the API server would return it."""
    meta = {"namespace": "ns", "uid": "uid-job", "generation": 1, "creationTimestamp": format_time(START), **metadata}
    return msgspec.convert({"metadata": manifest["metadata"] | meta, "spec": manifest["spec"]}, TrainJob)


def runtime_spec(**spec: Any) -> RuntimeSpec:
    return msgspec.convert(spec, RuntimeSpec)


def framework_of(job: TrainJob) -> Framework:
    return by_command(job.spec.trainer.command) or frameworks().get(job.spec.framework, PLAIN)


def recipe(
    *, runtime: RuntimeSpec | None = None, gangs: GangPolicy = NO_GANGS, plugin: Framework | None = None, **job: Any
) -> Recipe:
    made = decoded_train(trainjob(**job))
    return Recipe(made, plugin or framework_of(made), runtime, CONFIG, gangs, restart_rules=True)


def train_plan(**given: Any) -> Plan:
    return build_train_plan(recipe(**given))


@dataclass(frozen=True)
class TrainJobs:
    """See `clusterinmemory.Kind`."""

    runtime: RuntimeSpec | None = None

    def plan(self, job: TrainJob, gangs: GangPolicy, *, restart_rules: bool) -> Plan:
        named = self.runtime.framework if self.runtime is not None else ""
        framework = frameworks()[named] if named else framework_of(job)
        return build_train_plan(Recipe(job, framework, self.runtime, CONFIG, gangs, restart_rules))

    def work(self, job: TrainJob) -> TrainingJob:
        return trainjob_work(job)

    def written(self, job: TrainJob, status: TrainingStatus) -> TrainJob:
        wire = msgspec.json.decode(msgspec.json.encode(to_wire(status, job.status)), type=TrainJobStatus)
        assert from_wire(wire) == status
        return replace(job, status=wire)


def train_world(*, runtime: RuntimeSpec | None = None, gangs: GangPolicy = NO_GANGS, **job: Any) -> World:
    """Returns a world with one new TrainJob; deleted objects stay until `reap`."""
    return World(decoded_train(trainjob(**job)), TrainJobs(runtime), gangs=gangs, lingers=True)


def world_in_steps(**job: Any) -> World:
    return train_world(runtime=runtime_spec(workspace=CLAIM), **IN_STEPS, **job)


def running_train_world(**given: Any) -> World:
    """Returns a world in which all nodes of a job without steps run."""
    cluster = train_world(**given)
    cluster.settle()
    cluster.all_run()
    cluster.settle()
    return cluster


def ends(cluster: World, *replica_ids: str, exit_code: int = 0) -> None:
    """The programs end, and the Job controller counts their ends."""
    for each in replica_ids:
        cluster.exits(each, exit_code, "Error" if exit_code else "")
        cluster.job_ends(each, "Failed" if exit_code else "Complete")


def sidecar(cluster: World, replica_id: str, state: ContainerState, name: str = SAVER) -> None:
    """An init container, by default that which saves checkpoints, is in this state in the replica's newest pod."""
    old = cluster.pods_of(replica_id)[-1]
    changed = replace(old, status=replace(old.status, init_container_statuses=(ContainerStatus(name, state=state),)))
    cluster._replace_pod(cluster.replica(replica_id), old, changed)


def restored(cluster: World, replica_id: str, message: str, *, exit_code: int = 0) -> None:
    """The container that restores checkpoints, in the newest pod of the replica, ends now with this message."""
    ended = Terminated(exit_code, "Completed", message, finished_at=format_time(cluster.now))
    sidecar(cluster, replica_id, ContainerState(terminated=ended), RESTORER)


def admit(cluster: World) -> None:
    """The gang scheduler admits the gang with all members on one node."""
    assert cluster.gang is not None
    gang = cluster.gang
    placement = (NodePlacement("n1", member_ids(gang.spec)),)
    status = GangStatus(phase=ADMITTED, attempt=gang.status.attempt + 1, placement=placement)
    cluster.gang = replace(gang, status=status)


def jobs(cluster: World) -> list[str]:
    """Returns the ids of the replicas that have a child Job now, including Jobs that are being deleted."""
    return [each.id for each in cluster.plan.replicas.all if each.job_name in cluster.jobs]


def generations(cluster: World) -> set[str]:
    """Returns the restart attempts of the child Jobs that have one."""
    return set(_generations(each.metadata.labels for each in cluster.jobs.values()))


def _generations(labels: Iterable[Any]) -> Iterable[str]:
    return (each[RESTART_ATTEMPT] for each in labels if RESTART_ATTEMPT in each)


def true_conditions(cluster: World) -> set[str]:
    """Returns the true conditions of the job as its API shows them."""
    return {each.type for each in cluster.job.status.conditions if each.status == "True"}
