"""Which of a job's steps is due: initializers before the nodes, the exporter after them.

A job without steps is one step: its plan as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.plan import Plan
from tfjob_controller.trainer.replicas import View
from tfjob_controller.trainer.training import has_succeeded


@dataclass(frozen=True, slots=True)
class Step:
    """The plan, the views and the children of the step that is due. `past`: views of those that are over.

    `is_first`: nothing came before it.
    """

    plan: Plan
    views: Sequence[View]
    observed: Observed
    past: Sequence[View] = ()
    is_first: bool = True


def due_step(plan: Plan, views: Sequence[View], observed: Observed) -> Step:
    """The first one that is not done; the last one of a job that is."""
    if not plan.steps:
        return Step(plan, views, observed)
    past: list[View] = []
    for step in plan.steps:
        part = [view for view in views if view.replica.name in step.by_name]
        if step is plan.steps[-1] or not has_succeeded(step, part):
            return Step(step, part, observed.only(step.by_name), past, is_first=step is plan.steps[0])
        past.extend(part)
    raise AssertionError("there is a last step")
