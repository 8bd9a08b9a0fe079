"""What a sync does where the watch of jobs is silent, and the cache does not know that its job is going."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.controllerbench import JOB_PATH, SERVICE_PATH, TFJOB_PATH, ControllerBench
from helpers.manifests import master, tfjob, workers
from helpers.trainbench import TrainBench
from tfjob_controller.controller.outcome import DONE, RequeueAfter, Retry

TFJOB = f"{TFJOB_PATH}/example-job"
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}


@pytest.fixture
def bench() -> ControllerBench:
    return ControllerBench()


def vanish(bench: ControllerBench) -> None:
    """As the garbage collector takes children away."""
    bench.api.remove(f"{SERVICE_PATH}/{bench.child('worker-0')}")
    bench.api.remove(f"{JOB_PATH}/{bench.child('worker-0')}")


def asked(bench: ControllerBench) -> int:
    """How often the server was asked for the job itself."""
    return len(bench.api.requests("GET", "/tfjobs"))


def go_unheard(bench: ControllerBench, change: Callable[[], object]) -> None:
    """Something happens to the job, and its watch does not tell."""
    bench.api.hold()
    change()
    bench.api.drop_held()


@pytest.mark.parametrize("in_another_process", [False, True], ids=["known", "another process"])
def test_nothing_is_recreated_for_a_job_of_whose_deletion_the_cache_does_not_know(
    bench: ControllerBench, in_another_process: bool
) -> None:
    bench.create(master(), workers(1))
    bench.settle()
    go_unheard(bench, lambda: bench.api.change(TFJOB, DELETED))
    vanish(bench)
    if in_another_process:
        bench.reconciler = bench.new_reconciler()
    so_far = len(bench.api.sent)
    for _ in range(3):
        assert bench.sync() == DONE
    assert [sent.method for sent in bench.api.sent[so_far:]] == ["GET"]  # and from then on the cache knows


def test_another_process_recreates_nothing_for_a_job_that_has_an_identity_but_no_status_yet(
    bench: ControllerBench,
) -> None:
    bench.create(master(), workers(1))
    bench.is_busy = True
    bench.sync()
    assert len(bench.api.paths("/jobs/")) == 2
    assert "phase" not in bench.status
    go_unheard(bench, lambda: bench.api.change(TFJOB, DELETED))
    vanish(bench)
    bench.reconciler = bench.new_reconciler()
    assert bench.sync() == DONE
    assert len(bench.api.paths("/jobs/")) == 1


def test_nothing_is_recreated_for_a_job_that_is_gone_or_another(bench: ControllerBench) -> None:
    bench.create(master(), workers(1))
    bench.settle()
    vanish(bench)
    go_unheard(bench, lambda: bench.api.remove(TFJOB))
    assert bench.sync() == DONE
    go_unheard(bench, bench.create)
    assert bench.sync() == DONE
    assert len(bench.api.paths("/jobs/")) == 1
    assert asked(bench) == 2


def test_what_vanished_is_recreated_once_the_server_says_that_the_job_is_still_there(bench: ControllerBench) -> None:
    bench.create(master(), workers(1))
    bench.settle()
    assert asked(bench) == 0
    vanish(bench)
    bench.api.fail(503, "ServiceUnavailable", method="GET", part="/tfjobs")
    assert isinstance(bench.sync(), Retry)
    assert asked(bench) == 1
    bench.settle()
    assert f"{JOB_PATH}/{bench.child('worker-0')}" in bench.api.objects
    assert f"{SERVICE_PATH}/{bench.child('worker-0')}" in bench.api.objects
    assert asked(bench) == 2


def test_nothing_is_recreated_for_a_job_that_another_process_has_ended(bench: ControllerBench) -> None:
    """It has deleted the children as well, and the watch of children is ahead of that of jobs."""
    bench.create(master(), workers(1))
    bench.settle()
    done = {"status": {"phase": "Done", "state": "Succeeded"}}
    go_unheard(bench, lambda: bench.api.change(TFJOB, done))
    vanish(bench)
    assert bench.sync() == RequeueAfter(0.0)
    assert bench.sync() == DONE
    assert f"{JOB_PATH}/{bench.child('worker-0')}" not in bench.api.objects


def test_a_job_with_more_children_than_before_is_not_looked_up(bench: ControllerBench) -> None:
    bench.create(master(), workers(1))
    bench.api.fail(503, "ServiceUnavailable", method="POST", part="/services", times=2)
    bench.settle()
    bench.api.change(TFJOB, {"spec": {"replicaSpecs": tfjob(master(), workers(3))["spec"]["replicaSpecs"]}})
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == len(bench.api.paths("/services/")) == 4
    assert asked(bench) == 0


def unheard_pod(bench: ControllerBench | TrainBench, replica: str, *, is_released: bool) -> str:
    """A pod of which the watch does not tell, whose Job somebody deletes; `is_released`: with `--cascade=orphan`."""
    bench.api.hold("pods")
    bench.runs(replica)
    bench.api.remove(f"{JOB_PATH}/{bench.child(replica)}")
    (path,) = bench.api.paths("/pods/")
    if is_released:
        bench.api.change(path, {"metadata": {"ownerReferences": None}})
    return path


@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize(
    ("kind", "replica", "others"), [(ControllerBench, "master-0", 3), (TrainBench, "node-0", 0)], ids=["pod", "node"]
)
def test_no_pod_runs_beside_one_that_the_watch_has_not_shown(
    kind: type[ControllerBench | TrainBench], replica: str, others: int, is_released: bool
) -> None:
    bench = kind()
    bench.create()
    bench.settle()
    path = unheard_pod(bench, replica, is_released=is_released)
    for _ in range(3):
        bench.settle()
        bench.clock.advance(60)
    assert len(bench.api.paths("/jobs/")) == others
    assert "waits for pod" in bench.status["reason"]
    bench.api.remove(path)
    bench.api.release()
    bench.settle()
    assert len(bench.api.paths("/jobs/")) == others + 1


def test_the_server_is_not_asked_for_the_pods_of_what_the_controller_itself_deletes(bench: ControllerBench) -> None:
    bench.create(master(), workers(1))
    bench.settle()
    bench.runs("worker-0")
    bench.exits("worker-0", 137)
    bench.settle()
    bench.clock.advance(60)
    bench.settle()
    assert len(bench.api.requests("POST", "/jobs")) == 3
    assert bench.api.requests("GET", "/pods") == []


def test_of_many_jobs_all_pods_are_asked_for_at_once(bench: ControllerBench) -> None:
    bench.create(master(), workers(30))
    bench.settle()
    for path in bench.api.paths("/jobs/"):
        bench.api.remove(path)
    bench.settle()
    (asked_for,) = bench.api.requests("GET", "/pods")
    assert asked_for.query["labelSelector"] == f"kubeflow.org,runtime_id={bench.runtime_id}"
    assert len(bench.api.paths("/jobs/")) == 31
