"""Which jobs are gangs, and on what terms: the controller's flags and the job's own wishes, compiled into the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import msgspec

from tfjob_controller.api.gang import ON_TIMEOUT_WAIT, Member
from tfjob_controller.api.podrequests import member_of
from tfjob_controller.trainer.gangbackends.backend import Backend

OFF, ON_REQUEST, ALWAYS = "off", "on-request", "always"
# What is done when the gang scheduler wishes that a job had more workers, or fewer.
RECOMMEND, ON = "recommend", "on"


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """The controller's flags. `pins`: each pod is pinned to its node by affinity, whatever scheduler it names.

    `autoscaling`: off, recommend (it is only said) or on (it is done). `backend`: who schedules gangs; None is this
    project's own gang scheduler.
    """

    which: str = OFF
    scheduler_name: str = ""
    pins: bool = False
    autoscaling: str = OFF
    backend: Backend | None = None

    def covers(self, enabled: bool | None) -> bool:
        """Is a job that says this of itself a gang? None leaves it to the flag."""
        return self.which == ALWAYS if enabled is None else enabled and self.which != OFF

    def refuses(self, enabled: bool | None) -> bool:
        """The job asks for what is turned off."""
        return self.which == OFF and enabled is True


NO_GANGS = GangPolicy()


@dataclass(frozen=True, slots=True)
class GangTerms:
    """The gang of one job. `members` is what its roles ask of a node, as if no replica had succeeded yet.

    `scheduler_name` is empty where pods are pinned. Seconds are None where there is no limit.
    """

    name: str
    members: tuple[Member, ...]
    min_workers: int | None = None
    # The most workers that the gang scheduler may wish for; None leaves that to whoever edits the Gang.
    max_workers: int | None = None
    timeout_seconds: int | None = None
    on_timeout: str = ON_TIMEOUT_WAIT
    priority: int = 0
    scheduler_name: str = ""
    pins: bool = False


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """The gang of one job that another scheduler runs."""

    terms: GangTerms
    backend: Backend
    queue: str = ""


class Scheduled(TypedDict):
    """Who sees to a job's gang: fields of its plan, of which one at most is not None."""

    gang: GangTerms | None
    pod_group: GroupTerms | None


def scheduled_by(policy: GangPolicy, terms: GangTerms | None, labels: Mapping[str, str]) -> Scheduled:
    """`labels`: the job's own, which may name its queue."""
    if terms is None or policy.backend is None:
        return {"gang": terms, "pod_group": None}
    queue = labels.get(policy.backend.queue_label, "")
    return {"gang": None, "pod_group": GroupTerms(terms, policy.backend, queue)}


class Wishes(Protocol):
    """What a job says of itself as a gang."""

    @property
    def timeout_seconds(self) -> int | None: ...
    @property
    def on_timeout(self) -> str: ...
    @property
    def priority(self) -> int | None: ...


def terms_of(
    name: str,
    policy: GangPolicy,
    wishes: Wishes | None,
    members: tuple[Member, ...],
    *,
    min_workers: int | None = None,
    max_workers: int | None = None,
) -> GangTerms:
    """Of a job that the policy covers."""
    return GangTerms(
        name=name,
        members=members,
        min_workers=min_workers,
        max_workers=max_workers,
        timeout_seconds=wishes.timeout_seconds if wishes is not None else None,
        on_timeout=(wishes.on_timeout if wishes is not None else "") or ON_TIMEOUT_WAIT,
        priority=(wishes.priority if wishes is not None else None) or 0,
        scheduler_name="" if policy.pins else policy.scheduler_name,
        pins=policy.pins,
    )


def member_problem(pod_spec: Mapping[str, Any]) -> str | None:
    """Why what a pod asks of a node cannot be told, if so.

    Of a job that is no gang the API server says so, when the child Jobs are created.
    """
    try:
        msgspec.convert(msgspec.to_builtins(member_of("any", 1, pod_spec)), Member)
    except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        return str(error)
    return None
