"""Faults that users cause: actions on jobs and on children that belong to the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from chaos.jobs.submitted import CHILDREN, Object, SubmittedJobs
from localcluster.errors import LocalClusterError

PODS = "/api/v1/namespaces/{}/pods"
T = TypeVar("T")

_JOBS, _SERVICES, _, _, _GANGS = CHILDREN


class Users:
    """Injects faults: `actions` maps each kind to a function of a random number in [0, 1).

    The functions raise RefusedError, LocalClusterError and HTTPError.
    """

    def __init__(self, jobs: SubmittedJobs) -> None:
        self._jobs = jobs
        self.actions: Mapping[str, Callable[[float], None]] = {
            "job suspended": self._suspend,
            "job scaled": self._scale,
            "job deleted in the background": lambda chance: self._delete(chance, "Background"),
            "job deleted in the foreground": lambda chance: self._delete(chance, "Foreground"),
            "job deleted, children orphaned": lambda chance: self._delete(chance, "Orphan"),
            "pod deleted": lambda chance: self._delete_child(chance, PODS),
            "pod deleted at once": lambda chance: self._delete_child(chance, PODS, gracePeriodSeconds=0),
            "child Job deleted": lambda chance: self._delete_child(chance, _JOBS, propagationPolicy="Background"),
            "Service deleted": lambda chance: self._delete_child(chance, _SERVICES),
            "Gang deleted": lambda chance: self._delete_child(chance, _GANGS),
        }

    def _suspend(self, chance: float) -> None:
        """Suspends a job and resumes it after some seconds."""
        name = one_of(self._jobs.active(), chance).name
        self._jobs.suspend(name, value=True)
        self._jobs.later(0.5 + 5.0 * second_chance(chance), lambda: self._jobs.suspend(name, value=False))

    def _scale(self, chance: float) -> None:
        plan = one_of([plan for plan in self._jobs.active() if plan.sizes[1]], chance)
        least, most = plan.sizes
        self._jobs.scale(plan.name, least + int(second_chance(chance) * (most + 1 - least)))

    def _delete(self, chance: float, propagation: str) -> None:
        """Deletes a job, possibly one that has ended."""
        self._jobs.delete(one_of(self._jobs.existing(), chance).name, propagation)

    def _delete_child(self, chance: float, path: str, **options: object) -> None:
        """Deletes a child of a job that has such children."""
        plan = one_of([plan for plan in self._jobs.active() if plan.is_gang or path != _GANGS], chance)
        child = one_of(self._jobs.children(plan, path), second_chance(chance))
        self._jobs.api.delete(f"{path.format(self._jobs.namespace)}/{_name(child)}", **options)


def one_of(things: Sequence[T], chance: float) -> T:
    """Returns an element. Raises LocalClusterError if there are none."""
    if not things:
        raise LocalClusterError("the fault has no target")
    return things[int(chance * len(things))]


def second_chance(chance: float) -> float:
    """Returns another random number, made of the later digits of the first one."""
    return chance * 1000 % 1


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
