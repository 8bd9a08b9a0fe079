"""What a sync writes of a job whose gang another scheduler runs."""

from __future__ import annotations

import pytest

from helpers.controllerbench import TFJOB_PATH, ControllerBench
from helpers.manifests import master, workers
from tfjob_controller.controller.outcome import TerminalFailure
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS

BACKEND = BACKENDS["volcano"]


@pytest.fixture
def bench() -> ControllerBench:
    made = ControllerBench(gangs=GangPolicy(ON_REQUEST, BACKEND.scheduler_name, backend=BACKEND))
    made.create(master(), workers(2), gang={"enabled": True})
    made.settle()
    return made


def groups(bench: ControllerBench) -> list[str]:
    return [path for path in bench.api.objects if f"/{BACKEND.resource.plural}/" in path]


def test_its_group_costs_one_request_and_comes_with_its_children(bench: ControllerBench) -> None:
    posted = [each.path.rsplit("/", 1)[-1] for each in bench.api.requests("POST", "/")]
    assert sorted(posted) == [*3 * ["jobs"], "podgroups", *3 * ["services"]]
    assert [path.rsplit("/", 1)[-1] for path in groups(bench)] == [f"example-job-{bench.runtime_id}"]


def test_a_job_that_became_invalid_releases_its_group(bench: ControllerBench) -> None:
    bench.api.change(f"{TFJOB_PATH}/example-job", {"spec": {"replicaSpecs": []}})
    assert isinstance(bench.sync(), TerminalFailure)
    assert groups(bench) == []
