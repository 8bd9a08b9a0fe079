"""A gang that loses its place while the cache of Jobs is behind that of pods."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.laggingcluster import LaggingCluster
from helpers.trainworld import CLAIM, IN_STEPS, ends, runtime_spec, train_world
from tfjob_controller.jobs.plan.gangterms import ALWAYS, ON, GangPolicy

NODES = ("node-0", "node-1", "node-2")
POLICY = GangPolicy(ALWAYS, "gang-scheduler", autoscaling=ON)
# A failure that counted would end the job.
FIXED: dict[str, Any] = {"command": ["torchrun", "x"], "maxRestarts": 0}
ELASTIC: dict[str, Any] = {**FIXED, "elasticPolicy": {"minNodes": 2, "maxNodes": 6}}


@pytest.mark.parametrize("spec", [FIXED, ELASTIC], ids=["fixed", "elastic"])
@pytest.mark.parametrize("exit_code", [1, 143])
@pytest.mark.parametrize("ended", [NODES[:1], NODES], ids=["first", "all"])
@pytest.mark.parametrize("event", ["is_preempted", "returns_to_queue"])
def test_what_pods_end_with_counts_as_no_failure_although_their_job_looks_untouched(
    event: str, ended: tuple[str, ...], exit_code: int, spec: dict[str, Any]
) -> None:
    cluster = LaggingCluster(train_world(nodes=3, gangs=POLICY, **spec), stops_with=exit_code)
    cluster.runs_on()
    getattr(cluster, event)()
    cluster.sync()
    for node in NODES:
        cluster.job_controller(node)
    cluster.advance()
    for node in ended:
        cluster.kubelet(node)
    # The Job is being deleted, which its cache does not show yet.
    cluster.pods_seen()
    for _ in range(3):
        cluster.sync()
    status = cluster.truth.status
    assert (status.phase, status.restarts) == ("Creating", 0), status.reason
    cluster.runs_on()
    assert (cluster.truth.status.phase, cluster.truth.status.restarts) == ("Running", 0)


def test_a_gang_loses_its_place_although_initializers_had_none() -> None:
    in_steps = train_world(nodes=3, gangs=POLICY, runtime=runtime_spec(workspace=CLAIM), **IN_STEPS)
    cluster = LaggingCluster(in_steps, stops_with=1)
    cluster.runs_on()
    ends(in_steps, "dataset-initializer-0", "model-initializer-0")
    cluster.runs_on()
    cluster.is_preempted()
    # Another controller process has deleted the Job.
    cluster.fails_over(writes=1)
    cluster.all_act()
    cluster.pods_seen()
    cluster.sync()
    assert [state.is_disrupted for state in in_steps.state.unfinished] == [False] * 4
    cluster.runs_on()
    assert (in_steps.status.phase, in_steps.status.restarts) == ("Running", 0)
