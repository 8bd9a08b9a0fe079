"""Calls of a framework, which may be code of another package: whatever it raises fails the job, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Framework, Setting
from tfjob_controller.jobs.naming import INDEX_REFERENCE
from tfjob_controller.jobs.plan.model import Replica, UnplannableError
from tfjob_controller.jobs.podtemplate.merge import container_of
from tfjob_controller.util.text import shortened

_T = TypeVar("_T")


def environment_of(framework: Framework, setting: Setting, replica: Replica) -> Mapping[str, str]:
    """Returns the framework's variables of a replica. Like all functions here it raises UnplannableError."""
    if replica.role.name not in (NODE, LAUNCHER):
        return {}
    index = INDEX_REFERENCE if replica.role.job_name else str(replica.index)
    return answer(framework, "environment", lambda: dict(framework.environment(setting, replica.role.name, index)))


def secret_of(framework: Framework, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
    """Returns what generates the data of the job's Secret; None if the framework needs none."""
    make = answer(framework, "secret", lambda: framework.secret(setting))
    if make is None:
        return None
    return lambda: answer(framework, "secret", lambda: {name: bytes(value) for name, value in make().items()})


def equipped_pod_spec(
    framework: Framework, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
) -> dict[str, Any]:
    """Returns the pod spec with the framework's additions, in which the training container must remain."""

    def ask() -> dict[str, Any]:
        equipped = dict(framework.equip(setting, role, pod_spec, config_map=config_map, secret=secret))
        if container_of(equipped, role) is None:
            raise ValueError(f"it leaves out the container {role}")
        return equipped

    return answer(framework, "equip", ask)


def answer(framework: Framework, question: str, ask: Callable[[], _T]) -> _T:
    """Returns the result of `ask`, which calls the framework. `question` names the call in errors."""
    try:
        return ask()
    # Code of another package may raise anything.
    except Exception as error:
        message = f"spec.framework: {framework.name} cannot plan this job: {question}: {type(error).__name__}: {error}"
        raise UnplannableError(shortened(message)) from error
