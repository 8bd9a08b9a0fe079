"""What users do to their jobs, and to what is not theirs to touch: faults like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from chaos.jobs.crowd import CHILDREN, Crowd, Object
from localcluster.errors import LocalClusterError

PODS = "/api/v1/namespaces/{}/pods"
T = TypeVar("T")

_JOBS, _SERVICES, _, _, _GANGS = CHILDREN


class Users:
    """`actions` by kind, each to be called with a chance. They raise RefusedError, LocalClusterError and HTTPError."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
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
        """And resumed after some seconds."""
        name = _one_of(self._crowd.live(), chance).name
        self._crowd.suspend(name, value=True)
        self._crowd.later(0.5 + 5.0 * _again(chance), lambda: self._crowd.suspend(name, value=False))

    def _scale(self, chance: float) -> None:
        plan = _one_of([plan for plan in self._crowd.live() if plan.workers[1]], chance)
        least, most = plan.workers
        self._crowd.scale(plan.name, least + int(_again(chance) * (most + 1 - least)))

    def _delete(self, chance: float, propagation: str) -> None:
        """Ended ones too."""
        self._crowd.delete(_one_of(self._crowd.there(), chance).name, propagation)

    def _delete_child(self, chance: float, path: str, **options: object) -> None:
        """Of a job that has any."""
        plan = _one_of([plan for plan in self._crowd.live() if plan.is_gang or path != _GANGS], chance)
        child = _one_of(self._crowd.children(plan, path), _again(chance))
        self._crowd.api.delete(f"{path.format(self._crowd.namespace)}/{_name(child)}", **options)


def _one_of(things: Sequence[T], chance: float) -> T:
    """Raises LocalClusterError if there are none."""
    if not things:
        raise LocalClusterError("the fault finds no target")
    return things[int(chance * len(things))]


def _again(chance: float) -> float:
    """Another chance from the same one: its later digits."""
    return chance * 1000 % 1


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
