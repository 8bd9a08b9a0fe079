"""The two jobs of the demo of autoscaling, and how its picture says who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from demo.autoscale import (
    FIRST,
    FIRST_STEPS,
    GPU,
    GPUS_PER_NODE,
    LEAST,
    MOST,
    SAMPLE,
    SECOND,
    SECOND_WORKERS,
    bound_pods,
    line,
    logged_steps,
    manifests,
    resizes,
    running,
)
from demo.stage import NODES
from tfjob_controller.api.tfjob.types import decode_tfjob
from tfjob_controller.api.tfjob.validation import validate

ROOT = Path(__file__).parents[3]
NODE_NAMES = ["node-1", "node-2"]


def pod(
    job: str, replica: str, node: str = "node-1", *, phase: str = "Running", leaves: bool = False
) -> dict[str, Any]:
    role, _, index = replica.partition("-")
    labels = {"tf_job_name": job, "job_type": role.upper(), "task_index": index}
    deleted = {"deletionTimestamp": "2026-11-21T20:00:00Z"} if leaves else {}
    return {"metadata": {"labels": labels, **deleted}, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        pytest.param([], "node-1 [2 free]   node-2 [2 free]", id="nobody"),
        pytest.param(
            [pod("first", "worker-1", "node-2"), pod("first", "worker-0"), pod("first", "ps-0")],
            "node-1 [first: ps-0 worker-0 | 1 free]   node-2 [first: worker-1 | 1 free]",
            id="parameter servers take no GPU",
        ),
        pytest.param(
            [pod("first", "worker-0", leaves=True), pod("second", "worker-0", phase="Pending")],
            "node-1 [first: worker-0 (leaves) | second: worker-0 (starts)]   node-2 [2 free]",
            id="who comes and who goes",
        ),
        pytest.param(
            [pod("first", "worker-0", ""), pod("first", "worker-1", phase="Succeeded")],
            "node-1 [2 free]   node-2 [2 free]",
            id="who has no node yet, or has ended, holds nothing",
        ),
        pytest.param(
            [{"metadata": {}, "spec": {"nodeName": "node-1"}}],
            "node-1 [2 free]   node-2 [2 free]",
            id="pods of no job are no business of this picture",
        ),
    ],
)
def test_a_line_shows_the_jobs_on_each_node(pods: list[dict[str, Any]], words: str) -> None:
    assert line(bound_pods(pods), NODE_NAMES) == words


def test_only_those_that_run_and_stay_count() -> None:
    bound = bound_pods(
        [
            pod("first", "ps-0"),
            pod("first", "worker-0"),
            pod("first", "worker-1", leaves=True),
            pod("first", "worker-2", phase="Pending"),
            pod("second", "worker-0"),
        ]
    )
    assert (running(bound, "first"), running(bound, "first", "worker")) == (2, 1)


def test_the_second_job_fits_exactly_when_the_first_has_its_minimum() -> None:
    assert MOST == NODES * GPUS_PER_NODE
    assert LEAST + SECOND_WORKERS == MOST


def test_the_jobs_are_ones_that_the_controller_takes() -> None:
    made = manifests((ROOT / SAMPLE).read_text())
    jobs = {name: objects[-1] for name, objects in made.items()}
    assert list(jobs) == [FIRST, SECOND]
    for name, job in jobs.items():
        assert validate(decode_tfjob(msgspec.json.encode(job))) is None, name
        (workers,) = (each for each in job["spec"]["replicaSpecs"] if each["tfReplicaType"] == "WORKER")
        assert workers["template"]["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
        autoscaling = job["spec"]["autoscaling"]
        assert autoscaling["minWorkers"] <= workers["replicas"] <= autoscaling["maxWorkers"]


@pytest.mark.parametrize(
    ("log", "steps"),
    [
        pytest.param("", 0, id="nothing yet"),
        pytest.param("worker-0: my share of the steps is 5 of 20000", 0, id="a share is no step"),
        pytest.param(
            f"w: 3 steps of my own, 9 of {FIRST_STEPS} by all\nw: 4 steps of my own, 13 of {FIRST_STEPS} by all",
            13,
            id="the last line counts",
        ),
    ],
)
def test_steps_in_a_log(log: str, steps: int) -> None:
    assert logged_steps(log) == steps


def event(uid: str, reason: str, note: str, time: str = "2026-11-21T20:00:00.000000Z") -> dict[str, Any]:
    about = {"metadata": {"uid": uid}, "regarding": {"name": "first"}}
    return {**about, "reason": reason, "note": note, "eventTime": time}


def test_each_resize_is_reported_once_and_in_order() -> None:
    known: set[str] = set()
    down = event(
        "1", "Resized", "shrunk 4 → 2 workers: capacity for default/second, waiting 5 s", "2026-11-21T20:00:01.0Z"
    )
    up = event("2", "Resized", "grown 2 → 3 workers: the cluster has free capacity", "2026-11-21T20:00:09.0Z")
    other = event("3", "SuccessfulCreate", "Created Job first-worker-0")
    assert resizes([other], known) == []
    assert resizes([up, other, down], known) == [f"Resized first: {resize['note']}" for resize in (down, up)]
    assert resizes([up, down], known) == []
