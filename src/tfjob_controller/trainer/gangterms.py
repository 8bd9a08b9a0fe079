"""Which jobs are gangs, and on what terms: the controller's flags and the job's own wishes, compiled into the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tfjob_controller.api.defaults import gang_enabled, min_workers_of
from tfjob_controller.api.gang import ON_TIMEOUT_WAIT, Member
from tfjob_controller.api.podrequests import member_of
from tfjob_controller.api.tfjob import GangScheduling, TFJobSpec
from tfjob_controller.trainer.names import gang_name

OFF, ON_REQUEST, ALWAYS = "off", "on-request", "always"
# What is done when the gang scheduler wishes that a job had more workers, or fewer.
RECOMMEND, ON = "recommend", "on"


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """The controller's flags. `pins`: each pod is pinned to its node by affinity, whatever scheduler it names.

    `autoscaling`: off, recommend (it is only said) or on (it is done).
    """

    which: str = OFF
    scheduler_name: str = ""
    pins: bool = False
    autoscaling: str = OFF

    def covers(self, spec: TFJobSpec) -> bool:
        enabled = gang_enabled(spec)
        return self.which == ALWAYS if enabled is None else enabled and self.which != OFF

    def refuses(self, spec: TFJobSpec) -> bool:
        """The job asks for what is turned off."""
        return self.which == OFF and gang_enabled(spec) is True


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


def terms_of(
    job_name: str, spec: TFJobSpec, policy: GangPolicy, templates: Mapping[str, tuple[int, Mapping[str, Any]]]
) -> GangTerms | None:
    """None for a job that is no gang. `templates`: by role, how many replicas and from which PodTemplateSpec."""
    if not policy.covers(spec):
        return None
    wishes = spec.gang or GangScheduling()
    return GangTerms(
        name=gang_name(job_name, spec.runtime_id),
        members=tuple(
            member_of(role, count, _pod_spec(template, spec)) for role, (count, template) in templates.items()
        ),
        min_workers=min_workers_of(spec),
        max_workers=_most_wished(spec, policy),
        timeout_seconds=wishes.timeout_seconds,
        on_timeout=wishes.on_timeout or ON_TIMEOUT_WAIT,
        priority=wishes.priority or 0,
        scheduler_name="" if policy.pins else policy.scheduler_name,
        pins=policy.pins,
    )


def _most_wished(spec: TFJobSpec, policy: GangPolicy) -> int | None:
    """0: nobody resizes it, so it is written down for nobody."""
    if spec.autoscaling is None:
        return None
    return 0 if policy.autoscaling == OFF else spec.autoscaling.max_workers


def gang_problem(spec: TFJobSpec, policy: GangPolicy) -> str | None:
    """Why what the templates ask of a node cannot be told, if so.

    Of a job that is no gang the API server says so, when the child Jobs are created.
    """
    if not policy.covers(spec):
        return None
    for index, entry in enumerate(spec.replica_specs):
        try:
            member = member_of("any", 1, (entry.template or {}).get("spec") or {})
            msgspec.convert(msgspec.to_builtins(member), Member)
        except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            return f"spec.replicaSpecs[{index}].template: {error}"
    return None


def _pod_spec(template: Mapping[str, Any], spec: TFJobSpec) -> Mapping[str, Any]:
    pod_spec: Mapping[str, Any] = template.get("spec") or {}
    if spec.priority_class_name and not pod_spec.get("priorityClassName"):
        return {**pod_spec, "priorityClassName": spec.priority_class_name}
    return pod_spec
