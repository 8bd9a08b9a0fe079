"""Tests of lab.chaos: the kinds of faults, and the count of leaked threads."""

from __future__ import annotations

import pytest

from lab.chaos import ELECTED, FAULTS, LANES, Count, count_outside_pool, leaked
from lab.programs import names_in
from lab.requests import REQUEST_FAULTS


def test_every_write_of_the_controller_can_be_lost_before_and_after_the_server_processes_it() -> None:
    for target in ("creates", "deletes", "patches", "statuses", "leases"):
        assert {f"{target} lost", f"{target} unanswered", f"{target} 500"} <= FAULTS.keys()


def test_every_fault_of_requests_and_every_kind_of_a_lane_is_in_the_plan() -> None:
    lanes = {kind for kinds in LANES.values() for kind in kinds}
    assert lanes | set(ELECTED) | REQUEST_FAULTS.keys() <= FAULTS.keys()


@pytest.mark.parametrize(
    ("after", "threads"),
    [
        pytest.param({"leader": Count(20, 9), "standby": Count(8, 9)}, 0, id="unchanged"),
        pytest.param({"leader": Count(18, 99)}, 0, id="fewer, without a standby"),
        pytest.param({"leader": Count(23, 9), "standby": Count(9, 9)}, 4, id="more of both roles"),
    ],
)
def test_leaders_and_standbys_are_compared_separately(after: dict[str, Count], threads: int) -> None:
    assert leaked({"leader": Count(20, 9), "standby": Count(8, 9)}, after) == threads


def test_threads_of_the_writer_pool_are_not_counted() -> None:
    names = ["MainThread", "writer_0", "handler-jobs (2)", "writer_1"]
    # The format of /debug/threads, with stacks.
    stacks = "\n".join(f'{name} (14)\n  File "a.py", line 3, in run (7)\n    wait()\n' for name in names)
    assert names_in(stacks) == names
    assert count_outside_pool(names) == 2
