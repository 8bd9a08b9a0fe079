"""Compiles a TrainJob of Kubeflow Trainer, with the runtime that it references, into a plan.

Upstream's controller turns both into a JobSet, whose controller creates Jobs. Here each replicated job of the runtime's
template becomes a role. The training nodes are one Indexed Job; every other role has one pod, in an Indexed Job as
well, so that its host name is the one that JobSet gives it. Names, labels and host names are upstream's, since clients
find pods by them. Steps follow from `dependsOn`: a job is in the step after those that it needs to be complete.

The frameworks are those of this project (`jobs.frameworks`), of whose variables a pod gets the ones that upstream
sets. Only what upstream mounts into MPI's pods is here.

A failure of a node restarts all nodes, as often as upstream tolerates failures: a Job runs again after each of its
`backoffLimit` failures, and all Jobs run again `maxRestarts` times. Unlike for other jobs, the exit code does not
matter, except that a program which exceeds its memory or cannot be started ends the job.

An external queue such as Kueue changes `runtimePatches` while a job is suspended. So its Jobs are deleted then, and
created from the new plan when it is resumed.

Source: kubeflow/trainer pkg/runtime/core/trainingruntime.go and pkg/runtime/framework/plugins, kubernetes-sigs/jobset
pkg/controllers/jobset_controller.go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tfjob_controller.api.common.policies import CLEAN_RUNNING
from tfjob_controller.api.kubeflowtrainer.patches import set_metadata
from tfjob_controller.api.kubeflowtrainer.runtime import COMPLETE, LAUNCHER, NODE
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS
from tfjob_controller.api.kubeflowtrainer.validation import JOBS_FIELD
from tfjob_controller.jobs.frameworks.base import Setting
from tfjob_controller.jobs.naming import INDEX_REFERENCE, TRAIN_JOB_NAME, gang_name, job_labels
from tfjob_controller.jobs.plan.gangterms import GangTerms, scheduled_by, terms_of
from tfjob_controller.jobs.plan.model import (
    JobIdentity,
    NewClaim,
    Plan,
    PodMounts,
    PodScheduling,
    Replica,
    Role,
    RunPolicy,
    UnplannableError,
)
from tfjob_controller.kinds.kubeflowtrainer.mpi import mounts_of
from tfjob_controller.kinds.kubeflowtrainer.podtemplate import JOBSET_NAME
from tfjob_controller.kinds.kubeflowtrainer.problems import added_name_problems, problems
from tfjob_controller.kinds.kubeflowtrainer.recipe import KubeflowRecipe
from tfjob_controller.kinds.kubeflowtrainer.roles import is_target, replicas_of, role_of, variables_of
from tfjob_controller.kinds.kubeflowtrainer.torchtune import RENDEZVOUS_VARIABLES
from tfjob_controller.kinds.recipe import chief_first, gang_members, in_steps, owner_of, planned, step_of

# batch/v1's default.
_BACKOFF_LIMIT = 6


def build_kubeflow_plan(recipe: KubeflowRecipe) -> Plan:
    """Returns the plan, which may be cached as long as job and runtime are unchanged. Raises UnplannableError."""
    problem = next(problems(recipe), None)
    if problem is not None:
        raise UnplannableError(problem)
    setting = recipe.setting
    problem = recipe.framework.problem(setting)
    if problem is not None:
        raise UnplannableError(problem)
    mounts = mounts_of(recipe, setting)
    roles = tuple(role_of(recipe, setting, job, mounts) for job in recipe.jobs)
    problem = next(added_name_problems(recipe, roles), None)
    if problem is not None:
        raise UnplannableError(problem)
    replicas = chief_first(replica for role in roles for replica in replicas_of(recipe, role))
    whole = _whole(recipe, setting, roles, replicas, mounts)
    steps = tuple(_steps(recipe, whole))
    if len(steps) == 1:
        return steps[0]
    return in_steps(whole, steps, _targets(recipe, replicas) or steps[-1].replicas.needed)


def _claims(recipe: KubeflowRecipe) -> tuple[NewClaim, ...]:
    """Returns the volumes that are created for the job, by the names that JobSet gives them."""
    return tuple(
        NewClaim(
            f"{template.name}-{recipe.name}",
            template.metadata.get("labels") or {},
            template.metadata.get("annotations") or {},
            template.spec,
        )
        for policy in recipe.runtime.template.spec.volume_claim_policies
        for template in policy.templates
    )


def _targets(recipe: KubeflowRecipe, replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Returns the replicas whose success completes the job, if the runtime names them."""
    return tuple(replica for replica in replicas if is_target(recipe, replica.role.name))


