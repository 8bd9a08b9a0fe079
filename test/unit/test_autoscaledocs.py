"""Whatever a user may meet of autoscaling stands in docs/autoscaling.md, in the words of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller.api.common.status import Progress, ScalingStatus
from tfjob_controller.jobs import reasons
from tfjob_controller.jobs.plan.gangterms import OFF, ON, RECOMMEND
from tfjob_controller.jobs.status.resizing import resize_message
from tfjob_controller.options import EXTENDER_OPTIONS
from tfjob_controller.scheduling.autoscaling.autoscaler import FREE_CAPACITY
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy

PAGE = (Path(__file__).parents[2] / "docs" / "autoscaling.md").read_text()
MESSAGES = [
    reasons.RESIZED,
    reasons.RESIZE_RECOMMENDED,
    reasons.OVERRIDDEN,
    reasons.PROGRESS_IGNORED,
    reasons.CHILDREN_FOLLOW,
    reasons.NONE_RECOMMENDED,
    resize_message(4, 2, "capacity for default/second-f2sa, waiting 31 s"),
    resize_message(2, 3, FREE_CAPACITY),
    resize_message(2, 4, ""),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_the_page_explains_each_message(message: str) -> None:
    assert message in PAGE


@pytest.mark.parametrize("mode", [OFF, RECOMMEND, ON])
def test_the_page_explains_each_mode(mode: str) -> None:
    assert f"| `{mode}`" in PAGE


@pytest.mark.parametrize("delay", ["scale_down_after", "scale_up_after"])
def test_the_page_knows_the_delays_as_they_are_shipped(delay: str) -> None:
    (seconds,) = (each.default for each in EXTENDER_OPTIONS if each.field == delay)
    assert seconds == getattr(AutoscalingPolicy(), f"{delay}_seconds")
    assert f"`--{delay.replace('_', '-')}` ({seconds:.0f} s)" in PAGE


@pytest.mark.parametrize("field", ["workers", "before", "target", "reason", "done", "total"])
def test_the_page_names_fields_that_there_are(field: str) -> None:
    assert field in {*ScalingStatus.__struct_fields__, *Progress.__struct_fields__}
    assert f"`{field}`" in PAGE
