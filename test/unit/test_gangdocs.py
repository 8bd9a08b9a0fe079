"""Every message that a user may meet stands in docs/gang-scheduling.md, in the words of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller.extender import bindcalls, placements, service
from tfjob_controller.scheduling import decide, explain, matching

PAGE = (Path(__file__).parents[2] / "docs" / "gang-scheduling.md").read_text()
MESSAGES = [
    bindcalls.NOT_ADMITTED,
    bindcalls.OTHER_ATTEMPT,
    bindcalls.UNKNOWN_MEMBER,
    bindcalls.OTHER_NODE,
    bindcalls.SECOND_POD,
    bindcalls.POD_GONE,
    bindcalls.GAVE_UP,
    bindcalls.NOT_COMPLETE,
    bindcalls.CALLED_AGAIN,
    bindcalls.STOPPING,
    placements.NO_GANG,
    placements.NOT_ADMITTED,
    placements.NOT_A_MEMBER,
    placements.OLD_ATTEMPT,
    placements.RESERVED,
    service.NOT_FILTERED,
    service.NODE_REFUSED,
    service.NODE_NOT_OFFERED,
    explain.HELD_BACK,
    matching.NOT_READY,
    matching.UNSCHEDULABLE,
    matching.TAINTED,
    matching.NOT_SELECTED,
    decide.EXCEEDS_CLUSTER_CAPACITY,
    decide.INVALID_RESOURCES,
]


@pytest.mark.parametrize("message", MESSAGES)
def test_the_page_tells_what_a_message_means(message: str) -> None:
    assert message in PAGE


@pytest.mark.parametrize("phase", ["Waiting", "Admitted", "Bound", "Released", "Unschedulable"])
def test_the_page_tells_what_a_phase_means(phase: str) -> None:
    assert f"| {phase} |" in PAGE
