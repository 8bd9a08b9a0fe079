"""The gang terms of a plan, compiled from the controller's flags and the job's spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import msgspec

from tfjob_controller.api.common.podrequests import member_of
from tfjob_controller.api.gang import ON_TIMEOUT_WAIT, Member, bounds_problem
from tfjob_controller.jobs.plan.podgroupbackends import Backend
from tfjob_controller.kube.meta import Resource

OFF, ON_REQUEST, ALWAYS = "off", "on-request", "always"
# How resize requests of the gang scheduler are handled; see also OFF.
RECOMMEND, ON = "recommend", "on"


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """The controller's flags. `pins`: node affinity assigns each pod to its node, whatever scheduler it names.

    `autoscaling` is off, recommend (resize requests are only reported) or on (they are applied). `backend` is the
    scheduler of gangs; None is this project's own gang scheduler.
    """

    which: str = OFF
    scheduler_name: str = ""
    pins: bool = False
    autoscaling: str = OFF
    backend: Backend | None = None

    @property
    def has_gangs(self) -> bool:
        """Reports whether jobs may have Gangs, the objects of this project's own gang scheduler."""
        return self.which != OFF and self.backend is None

    @property
    def pod_groups(self) -> Resource[Any] | None:
        """The kind of the object that represents a gang to another scheduler."""
        return self.backend.resource if self.backend is not None else None

    def covers(self, enabled: bool | None) -> bool:
        """Reports whether a job with this setting is a gang. None leaves it to the flag."""
        return self.which == ALWAYS if enabled is None else enabled and self.which != OFF

    def refuses(self, enabled: bool | None) -> bool:
        """Reports whether the job requests gang scheduling although it is off."""
        return self.which == OFF and enabled is True


NO_GANGS = GangPolicy()


@dataclass(frozen=True, slots=True)
class GangTerms:
    """The gang of one job. `members` are the requests of all roles, as if no replica had succeeded yet.

    `scheduler_name` is empty if pods are pinned. Seconds are None if there is no limit.
    """

    name: str
    members: tuple[Member, ...]
    # The role of which there may be more or fewer members; empty if there is none.
    scaled_role: str = ""
    min_workers: int | None = None
    # The most workers that the gang scheduler may request; None leaves the limit to editors of the Gang.
    max_workers: int | None = None
    timeout_seconds: int | None = None
    on_timeout: str = ON_TIMEOUT_WAIT
    priority: int = 0
    scheduler_name: str = ""
    pins: bool = False
    # Why a setting of the job does not apply as it is; empty if all do.
    warning: str = ""


@dataclass(frozen=True, slots=True)
class PodGroupTerms:
    """The gang of one job that another scheduler runs."""

    terms: GangTerms
    backend: Backend
    queue: str = ""


class GangFields(TypedDict):
    """The fields of `PodScheduling` for the scheduler of the gang, of which at most one is not None."""

    gang: GangTerms | None
    pod_group: PodGroupTerms | None


def scheduled_by(policy: GangPolicy, terms: GangTerms | None, labels: Mapping[str, str]) -> GangFields:
    """`labels` are the job's, which may name its queue."""
    if terms is None or policy.backend is None:
        return {"gang": terms, "pod_group": None}
    queue = labels.get(policy.backend.queue_label, "")
    return {"gang": None, "pod_group": PodGroupTerms(terms, policy.backend, queue)}


class GangSettings(Protocol):
    """The gang settings in a job's spec."""

    @property
    def timeout_seconds(self) -> int | None: ...
    @property
    def on_timeout(self) -> str: ...
    @property
    def priority(self) -> int | None: ...


def terms_of(
    name: str,
    policy: GangPolicy,
    settings: GangSettings | None,
    members: tuple[Member, ...],
    *,
    scaled_role: str = "",
    min_workers: int | None = None,
    max_workers: int | None = None,
) -> GangTerms:
    """The terms of a job that the policy covers. The numbers are those of `scaled_role`."""
    return GangTerms(
        name=name,
        members=members,
        scaled_role=scaled_role,
        min_workers=min_workers,
        max_workers=max_workers,
        timeout_seconds=settings.timeout_seconds if settings is not None else None,
        on_timeout=(settings.on_timeout if settings is not None else "") or ON_TIMEOUT_WAIT,
        priority=(settings.priority if settings is not None else None) or 0,
        scheduler_name="" if policy.pins else policy.scheduler_name,
        pins=policy.pins,
    )


def member_problem(pod_spec: Mapping[str, Any]) -> str | None:
    """Why a pod can be no member of a gang; None if it can.

    For a job that is no gang the API server reports invalid requests, when the child Jobs are created.
    """
    try:
        member = msgspec.convert(msgspec.to_builtins(member_of("any", 1, pod_spec)), Member)
    except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        return str(error)
    return bounds_problem(member) or None
