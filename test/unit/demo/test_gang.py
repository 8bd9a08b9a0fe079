"""What the gang demo takes for a deadlock, and what for GPUs that are held in vain."""

from __future__ import annotations

from typing import Any

import pytest

from demo.gang import REPLICAS, Ledger


def pods(job: str, count: int, *, phase: str = "Running", node: str = "node-1") -> list[dict[str, Any]]:
    labels = {"tf_job_name": job}
    one = {"metadata": {"labels": labels}, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return [one] * count


@pytest.mark.parametrize(
    ("found", "is_deadlocked"),
    [
        pytest.param(pods("blue", 5) + pods("red", 3), True, id="all is held, by both, and nobody has enough"),
        pytest.param(pods("blue", 8), False, id="one has all that it needs"),
        pytest.param(pods("blue", 5) + pods("red", 2), False, id="something is left"),
        pytest.param(pods("blue", 5) + pods("red", 3, node=""), False, id="without a node, a pod holds nothing"),
        pytest.param([], False, id="nobody holds anything"),
    ],
)
def test_deadlock(found: list[dict[str, Any]], is_deadlocked: bool) -> None:
    ledger = Ledger()
    ledger.look(found, 0.0)
    assert ledger.is_deadlocked() is is_deadlocked


def test_a_job_holds_gpus_in_vain_from_its_first_one_to_its_last() -> None:
    ledger = Ledger()
    for now, count in ((0.0, 0), (1.0, 2), (4.0, 7), (5.0, REPLICAS)):
        ledger.look(pods("blue", count), now)
    assert ledger.in_vain_seconds == 3.0
    assert ledger.complete_at == {"blue": 5.0}


def test_a_job_that_ends_holds_nothing_in_vain() -> None:
    ledger = Ledger()
    for now, count in ((0.0, REPLICAS), (1.0, 3), (9.0, 1)):
        ledger.look(pods("blue", count), now)
    assert ledger.in_vain_seconds == 0.0
