"""TrainJobs whose controller has stale caches of child Jobs and pods, independently of each other."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.laggingcluster import LaggingCluster
from helpers.trainworld import generations, train_world, world_in_steps
from tfjob_controller.jobs.plan.gangterms import ON_REQUEST, GangPolicy

# A method of the cluster and its arguments.
Step = tuple[Any, ...]

GANGS = GangPolicy(ON_REQUEST, "gang-scheduler")
NODES = ("node-0", "node-1")
INITIALIZERS = ("dataset-initializer-0", "model-initializer-0")
EXPORTER = "model-exporter-0"
QUIET: tuple[Step, ...] = (
    *(("sync",), ("sync",), ("jobs_seen",), ("pods_seen",), ("advance",)),
    *((name, node) for name in ("job_controller", "kubelet") for node in NODES),
    ("all_act",),
    *(("dies", writes) for writes in (0, 1, 2)),
    ("gang_scheduler",),
)
TOGGLES: tuple[Step, ...] = (("suspend", True), ("suspend", False))
PREEMPTIONS: tuple[Step, ...] = (("is_preempted",), ("gang_scheduler",), ("fails_over", 1))
RESIZES: tuple[Step, ...] = (*(("resize", nodes) for nodes in (2, 3, 4)), ("gang_scheduler",))
ELASTIC: dict[str, Any] = {"command": ["torchrun", "x"], "elasticPolicy": {"minNodes": 2, "maxNodes": 6}}
# Twice a controller dies before it writes the status.
FORGOTTEN: list[Step] = [("suspend", True), ("dies", 1), ("suspend", False), ("dies", 1), ("all_act",), ("all_act",)]
# The watch of pods shows nothing from the suspension until the Job is gone.
UNSEEN: list[Step] = [
    *(("suspend", True), ("sync",), *[("all_act",)] * 4, ("jobs_seen",), ("sync",)),
    *(("suspend", False), ("sync",), ("sync",), *[("all_act",)] * 4, ("jobs_seen",), ("sync",), ("sync",)),
]
KILLS: tuple[Step, ...] = tuple(("is_killed", node) for node in NODES)
# 143: no handler of SIGTERM; 1: torchrun; 0: a program that ends in order.
exit_codes = st.sampled_from([143, 1, 0])
gangs = st.sampled_from([None, {"enabled": True}])


def histories(*steps: Step) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.sampled_from(steps), max_size=40)


def after(history: list[Step], stops_with: int, gang: object, **job: object) -> LaggingCluster:
    """A set that ran, lived that, is not suspended any more, and has come to rest."""
    cluster = a_set_that_runs(stops_with, gang, **job)
    lives(cluster, history)
    return cluster


def a_set_that_runs(stops_with: int, gang: object, **job: object) -> LaggingCluster:
    cluster = LaggingCluster(train_world(gangs=GANGS, gang=gang, **job), stops_with)
    cluster.runs_on()
    assert ready(cluster) == 2
    return cluster


def lives(cluster: LaggingCluster, history: list[Step]) -> None:
    for name, *arguments in history:
        getattr(cluster, name)(*arguments)
    cluster.suspend(False)
    cluster.runs_on()


def pods_of(cluster: LaggingCluster) -> set[str]:
    return {pod.metadata.uid for pods in cluster.truth.pods.values() for pod in pods}


def ready(cluster: LaggingCluster) -> int:
    ready: int = cluster.truth.job.status.jobs_status[0].ready
    return ready


@given(history=histories(*QUIET, *TOGGLES), stops_with=exit_codes, gang=gangs)
@example(history=FORGOTTEN, stops_with=1, gang=None)
@example(history=UNSEEN, stops_with=143, gang=None)
@settings(max_examples=examples(200))
def test_suspending_and_resuming_is_no_failure_whoever_sees_it_when(
    history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after(history, stops_with, gang, maxRestarts=0)
    status = cluster.truth.job.status
    assert (status.phase, ready(cluster), status.restarts) == ("Running", 2, 0), status.reason
    assert generations(cluster.truth) == {"0"}


@given(history=histories(*QUIET, *PREEMPTIONS), stops_with=exit_codes, elastic=st.booleans())
@settings(max_examples=examples(200))
def test_being_preempted_is_no_failure_whoever_sees_it_when(
    history: list[Step], stops_with: int, elastic: bool
) -> None:
    """The pods may be seen to end before their Job is seen to be deleted."""
    cluster = after(history, stops_with, {"enabled": True}, maxRestarts=0, **(ELASTIC if elastic else {}))
    status = cluster.truth.job.status
    assert (status.phase, ready(cluster), status.restarts) == ("Running", 2, 0), status.reason


@given(history=histories(*QUIET, *RESIZES), stops_with=exit_codes, gang=gangs)
@example(history=[("resize", 3), ("all_act",), ("dies", 2), ("resize", 4)], stops_with=1, gang=None)
@settings(max_examples=examples(200))
def test_nodes_that_a_resize_removes_are_no_disruption_whoever_sees_it_when(
    history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = LaggingCluster(train_world(gangs=GANGS, gang=gang, nodes=4, **ELASTIC), stops_with)
    cluster.runs_on()
    lives(cluster, history)
    status = cluster.truth.job.status
    assert (status.phase, status.restarts, status.disruptions) == ("Running", 0, 0), status.reason


@given(history=histories(*QUIET, *KILLS), stops_with=exit_codes, gang=gangs)
@settings(max_examples=examples(200))
def test_a_set_is_restarted_no_more_often_than_a_node_failed(
    history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after(history, stops_with, gang)
    status = cluster.truth.job.status
    assert (status.phase, ready(cluster)) == ("Running", 2), status.reason
    assert min(1, cluster.failures) <= status.restarts <= cluster.failures
    assert generations(cluster.truth) == {str(status.restarts)}


@given(history=histories(*QUIET, *TOGGLES, *KILLS), stops_with=exit_codes, gang=gangs)
@settings(max_examples=examples(200))
def test_a_set_that_fails_about_when_it_is_suspended_runs_again_all_the_same(
    history: list[Step], stops_with: int, gang: object
) -> None:
    cluster = after(history, stops_with, gang)
    status = cluster.truth.job.status
    assert (status.phase, ready(cluster)) == ("Running", 2), status.reason
    assert status.restarts <= cluster.failures
    assert generations(cluster.truth) == {str(status.restarts)}


@given(history=histories(*QUIET, *TOGGLES), stops_with=exit_codes, gang=gangs)
@settings(max_examples=examples(200))
def test_no_node_goes_on_beside_one_that_was_stopped(history: list[Step], stops_with: int, gang: object) -> None:
    """Not even if the controller was killed when it had stopped some of them, and the job is resumed by then."""
    cluster = a_set_that_runs(stops_with, gang)
    before = pods_of(cluster)
    lives(cluster, history)
    assert before & pods_of(cluster) in (set(), before)


@given(history=histories(*QUIET, *TOGGLES, ("job_controller", EXPORTER), ("kubelet", EXPORTER)), stops_with=exit_codes)
@example(history=[("suspend", True), ("all_act",), ("sync",), ("all_act",), ("all_act",), ("jobs_seen",)], stops_with=1)
@settings(max_examples=examples(200))
def test_a_model_is_exported_although_its_job_is_suspended_meanwhile(history: list[Step], stops_with: int) -> None:
    cluster = LaggingCluster(world_in_steps(), stops_with)
    cluster.runs_on()
    for replicas in (INITIALIZERS, NODES):
        for replica in replicas:
            cluster.succeeds(replica)
        cluster.runs_on()
    lives(cluster, history)
    cluster.succeeds(EXPORTER)
    cluster.runs_on()
    status = cluster.truth.job.status
    assert (status.phase, status.restarts) == ("Done", 0), status.reason
