"""The one way from what is observed to views: decisions and words must see the same."""

from __future__ import annotations

from datetime import datetime

from tfjob_controller.api.trainingstatus import TrainingStatus
from tfjob_controller.trainer.gang import living
from tfjob_controller.trainer.generations import of_this_generation
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.replicas import View, classify


def views_of(plan: Plan, observed: Observed, status: TrainingStatus, now: datetime) -> tuple[View, ...]:
    """A view of each replica of a plan that is `fitted`, without what says nothing of the program any more."""
    seen = of_this_generation(plan, living(plan, observed))
    return classify(plan, seen, status.succeeded_indexes, now, status.start_time)
