"""TFJobs whose controller has stale caches of child Jobs and pods, independently of each other.

Whatever the controller itself deletes is no restart and no disruption, whoever sees it when.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.clusterinmemory import World, world
from helpers.examples import examples
from helpers.laggingcluster import LaggingCluster
from helpers.manifests import master, workers
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy

# A method of the cluster and its arguments.
Step = tuple[Any, ...]

REPLICAS = ("master-0", "worker-0", "worker-2")
QUIET: tuple[Step, ...] = (
    *(("sync",), ("sync",), ("jobs_seen",), ("pods_seen",), ("pods_seen",), ("all_act",), ("all_act",), ("advance",)),
    *((name, replica) for name in ("job_controller", "kubelet") for replica in REPLICAS),
    *(("dies", writes) for writes in (0, 1, 2)),
    ("gang_scheduler",),
)
RESIZES: tuple[Step, ...] = tuple(("resize", count) for count in (1, 2, 3))
FAIL_OVERS: tuple[Step, ...] = tuple(("fails_over", writes) for writes in (1, 3))
TOGGLES: tuple[Step, ...] = (("suspend", True), ("suspend", False))
PREEMPTIONS: tuple[Step, ...] = (("is_preempted",), ("returns_to_queue",), ("gang_scheduler",))
KILLS: tuple[Step, ...] = tuple(("is_killed", replica) for replica in REPLICAS)
# Pods of a Job that the controller has deleted are seen to be deleted, and the Job is not.
UNSEEN: tuple[Step, ...] = (("all_act",), ("pods_seen",))
# All pods have ended, so that the gang is admitted once more.
PLACED: tuple[Step, ...] = (("gang_scheduler",), ("gang_scheduler",))
exit_codes = st.sampled_from([143, 1, 0])
gangs = st.sampled_from([None, {"enabled": True, "minWorkers": 1}])


def histories(*steps: Step) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.sampled_from(steps), max_size=40)


def new_world(resize: str, gang: object) -> World:
    more = {"gang": gang} if gang else {}
    bounds = {"minWorkers": 1, "maxWorkers": 3, "resize": resize}
    cluster = world(master(), workers(3), autoscaling=bounds, **more)
    cluster.gangs, cluster.lingers = GangPolicy(ON_REQUEST, "gang-scheduler"), True
    return cluster


def after(history: list[Step], stops_with: int, gang: object, resize: str) -> LaggingCluster:
    """A job that ran, lived that, is not suspended any more, and has come to rest."""
    cluster = LaggingCluster(new_world(resize, gang), stops_with)
    cluster.runs_on()
    assert cluster.truth.status.phase == "Running"
    for name, *arguments in history:
        getattr(cluster, name)(*arguments)
    cluster.suspend(False)
    cluster.runs_on()
    return cluster


def counts(cluster: LaggingCluster) -> tuple[str, int, int]:
    status = cluster.truth.status
    return status.phase, status.restarts, status.disruptions


@given(history=histories(*QUIET, *RESIZES, *FAIL_OVERS), stops_with=exit_codes, gang=gangs)
@example(history=[("resize", 2), ("sync",), ("sync",), *UNSEEN, ("sync",)], stops_with=143, gang=None)
@example(history=[("resize", 2), ("sync",), ("fails_over", 3), *UNSEEN, ("sync",)], stops_with=0, gang=None)
@settings(max_examples=examples(300))
def test_a_resize_by_a_restart_counts_nothing_whoever_sees_it_when(
    history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after(history, stops_with, gang, "Restart")
    assert counts(cluster) == ("Running", 0, 0), cluster.truth.status.reason


@given(history=histories(*QUIET, *RESIZES), stops_with=exit_codes, gang=gangs)
@example(history=[("resize", 1), ("sync",), *UNSEEN, ("resize", 2), ("sync",)], stops_with=143, gang=None)
@settings(max_examples=examples(300))
def test_a_resize_in_place_counts_nothing_whoever_sees_it_when(
    history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after(history, stops_with, gang, "InPlace")
    assert counts(cluster) == ("Running", 0, 0), cluster.truth.status.reason


@pytest.mark.parametrize("resize", ["InPlace", "Restart"])
@given(history=histories(*QUIET, *TOGGLES), stops_with=exit_codes, gang=gangs)
@settings(max_examples=examples(200))
def test_suspending_and_resuming_counts_nothing_whoever_sees_it_when(
    resize: str, history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after(history, stops_with, gang, resize)
    assert counts(cluster) == ("Running", 0, 0), cluster.truth.status.reason


@pytest.mark.parametrize("resize", ["InPlace", "Restart"])
@given(history=histories(*QUIET, *PREEMPTIONS, *FAIL_OVERS), stops_with=exit_codes)
@example(history=[("is_preempted",), ("sync",), ("all_act",), *PLACED, ("pods_seen",), ("sync",)], stops_with=143)
@example(
    history=[("returns_to_queue",), ("fails_over", 1), ("all_act",), *PLACED, ("pods_seen",), ("sync",)], stops_with=0
)
@settings(max_examples=examples(200))
def test_a_gang_that_loses_its_place_counts_nothing_whoever_sees_it_when(
    resize: str, history: list[Step], stops_with: int
) -> None:
    cluster = after(history, stops_with, {"enabled": True, "minWorkers": 1}, resize)
    assert counts(cluster) == ("Running", 0, 0), cluster.truth.status.reason


@given(before=histories(*QUIET), history=histories(*QUIET, *FAIL_OVERS), stops_with=exit_codes, gang=gangs)
@settings(max_examples=examples(200))
def test_the_end_of_a_job_counts_nothing_whoever_sees_it_when(
    before: list[Step], history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after([*before, ("succeeds", "master-0"), *history], stops_with, gang, "InPlace")
    cluster.succeeds("master-0")
    cluster.runs_on()
    assert counts(cluster) == ("Done", 0, 0), cluster.truth.status.reason


@pytest.mark.parametrize("resize", ["InPlace", "Restart"])
@given(history=histories(*QUIET, *RESIZES, *TOGGLES, *PREEMPTIONS, *KILLS), stops_with=exit_codes)
@settings(max_examples=examples(200))
def test_no_more_restarts_are_counted_than_programs_were_killed(
    resize: str, history: list[Step], stops_with: int
) -> None:
    cluster = after(history, stops_with, {"enabled": True, "minWorkers": 1}, resize)
    status = cluster.truth.status
    assert status.phase == "Running", status.reason
    assert status.restarts <= cluster.failures
    assert status.disruptions == 0
