"""Why a job of Kubeflow Trainer cannot be planned with its runtime, in the order in which users should mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfjob_controller.api.kubeflowtrainer.patches import patch_problems
from tfjob_controller.api.kubeflowtrainer.validation import JOBS_FIELD, validate_with_runtime
from tfjob_controller.jobs.naming import MAX_LABEL
from tfjob_controller.jobs.plan.model import Role
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.jobs.podtemplate.merge import container_names, name_problems, spec_of
from tfjob_controller.kinds.kubeflowtrainer.recipe import RESERVED, KubeflowRecipe
from tfjob_controller.kinds.kubeflowtrainer.torchtune import tune_problems


def problems(recipe: KubeflowRecipe) -> Iterator[str]:
    """Yields the problems of a job with its runtime. Only the first is meaningful."""
    if (problem := validate_with_runtime(recipe.job, recipe.runtime)) is not None:
        yield problem
    yield from patch_problems(recipe.job.spec, recipe.jobs)
    yield from _trainer_problems(recipe)
    yield from _job_set_problems(recipe)
    yield from _name_problems(recipe)
    yield from _injection_problems(recipe)
    yield from _gang_problems(recipe)


def _trainer_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    trainer, reserved = recipe.job.spec.trainer, RESERVED.get(recipe.framework.name, frozenset())
    for index, variable in enumerate(trainer.env):
        if variable["name"] in reserved:
            at = f"spec.trainer.env[{index}].name"
            yield f"{at}: must not have reserved envs: {variable['name']} is set by the controller"
    if recipe.is_tuning:
        yield from tune_problems(recipe.job.spec.runtime_ref.name, recipe.setting, trainer.args or ())


def _job_set_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    spec, names = recipe.runtime.template.spec, {job.name for job in recipe.jobs}
    for target in spec.success_policy.target_replicated_jobs:
        if target not in names:
            yield f"spec.template.spec.successPolicy.targetReplicatedJobs: there is no replicated job {target}"


def _name_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    for job in recipe.jobs:
        host = f"{recipe.job_name(job.name)}-{recipe.num_nodes - 1 if job is recipe.nodes else 0}"
        if len(host) > MAX_LABEL:
            fits = len(recipe.name) - (len(host) - MAX_LABEL)
            yield (
                f"metadata.name: the host name {host} of a pod would be longer than {MAX_LABEL} characters: "
                f"choose a name of at most {fits}"
            )


def added_name_problems(recipe: KubeflowRecipe, roles: Sequence[Role]) -> Iterator[str]:
    """Yields a problem for each container of the runtime whose name one has that the controller adds.

    Not for a job that has started. A volume is no problem: the controller's takes the place of one of the same name, as
    upstream's does.
    """
    if recipe.started_nodes:
        return
    for index, (job, role) in enumerate(zip(recipe.jobs, roles, strict=True)):
        given = {name: spec_of(job.template.spec["template"]).get(name) for name in ("containers", "initContainers")}
        at = f"the runtime's {JOBS_FIELD}[{index}].template.spec.template.spec"
        yield from name_problems({"spec": given}, role.template, (at, given))


def _gang_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    """Yields why the scheduler that a runtime names is not the one that this controller leaves gangs to."""
    if recipe.gangs.refuses(True):
        # Gang scheduling is off, so the policy has no effect.
        return
    backend, policy = recipe.gangs.backend, recipe.runtime.pod_group_policy
    for name, is_given in (("coscheduling", policy.coscheduling), ("volcano", policy.volcano)):
        if is_given is not None and backend is not BACKENDS[name]:
            yield (
                f"spec.podGroupPolicy.{name}: this controller leaves gangs to another scheduler: "
                f"start it with --gang-backend={name}, or leave the policy out"
            )


def _injection_problems(recipe: KubeflowRecipe) -> Iterator[str]:
    torch = recipe.runtime.ml_policy.torch
    by_name = {job.name: container_names(spec_of(job.template.spec["template"])) for job in recipe.jobs}
    for target in torch.env_injection.targets if torch is not None else ():
        for name in target.container_names:
            if name not in by_name.get(target.job_name, ()):
                yield (
                    f'spec.mlPolicy.torch.envInjection: target podSet "{target.job_name}" container "{name}" '
                    "not found in runtime template"
                )