def _whole(
    recipe: KubeflowRecipe, setting: Setting, roles: tuple[Role, ...], replicas: tuple[Replica, ...], mounts: PodMounts
) -> Plan:
    """Returns the plan with the replicas of all steps."""
    job, meta = recipe.job, recipe.job.metadata
    trained_roles = {role.name for role in roles if role.restarts_together}
    launched = recipe.framework.has_launcher

    def environment(replica: Replica) -> Mapping[str, str]:
        if replica.role.name not in trained_roles:
            return {}
        role = LAUNCHER if launched and replica.role.name == LAUNCHER else NODE
        variables = variables_of(
            recipe, setting, role, INDEX_REFERENCE if replica.role.job_name else str(replica.index)
        )
        left_out = RENDEZVOUS_VARIABLES if recipe.is_tuning else frozenset()
        return {name: value for name, value in variables.items() if name not in left_out}

    return Plan(
        identity=JobIdentity(
            namespace=meta.namespace,
            job_name=recipe.name,
            runtime_id=recipe.runtime_id,
            owner=owner_of(KUBEFLOW_TRAINJOBS, meta),
            labels=job_labels(recipe.name, recipe.runtime_id, TRAIN_JOB_NAME),
            added_labels={JOBSET_NAME: recipe.name},
        ),
        policy=RunPolicy(
            CLEAN_RUNNING,
            job.spec.suspend,
            job.spec.active_deadline_seconds or None,
            _restarts(recipe),
        ),
        replicas=planned(roles, replicas, ()),
        environment=environment,
        scheduling=_scheduling(recipe, roles),
        mounts=dataclasses.replace(
            mounts,
            claims=_claims(recipe),
            data_containers=frozenset(role.container for role in roles if not role.restarts_together) - {NODE},
        ),
    )


def _restarts(recipe: KubeflowRecipe) -> int:
    policy = recipe.runtime.template.spec.failure_policy
    of_job = recipe.nodes.template.spec.get("backoffLimit")
    tolerated = (_BACKOFF_LIMIT if of_job is None else of_job) + 1
    return int(tolerated * ((policy.max_restarts if policy is not None else 0) + 1) - 1)


def _scheduling(recipe: KubeflowRecipe, roles: Sequence[Role]) -> PodScheduling:
    policy = recipe.runtime.pod_group_policy
    enabled = True if policy.coscheduling is not None or policy.volcano is not None else None
    is_refused = recipe.gangs.refuses(enabled)
    if not recipe.gangs.covers(enabled):
        return PodScheduling(is_gang_refused=is_refused)
    queue_label = recipe.gangs.backend.queue_label if recipe.gangs.backend is not None else ""
    annotations = {
        **(recipe.runtime.template.metadata.get("annotations") or {}),
        **set_metadata(recipe.job.spec, "annotations"),
    }
    # Upstream reads Volcano's queue from an annotation of the runtime's template.
    queue = {queue_label: annotations[queue_label]} if queue_label in annotations else {}
    labels = recipe.job.metadata.labels | queue
    return PodScheduling(**scheduled_by(recipe.gangs, _gang(recipe, roles), labels), is_gang_refused=is_refused)


def _gang(recipe: KubeflowRecipe, roles: Sequence[Role]) -> GangTerms:
    """Returns the gang of the nodes and the launcher. Other jobs run before or after it."""
    levels = _levels(recipe)
    for role in roles:
        if not role.restarts_together and levels[role.name] == levels[recipe.nodes.name]:
            raise UnplannableError(
                f"{JOBS_FIELD}: with gang scheduling, {role.name} must not run beside the nodes: add a dependsOn"
            )
    members = gang_members(role for role in roles if role.restarts_together)
    return terms_of(gang_name(recipe.name, recipe.runtime_id), recipe.gangs, None, members)


def _levels(recipe: KubeflowRecipe) -> dict[str, int]:
    """Returns the number of the step of each replicated job."""
    levels: dict[str, int] = {}
    for job in recipe.jobs:
        needed = (levels[other.name] + (other.status == COMPLETE) for other in job.depends_on)
        levels[job.name] = max(needed, default=0)
    if recipe.framework.has_launcher:
        together = max(levels[NODE], levels[LAUNCHER])
        levels |= {NODE: together, LAUNCHER: together}
    return levels


def _steps(recipe: KubeflowRecipe, whole: Plan) -> Iterator[Plan]:
    levels = _levels(recipe)
    for level in sorted(set(levels.values())):
        replicas = tuple(replica for replica in whole.replicas.all if levels[replica.role.name] == level)
        trains = any(replica.role.restarts_together for replica in replicas)
        needed = _targets(recipe, replicas) or tuple(replica for replica in replicas if not replica.role.serves)
        yield step_of(whole, replicas, needed, trains=trains)
