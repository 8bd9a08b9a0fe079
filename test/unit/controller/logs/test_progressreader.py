"""The rules of controller/logs/progressreader.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from helpers.answering import Answering, Request
from helpers.fakeclock import FakeClock
from tfjob_controller.api.common.core import (
    ContainerState,
    ContainerStatus,
    Pod,
    PodMeta,
    PodSpec,
    PodStatus,
    Running,
    Terminated,
)
from tfjob_controller.api.tfjob.status import TFJobStatus
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.controller.logs.progressreader import (
    MAX_POLLS_OF_NAMESPACE,
    PERIOD_SECONDS,
    RETENTION_SECONDS,
    ProgressReader,
)
from tfjob_controller.controller.snapshot import BY_RUNTIME, by_runtime_label
from tfjob_controller.jobs.state.observed import Reading
from tfjob_controller.kinds.tfjob.kind import polled_workers, tfjob_by_runtime_id
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.errors import ApiError

LABELS = {"runtime_id": "a6no", "job_type": "WORKER", "task_index": "0"}
RUNS = ContainerState(running=Running())
ENDED = ContainerState(terminated=Terminated(0))


class Kubelets(Answering):
    """Answers what pods have printed, and remembers who was asked. `slow_seconds`: how long an error takes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.logs: dict[str, str | ApiError] = {}
        self.asked: list[str] = []
        self.queries: list[Mapping[str, str]] = []
        self.slow_seconds = 0.0
        self._clock = clock

    def answer(self, request: Request) -> bytes:
        pod = request.path.removesuffix("/log").rpartition("/")[2]
        self.asked.append(pod)
        self.queries.append(request.query)
        found = self.logs[pod]
        if isinstance(found, ApiError):
            self._clock.advance(self.slow_seconds)
            raise found
        return found.encode()


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kubelets = Kubelets(self.clock)
        self.jobs: Store[TFJob] = Store({BY_RUNTIME: tfjob_by_runtime_id})
        self.pods: Store[Pod] = Store({BY_RUNTIME: by_runtime_label})
        self.told: list[str] = []
        self._versions = 0
        self.reader = ProgressReader(
            self.kubelets, partial(polled_workers, self.jobs, self.pods), self.told.append, self.clock
        )
        self.job()

    def job(self, pattern: str | None = "step ([^ ]+)", status: TFJobStatus | None = None) -> None:
        autoscaling: dict[str, Any] = {"maxWorkers": 4}
        if pattern is not None:
            autoscaling["progress"] = {"pattern": pattern}
        meta = {"name": "job", "namespace": "ns", "uid": "u-job", "resourceVersion": self._version()}
        spec = {"RuntimeId": "a6no", "replicaSpecs": [{"tfReplicaType": "WORKER"}], "autoscaling": autoscaling}
        job = msgspec.convert({"metadata": meta, "spec": spec}, TFJob)
        self.jobs.upsert(msgspec.structs.replace(job, status=status or TFJobStatus()))

    def pod(
        self, name: str, state: ContainerState = RUNS, *, deleted: bool = False, node: str = "", **labels: str
    ) -> None:
        meta = PodMeta(
            name=name,
            namespace="ns",
            uid=f"u-{name}",
            resource_version=self._version(),
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
            labels={**LABELS, **labels},
        )
        phase = "Succeeded" if state is ENDED else "Running"
        status = PodStatus(phase=phase, container_statuses=(ContainerStatus("tensorflow", state=state),))
        self.pods.upsert(Pod(meta, PodSpec(node_name=node), status))

    def _version(self) -> str:
        self._versions += 1
        return str(self._versions)

    def reads(self, pod: str) -> Reading:
        return self.reader.readings_of("u-job")[f"u-{pod}"]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_last_matching_line_counts_and_the_job_is_queued(bench: Bench) -> None:
    bench.pod("p")
    bench.kubelets.logs["p"] = "step 1 x\nstep 2 x\nloss 3\n"
    assert bench.reader.run_round()
    assert bench.reads("p") == Reading("worker-0", "2")
    assert bench.told == ["ns/job"]
    assert set(bench.kubelets.queries[0]) == {"container", "tailLines", "limitBytes"}


def test_a_log_without_new_values_notifies_nobody_and_the_last_values_stand(bench: Bench) -> None:
    bench.pod("p")
    bench.kubelets.logs["p"] = "step 1 x\n"
    bench.reader.run_round()
    bench.kubelets.logs["p"] = "loss 3\n"
    bench.clock.advance(PERIOD_SECONDS)
    bench.reader.run_round()
    assert bench.reads("p").text == "1"
    assert len(bench.told) == 1


def test_a_worker_that_goes_on_is_read_now_and_then(bench: Bench) -> None:
    bench.pod("p")
    bench.kubelets.logs["p"] = ""
    for _ in range(3):
        bench.reader.run_round()
    assert bench.kubelets.asked == ["p"]
    bench.clock.advance(PERIOD_SECONDS)
    bench.reader.run_round()
    assert bench.kubelets.asked == ["p", "p"]


