"""Why a TrainJob cannot be planned with its framework and its runtime: faults that the API server cannot find."""

from __future__ import annotations

from collections.abc import Iterable

from tfjob_controller.api.trainjob.validation import validate_overrides
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Setting
from tfjob_controller.jobs.plan.model import Role
from tfjob_controller.jobs.podtemplate.merge import name_problems, spec_of, with_container
from tfjob_controller.kinds.trainjob.frameworkcalls import answer
from tfjob_controller.kinds.trainjob.podtemplate import JobWorkspace, trainer_template
from tfjob_controller.kinds.trainjob.recipe import Recipe


def reserved_problem(recipe: Recipe, setting: Setting) -> str | None:
    """Returns why a variable of the job is refused.

    The CRD knows only those that built-in frameworks reserve, without the additional ones of elastic jobs.
    """
    reserved = recipe.framework.reserved
    if setting.elastic is not None:
        variables = answer(recipe.framework, "environment", lambda: recipe.framework.environment(setting, NODE, ""))
        reserved |= variables.keys()
    for index, variable in enumerate(recipe.job.spec.trainer.env):
        if variable.get("name") in reserved:
            return f"spec.trainer.env[{index}].name: {variable['name']} is set by the controller: leave it out"
    return None


def override_problem(recipe: Recipe, workspace: JobWorkspace) -> str | None:
    """Returns why an override is refused: it is for a step or a container that does not exist.

    A job that has started is not refused, as its runtime may have changed since.
    """
    if recipe.job.status.jobs_status:
        return None
    training = (NODE, LAUNCHER) if recipe.framework.has_launcher else (NODE,)
    bases = {role: recipe.base_of(role) for role in training}
    for carrier in workspace.storage_containers:
        # Without a shared volume the nodes run its container, and nothing else of its template.
        bases[carrier.role] = recipe.base_of(carrier.role) if workspace.claim else {}
    return validate_overrides(recipe.job.spec, {role: with_container(base, role) for role, base in bases.items()})


def name_problem(recipe: Recipe, roles: Iterable[Role]) -> str | None:
    """Returns which name in a template of the runtime, or in an override, is taken; None also if the job has started.

    Kubernetes refuses the names of added containers only in the pods that have them.
    """
    spec = recipe.job.spec
    for role in roles if not recipe.job.status.jobs_status else ():
        base = recipe.base_of(role.name)
        given = trainer_template(spec, base, role.name, runs_command=False, trains=False)
        overrides = (
            (f"spec.podSpecOverrides[{index}]", {"volumes": override.volumes})
            for index, override in enumerate(spec.pod_spec_overrides)
            if any(target.name == role.name for target in override.target_jobs)
        )
        fields = ((f"the runtime's spec.templates.{role.name}.spec", spec_of(base)), *overrides)
        if (problem := next(name_problems(given, role.template, *fields), None)) is not None:
            return problem
    return None
