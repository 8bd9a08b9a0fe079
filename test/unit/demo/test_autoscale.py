"""The two jobs of the demo of autoscaling, and how its picture says who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from demo.autoscale import (
    FIRST,
    GPU,
    GPUS_PER_NODE,
    LEAST,
    MOST,
    SAMPLE,
    SECOND,
    SECOND_WORKERS,
    bound_pods,
    line,
    manifests,
)
from demo.stage import NODES
from tfjob_controller.api.tfjob.types import TFJOBS
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


def test_the_second_job_fits_exactly_when_the_first_has_its_minimum() -> None:
    assert MOST == NODES * GPUS_PER_NODE
    assert LEAST + SECOND_WORKERS == MOST


def test_the_jobs_are_ones_that_the_controller_takes() -> None:
    made = manifests((ROOT / SAMPLE).read_text())
    jobs = {name: objects[-1] for name, objects in made.items()}
    assert list(jobs) == [FIRST, SECOND]
    for name, job in jobs.items():
        assert validate(TFJOBS.decode(msgspec.json.encode(job))) is None, name
        (workers,) = (each for each in job["spec"]["replicaSpecs"] if each["tfReplicaType"] == "WORKER")
        assert workers["template"]["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
        autoscaling = job["spec"]["autoscaling"]
        assert autoscaling["minWorkers"] <= workers["replicas"] <= autoscaling["maxWorkers"]