def test_a_terminating_pods_log_is_read_in_each_round_and_an_ended_ones_once_more(bench: Bench) -> None:
    bench.kubelets.logs["p"] = "step 1 x"
    bench.pod("p", deleted=True)
    for _ in range(3):
        bench.reader.run_round()
    assert bench.kubelets.asked == ["p", "p", "p"]
    bench.kubelets.logs["p"] = "step 9 x"
    bench.pod("p", ENDED, deleted=True)
    for _ in range(3):
        bench.reader.run_round()
    assert len(bench.kubelets.asked) == 4
    assert bench.reads("p") == Reading("worker-0", "9", is_last=True)


@pytest.mark.parametrize(
    "labels", [{"job_type": "PS"}, {"job_type": "MASTER"}, {"runtime_id": "zzzz"}], ids=lambda each: str(each)
)
def test_only_workers_of_the_job_are_read(bench: Bench, labels: dict[str, str]) -> None:
    bench.pod("p", **labels)
    assert not bench.reader.run_round()
    assert bench.kubelets.asked == []


def test_a_pod_that_has_not_started_has_no_log(bench: Bench) -> None:
    bench.pods.upsert(Pod(PodMeta(name="p", namespace="ns", uid="u-p", resource_version="99", labels=LABELS)))
    bench.reader.run_round()
    assert bench.kubelets.asked == []


@pytest.mark.parametrize("over", [True, False])
def test_jobs_without_a_pattern_and_those_that_are_over_cost_nothing(bench: Bench, over: bool) -> None:
    bench.pod("p")
    bench.job(status=TFJobStatus(phase="Done")) if over else bench.job(None)
    assert not bench.reader.run_round()
    assert bench.kubelets.asked == []


def test_the_log_of_one_that_has_ended_is_given_up_after_some_tries(bench: Bench) -> None:
    bench.pod("p", ENDED)
    bench.kubelets.logs["p"] = ApiError(500, "InternalError", "no such container")
    for _ in range(9):
        bench.reader.run_round()
    assert len(bench.kubelets.asked) == 3
    assert bench.reads("p").is_last


def test_a_node_that_does_not_answer_is_left_alone_for_a_while(bench: Bench) -> None:
    bench.pod("p", deleted=True)
    bench.kubelets.logs["p"] = ApiError(504, "Timeout", "dial tcp: i/o timeout")
    bench.kubelets.slow_seconds = 5.0
    for _ in range(3):
        bench.reader.run_round()
    assert bench.kubelets.asked == ["p"]
    bench.clock.advance(60)
    bench.reader.run_round()
    assert bench.kubelets.asked == ["p", "p"]


@pytest.mark.parametrize("deleted", [False, True])
def test_only_one_log_is_requested_from_a_node_that_does_not_respond(bench: Bench, deleted: bool) -> None:
    for name in ("p", "q", "r"):
        bench.pod(name, deleted=deleted, node="dead")
        bench.kubelets.logs[name] = ApiError(504, "Timeout", "dial tcp: i/o timeout")
    bench.pod("z", deleted=deleted, node="other")
    bench.kubelets.logs["z"] = ApiError(404, "NotFound", "no such log")
    bench.kubelets.slow_seconds = 5.0
    bench.reader.run_round()
    assert sorted(bench.kubelets.asked)[1:] == ["z"]
    bench.clock.advance(60)
    bench.reader.run_round()
    assert len(bench.kubelets.asked) == 4


def test_an_ended_pod_on_a_dead_node_has_all_its_retries(bench: Bench) -> None:
    for name in ("p", "q"):
        bench.pod(name, ENDED, node="dead")
        bench.kubelets.logs[name] = ApiError(504, "Timeout", "dial tcp: i/o timeout")
    bench.kubelets.slow_seconds = 5.0
    bench.reader.run_round()
    assert sorted(bench.kubelets.asked) == ["p", "q"]


def test_what_was_read_of_a_pod_that_is_gone_is_kept_for_a_while(bench: Bench) -> None:
    bench.pod("p")
    bench.kubelets.logs["p"] = "step 7 x"
    bench.reader.run_round()
    bench.pods.replace([], 1000)
    bench.clock.advance(RETENTION_SECONDS / 2)
    bench.reader.run_round()
    assert bench.reads("p").text == "7"
    bench.clock.advance(RETENTION_SECONDS)
    bench.reader.run_round()
    assert bench.reader.readings_of("u-job") == {}


def test_a_round_polls_a_bounded_number_of_a_namespaces_workers_those_that_end_first(bench: Bench) -> None:
    for number in range(MAX_POLLS_OF_NAMESPACE + 50):
        bench.pod(f"p{number}")
        bench.kubelets.logs[f"p{number}"] = ""
    bench.pod("last", deleted=True)
    bench.kubelets.logs["last"] = "step 3 x"
    bench.reader.run_round()
    assert bench.kubelets.asked[0] == "last"
    assert len(bench.kubelets.asked) == MAX_POLLS_OF_NAMESPACE
    # The next round begins with those that this one has left.
    bench.reader.run_round()
    assert {f"p{number}" for number in range(MAX_POLLS_OF_NAMESPACE + 50)} <= {*bench.kubelets.asked}


def test_the_thread_looks_and_stops() -> None:
    bench = Bench()
    bench.reader.start()
    assert bench.reader.stop(30.0)
    assert bench.reader.restarts == 0
