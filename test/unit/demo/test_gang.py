"""What the gang demo takes for a deadlock, and what for GPUs that are held in vain."""

from __future__ import annotations

from typing import Any

import pytest

from demo.gang import GPU, REPLICAS, Ledger, bar, by_job, manifest


def pods(job: str, count: int, *, phase: str = "Running", node: str = "node-1") -> list[dict[str, Any]]:
    labels = {"tf_job_name": job}
    one = {"metadata": {"labels": labels}, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return [one] * count


@pytest.mark.parametrize(
    ("found", "held"),
    [
        pytest.param(pods("blue", 3), {"blue": 3, "red": 0}, id="a running pod holds its GPU"),
        pytest.param(pods("blue", 2, phase="Pending"), {"blue": 2, "red": 0}, id="and one that is bound and starts"),
        pytest.param(pods("red", 2, node=""), {"blue": 0, "red": 0}, id="one without a node holds nothing"),
        pytest.param(pods("red", 2, phase="Succeeded"), {"blue": 0, "red": 0}, id="nor does one that has ended"),
        pytest.param(pods("green", 2), {"blue": 0, "red": 0}, id="other jobs do not count"),
    ],
)
def test_gpus_held(found: list[dict[str, Any]], held: dict[str, int]) -> None:
    assert {name: len(each) for name, each in by_job(found).items()} == held


@pytest.mark.parametrize(
    ("found", "is_deadlocked"),
    [
        pytest.param(pods("blue", 5) + pods("red", 3), True, id="all is held, by both, and nobody has enough"),
        pytest.param(pods("blue", 8), False, id="one has all that it needs"),
        pytest.param(pods("blue", 5) + pods("red", 2), False, id="something is left"),
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


def test_the_bar_shows_the_gpus_of_each_job() -> None:
    assert bar({"blue": 5, "red": 3}) == "blue █████··· 5 of 8 GPUs     red ███····· 3 of 8 GPUs"


@pytest.mark.parametrize("is_gang", [True, False])
def test_the_jobs_differ_only_in_being_gangs(is_gang: bool) -> None:
    spec = manifest("blue", is_gang=is_gang)["spec"]
    assert ("gang" in spec) is is_gang
    assert sum(each["replicas"] for each in spec["replicaSpecs"]) == REPLICAS
    for each in spec["replicaSpecs"]:
        assert each["template"]["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
