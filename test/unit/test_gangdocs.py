"""Every message that a user may meet stands in docs/gang-scheduling.md, in the words of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller.gangscheduler import bindrequests
from tfjob_controller.gangscheduler.extender import verbs
from tfjob_controller.scheduling import decisions, nodefilter

PAGE = (Path(__file__).parents[2] / "docs" / "gang-scheduling.md").read_text()
MESSAGES = [
    bindrequests.NOT_ADMITTED,
    bindrequests.WRONG_ATTEMPT,
    bindrequests.UNKNOWN_MEMBER,
    bindrequests.WRONG_NODE,
    bindrequests.SECOND_POD,
    bindrequests.POD_DELETED,
    bindrequests.REJECTED,
    bindrequests.NOT_COMPLETE,
    bindrequests.SUPERSEDED,
    bindrequests.STOPPING,
    verbs.NO_GANG,
    verbs.NOT_ADMITTED,
    verbs.NOT_A_MEMBER,
    verbs.OLD_ATTEMPT,
    verbs.RESERVED,
    verbs.NOT_FILTERED,
    verbs.NODE_REJECTED,
    verbs.NODE_NOT_OFFERED,
    decisions.HELD_BACK,
    nodefilter.NOT_READY,
    nodefilter.UNSCHEDULABLE,
    nodefilter.TAINTED,
    nodefilter.NOT_SELECTED,
    decisions.EXCEEDS_CLUSTER_CAPACITY,
    decisions.INVALID_RESOURCES,
]


@pytest.mark.parametrize("message", MESSAGES)
def test_the_page_explains_each_message(message: str) -> None:
    assert message in PAGE


@pytest.mark.parametrize("phase", ["Waiting", "Admitted", "Bound", "Released", "Unschedulable"])
def test_the_page_explains_each_phase(phase: str) -> None:
    assert f"| {phase} |" in PAGE
