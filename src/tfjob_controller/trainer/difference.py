"""What must be written so that the cluster holds what the plan says. Pure; the engine carries it out.

Contract with the engine:

- Decisions about the end of a job are read from `status`, never from pods: so a job is cleaned up only after its end is
  on record, and a crash in between loses nothing.
- All actions of one answer are independent of one another and may be carried out in any order, at the same time.
- Each is idempotent: the same input gives the same answer until the caches show the effect.
- A child that must be made anew is deleted here, and created by a later sync once the cache shows it gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tfjob_controller.api.tfjob import TFJob
from tfjob_controller.kube.meta import Resource
from tfjob_controller.trainer.children import Body
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan


@dataclass(frozen=True, slots=True)
class Create:
    """POST `body` to `resource`. `name` for messages and for adoption on AlreadyExists."""

    resource: Resource
    name: str
    body: Body


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE by name with precondition `uid`, propagation Background. NotFound and Conflict are success."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SetSuspend:
    """Merge-PATCH `{"spec": {"suspend": suspend}}` on child Job `name`. NotFound is success."""

    name: str
    suspend: bool


@dataclass(frozen=True, slots=True)
class Actions:
    """Writes of one sync."""

    creates: tuple[Create, ...] = ()
    deletes: tuple[Delete, ...] = ()
    suspends: tuple[SetSuspend, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.deletes or self.suspends)


NOTHING = Actions()


def plan_actions(job: TFJob, plan: Plan, observed: Observed, now: datetime) -> Actions:
    """The writes that bring the cluster to the plan; `NOTHING` (the same object) when it is there."""
    raise NotImplementedError
