"""Validates TFJobs.

The CRD has the same rules in CEL (hack/generate/rules.py, with the messages below); the functions here are needed for
clusters with an older CRD. The tests check both against one table of manifests. All functions are pure. They return
None, or a sentence that begins with the field and names the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.common.podtemplates import containers_of, has_container_named, template_problem
from tfjob_controller.api.common.policies import RESTART_POLICIES
from tfjob_controller.api.common.schema import limit_violations
from tfjob_controller.api.common.storage import Checkpoint
from tfjob_controller.api.common.storagevalidation import checkpoint_problems
from tfjob_controller.api.tfjob.defaults import (
    chief_of,
    gang_enabled,
    min_workers_of,
    own_replicas_of,
    port_of,
    replica_spec,
    replicas_of,
    resize_of,
    total_steps_of,
)
from tfjob_controller.api.tfjob.progress import parse_pattern
from tfjob_controller.api.tfjob.types import (
    CONTAINER_NAME,
    MASTER,
    PS,
    RUNTIME_ID_PATTERN,
    WORKER,
    Autoscaling,
    GangScheduling,
    ReplicaSpec,
    TFJob,
    TFJobSpec,
)

# Messages about the whole spec. The first one is tf-operator's.
MISSING_CHIEF = "Missing ReplicaSpec for chief: {}"
CHIEF_OUTSIDE = "the chief's replicaIndex is not below the replicas of {}: raise them, or name another chief"
CHIEF_NEVER_ENDS = (
    "terminationPolicy.chief is PS, but the default parameter server never ends: "
    "give PS a template whose container named tensorflow has an image, or name another chief"
)
WORKER_REPLICAS_WITHOUT_WORKER = "workerReplicas needs an entry for WORKER in replicaSpecs"
MIN_WORKERS_ABOVE_WORKERS = "gang.minWorkers must not be more than the workers: lower it, or raise them"
AUTOSCALING_WITHOUT_WORKER = "autoscaling needs an entry for WORKER in replicaSpecs"
MIN_ABOVE_MAX = "autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers"
WORKERS_OUTSIDE = (
    "the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: "
    "choose such a number, or change minWorkers or maxWorkers"
)
MIN_WORKERS_TWICE = "gang.minWorkers and autoscaling.minWorkers have different values: leave one of them out"
CHIEF_MAY_LEAVE = (
    "the chief is a worker that autoscaling can remove: name worker 0, the master or a PS, or leave autoscaling out"
)
# Message about checkpoint.
PER_NODE = "perNode is for TrainJobs only, because the chief saves the checkpoints of a TFJob: leave it out"
# Message about autoscaling.progress.
BAD_PATTERN = (
    "pattern must be a regular expression with exactly one group, such as step ([0-9]+): no other parentheses, no |, "
    "no back-references, and at most three repetitions"
)

# Messages about one entry of replicaSpecs.
MASTER_REPLICAS = "MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more"
TEMPLATE_MISSING = "template is required for MASTER and WORKER: only a PS can omit it"
CONTAINER_MISSING = (
    "template must have a container named tensorflow, whose exit code determines the state of the replica"
)

# Messages about a change after RuntimeId is set.
RUNTIME_ID_FIXED = "RuntimeId names all children of the job and cannot change: leave it as it is"
TYPES_FIXED = "the replica types of a started job cannot change: delete the job and create it again"
TEMPLATE_FIXED = "the templates of a started job cannot change: delete the job and create it again"
PORT_FIXED = "the ports of a started job cannot change: delete the job and create it again"
REPLICAS_FIXED = "only the replicas of WORKER can change in a started job"
GANG_FIXED = "gang.enabled of a started job cannot change: delete the job and create it again"
RESIZE_FIXED = (
    "autoscaling cannot be added to or removed from a started job, and its resize cannot change: "
    "delete the job and create it again"
)
TOTAL_STEPS_FIXED = "autoscaling.totalSteps of a started job cannot change: delete the job and create it again"
TERMINATION_POLICY_FIXED = "the terminationPolicy of a started job cannot change: delete the job and create it again"
CHECKPOINT_FIXED = "the checkpoint of a started job cannot change: delete the job and create it again"


def validate(job: TFJob) -> str | None:
    """The first problem of a job; None for a valid job."""
    return job.invalid or next(_problems(job.spec), None)


def validate_change(old: TFJobSpec, new: TFJobSpec) -> str | None:
    """The first field that may not change; None for an allowed change.

    Before RuntimeId is set, all but managedBy may change.
    """
    if old.managed_by != new.managed_by:
        return f"spec: {MANAGED_BY_FIXED}"
    return next(_forbidden_changes(old, new), None) if old.runtime_id else None


def _problems(spec: TFJobSpec) -> Iterator[str]:
    yield from _listing_problems(spec)
    if spec.runtime_id and not re.fullmatch(RUNTIME_ID_PATTERN, spec.runtime_id):
        yield "spec.RuntimeId: must be four of 0-9 and a-z: leave it to the controller"
    yield from limit_violations(spec, "spec")
    for index, entry in enumerate(spec.replica_specs):
        yield from (f"spec.replicaSpecs[{index}]{problem}" for problem in _entry_problems(entry))
    if spec.worker_replicas is not None and replica_spec(spec, WORKER) is None:
        yield f"spec: {WORKER_REPLICAS_WITHOUT_WORKER}"
    yield from _chief_problems(spec)
    if spec.gang is not None:
        yield from _gang_problems(spec, spec.gang)
    if spec.autoscaling is not None:
        yield from _autoscaling_problems(spec, spec.autoscaling)
    if spec.checkpoint is not None:
        yield from _checkpoint_problems(spec.checkpoint)


def _listing_problems(spec: TFJobSpec) -> Iterator[str]:
    """Problems of the list of types, which the later checks rely on."""
    if not spec.replica_specs:
        yield "spec.replicaSpecs: at least one entry is required"
    seen: set[str] = set()
    for index, entry in enumerate(spec.replica_specs):
        if entry.tf_replica_type in seen:
            at = f"spec.replicaSpecs[{index}].tfReplicaType"
            yield f"{at}: {entry.tf_replica_type} is listed twice: give one entry more replicas instead"
        seen.add(entry.tf_replica_type)


def _entry_problems(entry: ReplicaSpec) -> Iterator[str]:
    """Problems of one entry, without the path of the entry."""
    if entry.tf_replica_type == MASTER and entry.replicas not in (None, 1):
        yield f".replicas: {MASTER_REPLICAS}"
    if entry.template is not None:
        yield from _template_problems(entry.template, needs_container=entry.tf_replica_type != PS)
    elif entry.tf_replica_type != PS:
        yield f".template: {TEMPLATE_MISSING}"


def _template_problems(template: dict[str, Any], *, needs_container: bool) -> Iterator[str]:
    """Problems in what this controller reads; the API server validates the rest when it creates the child Jobs."""
    misshapen = template_problem(template)
    if misshapen is not None:
        yield f".template{misshapen}"
        return
    restart_policy = (template.get("spec") or {}).get("restartPolicy")
    if restart_policy is not None and restart_policy not in RESTART_POLICIES:
        choices = ", ".join(RESTART_POLICIES)
        yield f".template.spec.restartPolicy: must be one of {choices}, is {restart_policy}"
    if needs_container and not has_container_named(template, CONTAINER_NAME):
        yield f".template: {CONTAINER_MISSING}"


def has_training_image(template: dict[str, Any] | None) -> bool:
    """Whether a template has a training container with an image. A PS without one runs the default server."""
    return any(
        container.get("name") == CONTAINER_NAME and container.get("image") for container in containers_of(template)
    )


def _chief_problems(spec: TFJobSpec) -> Iterator[str]:
    chief = chief_of(spec)
    entry = replica_spec(spec, chief.replica_name)
    if entry is None:
        yield MISSING_CHIEF.format(chief.replica_name)
        return
    replicas = replicas_of(spec, chief.replica_name)
    if chief.replica_index >= replicas:
        yield f"spec: {CHIEF_OUTSIDE.format(chief.replica_name)}"
    if chief.replica_name == PS and not has_training_image(entry.template):
        yield f"spec: {CHIEF_NEVER_ENDS}"


def _gang_problems(spec: TFJobSpec, gang: GangScheduling) -> Iterator[str]:
    if gang.min_workers is not None and gang.min_workers > replicas_of(spec, WORKER):
        yield f"spec: {MIN_WORKERS_ABOVE_WORKERS}"


def _autoscaling_problems(spec: TFJobSpec, autoscaling: Autoscaling) -> Iterator[str]:
    if autoscaling.progress is not None and parse_pattern(autoscaling.progress.pattern) is None:
        yield f"spec.autoscaling.progress: {BAD_PATTERN}"
    if replica_spec(spec, WORKER) is None:
        yield f"spec: {AUTOSCALING_WITHOUT_WORKER}"
    yield from _bounds_problems(spec, autoscaling)


def _bounds_problems(spec: TFJobSpec, autoscaling: Autoscaling) -> Iterator[str]:
    least, most = min_workers_of(spec) or 1, autoscaling.max_workers
    if least > most:
        yield f"spec: {MIN_ABOVE_MAX}"
    elif not least <= replicas_of(spec, WORKER) <= most:
        yield f"spec: {WORKERS_OUTSIDE}"
    of_gang = spec.gang.min_workers if spec.gang is not None else None
    if None not in (of_gang, autoscaling.min_workers) and of_gang != autoscaling.min_workers:
        yield f"spec: {MIN_WORKERS_TWICE}"
    chief = chief_of(spec)
    if chief.replica_name == WORKER and chief.replica_index > 0:
        yield f"spec: {CHIEF_MAY_LEAVE}"


def _checkpoint_problems(checkpoint: Checkpoint) -> Iterator[str]:
    yield from checkpoint_problems(checkpoint, "spec.checkpoint")
    if checkpoint.per_node:
        yield f"spec.checkpoint.perNode: {PER_NODE}"


# The parts of one entry that cannot change, with their messages.
_FIXED: tuple[tuple[Callable[[ReplicaSpec], object], str], ...] = (
    (lambda entry: entry.template, TEMPLATE_FIXED),
    (port_of, PORT_FIXED),
    (lambda entry: None if entry.tf_replica_type == WORKER else own_replicas_of(entry), REPLICAS_FIXED),
)


def _forbidden_changes(old: TFJobSpec, new: TFJobSpec) -> Iterator[str]:
    if new.runtime_id != old.runtime_id:
        yield f"spec: {RUNTIME_ID_FIXED}"
    before = {entry.tf_replica_type: entry for entry in old.replica_specs}
    after = {entry.tf_replica_type: entry for entry in new.replica_specs}
    if before.keys() != after.keys():
        yield f"spec: {TYPES_FIXED}"
        return
    for replica_type, entry in before.items():
        yield from (f"spec: {why}" for part, why in _FIXED if part(entry) != part(after[replica_type]))
    if chief_of(old) != chief_of(new):
        yield f"spec: {TERMINATION_POLICY_FIXED}"
    if gang_enabled(old) != gang_enabled(new):
        yield f"spec: {GANG_FIXED}"
    if resize_of(old) != resize_of(new):
        yield f"spec: {RESIZE_FIXED}"
    if total_steps_of(old) != total_steps_of(new):
        yield f"spec: {TOTAL_STEPS_FIXED}"
    if old.checkpoint != new.checkpoint:
        yield f"spec: {CHECKPOINT_FIXED}"
