"""What a framework answers of a job. One of another package may raise anything, or answer nonsense: that is the end of
its own jobs, in one sentence that names it, and no other's.

The contract of the questions is `frameworks.base`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tfjob_controller.trainer.frameworks.base import Framework, Setting
from tfjob_controller.trainer.plan import UnplannableError
from tfjob_controller.trainer.pods import shortened
from tfjob_controller.trainer.podtemplates import container_of

_T = TypeVar("_T")


def problem_of(framework: Framework, setting: Setting) -> str | None:
    return _answer(framework, "problem", lambda: framework.problem(setting))


def environment_of(framework: Framework, setting: Setting, role: str, index: int) -> dict[str, str]:
    return _answer(framework, "environment", lambda: dict(framework.environment(setting, role, index)))


def files_of(framework: Framework, setting: Setting) -> dict[str, str]:
    return _answer(framework, "files", lambda: dict(framework.files(setting)))


def secret_of(framework: Framework, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
    make = _answer(framework, "secret", lambda: framework.secret(setting))
    if make is None:
        return None
    return lambda: _answer(framework, "secret", lambda: {name: bytes(value) for name, value in make().items()})


def equipped_by(
    framework: Framework, setting: Setting, role: str, pod_spec: Mapping[str, Any], *, config_map: str, secret: str
) -> dict[str, Any]:
    """The pod spec with what the framework adds; the training container is still in it."""

    def ask() -> dict[str, Any]:
        equipped = dict(framework.equip(setting, role, pod_spec, config_map=config_map, secret=secret))
        if container_of(equipped, role) is None:
            raise ValueError(f"it leaves out the container {role}")
        return equipped

    return _answer(framework, "equip", ask)


def _answer(framework: Framework, question: str, ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    # A stranger's code.
    except Exception as error:
        words = f"spec.framework: {framework.name} cannot plan this job: {question}: {type(error).__name__}: {error}"
        raise UnplannableError(shortened(words)) from error
