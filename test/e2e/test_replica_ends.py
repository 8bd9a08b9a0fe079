"""How replicas end on real nodes, and what follows: sidecars, init containers, probes, drains, deletions, a reboot.

All jobs of test/data/cases are created at once and run side by side, and each rule waits for its own. They run on
node-1, except for those that lose their node, so that no other job notices this. The rules are subtests, because
pytest-xdist would spread tests over its workers, and each worker would run all jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from helpers.cluster import Cluster, pod_path
from helpers.controller import Jobs
from helpers.plugin import program
from helpers.poll import eventually
from localcluster import stack
from localcluster.api import Api
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.jobs.naming import TF_JOB_NAME, TRAIN_JOB_NAME
from tfjob_controller.jobs.state.restarts import BASE_SECONDS

pytestmark = pytest.mark.nodes

CASES = Path(__file__).resolve().parents[1] / "data" / "cases"
PATIENCE_SECONDS = 600.0
# How long a finished job is watched for new pods.
WATCHED_SECONDS = 20.0
POLL_SECONDS = 0.2

Object = dict[str, Any]


@dataclass(slots=True)
class PodRecord(AbstractContextManager["PodRecord"]):
    """All pods that a namespace has had, in their last state, and the replicas that ran in two pods at once."""

    api: Api
    namespace: str
    by_uid: dict[str, Object] = field(default_factory=dict)
    overlaps: set[tuple[str, str, str]] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._poll, name="pod-record", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        is_complete = self._thread is not None and self._thread.is_alive()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        assert is_complete, "the record ended before the test"

    def of_job(self, job: str) -> list[Object]:
        return [pod for pod in list(self.by_uid.values()) if replica_of(pod)[0] == job]

    def _poll(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            running: set[tuple[str, str, str]] = set()
            for pod in self.api.list(f"/api/v1/namespaces/{self.namespace}/pods"):
                self.by_uid[pod["metadata"]["uid"]] = pod
                if not is_running(pod):
                    continue
                replica = replica_of(pod)
                if replica in running:
                    self.overlaps.add(replica)
                running.add(replica)


def replica_of(pod: Object) -> tuple[str, str, str]:
    """Returns job, role and index."""
    labels = pod["metadata"]["labels"]
    index = labels.get("task_index") or labels.get(COMPLETION_INDEX_LABEL, "")
    return labels.get(TF_JOB_NAME) or labels.get(TRAIN_JOB_NAME, ""), labels["job_type"], index


def is_running(pod: Object) -> bool:
    """Reports whether any container of the pod runs."""
    status = pod.get("status", {})
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return any("running" in container.get("state", {}) for container in containers)


@dataclass(frozen=True, slots=True)
class Cases:
    """The running jobs of test/data/cases."""

    cluster: Cluster
    tfjobs: Jobs
    trainjobs: Jobs
    record: PodRecord

    def kind_of(self, job: str) -> Jobs:
        return self.trainjobs if job.endswith("-trainjob") else self.tfjobs

    def status(self, job: str) -> Object:
        return self.kind_of(job).status(job)

    def await_phase(self, phase: str, job: str) -> Object:
        return self.kind_of(job).await_phase(phase, job, PATIENCE_SECONDS)

    def await_restarts(self, job: str, count: int) -> Object:
        """Waits until the status has at least so many restarts; returns it."""

        def counted() -> Object | None:
            status = self.status(job)
            return status if status.get("restarts", 0) >= count else None

        return eventually(counted, PATIENCE_SECONDS, POLL_SECONDS) or {}

    def running(self, job: str, *roles: str) -> dict[tuple[str, str, str], Object]:
        """Returns the pods of the job that run and are not being deleted, by replica; of these roles if any."""
        pods = self.tfjobs.children("pods").values()
        return {
            replica_of(pod): pod
            for pod in pods
            if replica_of(pod)[0] == job
            and (not roles or replica_of(pod)[1] in roles)
            and is_running(pod)
            and "deletionTimestamp" not in pod["metadata"]
        }

    def await_running(self, job: str, count: int, *roles: str, besides: frozenset[str] = frozenset()) -> list[Object]:
        """Waits until so many pods of the job run that are not among `besides`; returns them."""

        def new_pods() -> list[Object]:
            pods = [pod for pod in self.running(job, *roles).values() if pod["metadata"]["uid"] not in besides]
            return pods if len(pods) == count else []

        return eventually(new_pods, PATIENCE_SECONDS, POLL_SECONDS)


@pytest.fixture
def cases(own_nodes: Cluster, space: str, jobs: Jobs) -> Iterator[Cases]:
    with PodRecord(own_nodes.api, space) as record:
        for path in sorted(CASES.glob("*.yaml")):
            for manifest in yaml.safe_load_all(path.read_text()):
                plural = manifest["kind"].lower() + "s"
                own_nodes.api.create(f"/apis/{manifest['apiVersion']}/namespaces/{space}/{plural}", manifest)
        yield Cases(own_nodes, jobs, Jobs(own_nodes.api, space, TRAINJOBS), record)


def uids(pods: list[Object]) -> frozenset[str]:
    return frozenset(pod["metadata"]["uid"] for pod in pods)


def the_next_pod_of_a_replica_starts_after_all_containers_of_the_last(
    cases: Cases, deleted: str, suspended: str
) -> None:
    """A worker's and a parameter server's pod are deleted; another job is suspended and resumed within their grace."""
    old = cases.await_running(deleted, 2, "WORKER", "PS")
    before = uids(old) | uids(cases.await_running(suspended, 3))
    for pod in old:
        cases.cluster.api.delete(pod_path(cases.tfjobs.namespace, pod["metadata"]["name"]))
    cases.tfjobs.change({"spec": {"suspend": True}}, suspended)
    eventually(lambda: not cases.running(suspended), PATIENCE_SECONDS, POLL_SECONDS)
    cases.tfjobs.change({"spec": {"suspend": False}}, suspended)
    cases.await_running(deleted, 2, "WORKER", "PS", besides=before)
    cases.await_running(suspended, 3, besides=before)
    assert not [replica for replica in cases.record.overlaps if replica[0] in (deleted, suspended)]
    status = cases.await_restarts(deleted, 2)
    assert (status["disruptions"], status["restartCounts"]) == (2, {"worker-0": 1, "ps-0": 1})
    assert cases.status(suspended).get("restarts", 0) == 0


def a_drain_counts_each_of_its_pods_once_and_no_limit_applies_to_it(cases: Cases, job: str) -> None:
    workers = cases.await_running(job, 6, "WORKER")
    assert {pod["spec"]["nodeName"] for pod in workers} == {"node-2"}
    cases.cluster.api.patch("/api/v1/nodes/node-2", {"spec": {"unschedulable": True}})
    try:
        for pod in workers:
            evict(cases, pod["metadata"]["name"])
        cases.await_running(job, 6, "WORKER", besides=uids(workers))
    finally:
        cases.cluster.api.patch("/api/v1/nodes/node-2", {"spec": {"unschedulable": None}})
    status = cases.await_restarts(job, 6)
    assert (status["restarts"], status["disruptions"]) == (6, 6)
    assert status["restartCounts"] == {f"worker-{index}": 1 for index in range(6)}
    assert status["phase"] == "Running"
    assert not [replica for replica in cases.record.overlaps if replica[0] == job]


def evict(cases: Cases, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    cases.cluster.api.create(f"{pod_path(cases.tfjobs.namespace, pod)}/eviction", body)


def a_node_that_restarts_within_seconds_costs_its_replicas_one_restart(cases: Cases, chief: str, worker: str) -> None:
    jobs = {chief: "MASTER", worker: "WORKER"}
    old = uids([pod for job, role in jobs.items() for pod in cases.await_running(job, 1, role)])
    stack.node_kill(cases.cluster.folder, 2)
    stack.node_start(cases.cluster.folder, 2)
    for job, role in jobs.items():
        cases.await_running(job, 1, role, besides=old)
        status = cases.await_restarts(job, 1)
        assert (status["phase"], status["restarts"], status["disruptions"]) == ("Running", 1, 1)


def a_chief_that_a_probe_ends_is_restarted_within_the_limit(cases: Cases, job: str) -> None:
    status = cases.await_phase("Failed", job)
    limit = "BackoffLimitExceeded: 2 restarts of replicas, backoffLimit is 1"
    assert status["reason"] == f"{limit}; master-0 failed: exit code 137"
    assert status.get("disruptions", 0) == 0
    assert len(cases.record.of_job(job)) == 2


def a_failed_init_container_fails_the_job_with_its_name_code_and_last_line(cases: Cases, job: str) -> None:
    status = cases.await_phase("Failed", job)
    assert status["reason"] == "master-0 failed: fetch: exit code 1: no such dataset"
    assert status.get("restarts", 0) == 0


def a_native_sidecar_that_ends_by_a_signal_does_not_hide_a_failed_init_container(cases: Cases, job: str) -> None:
    status = cases.await_phase("Failed", job)
    assert status["reason"].endswith("failed: fetch: exit code 1: no such dataset")
    assert status.get("restarts", 0) == 0


def a_job_succeeds_although_its_sidecar_has_failed(cases: Cases, job: str) -> None:
    status = cases.await_phase("Done", job)
    assert status.get("restarts", 0) == 0
    ran = [replica_of(pod) for pod in cases.record.of_job(job)]
    assert len(ran) == len(set(ran)), "a program that had succeeded ran again"


def a_killed_worker_is_restarted_with_back_off_although_its_sidecar_runs(cases: Cases, job: str) -> None:
    workers = eventually(lambda: at_least_three(cases.record.of_job(job)), PATIENCE_SECONDS, POLL_SECONDS)
    second, third = (datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in workers[1:3])
    assert (third - second).total_seconds() >= BASE_SECONDS
    status = cases.status(job)
    assert (status["phase"], status.get("disruptions", 0)) == ("Running", 0)
    assert not [replica for replica in cases.record.overlaps if replica[0] == job]


def at_least_three(pods: list[Object]) -> list[Object]:
    """Returns the pods of workers, the oldest first, once there are three."""
    workers = [pod for pod in pods if replica_of(pod)[1] == "WORKER"]
    return sorted(workers, key=lambda pod: str(pod["metadata"]["creationTimestamp"])) if len(workers) >= 3 else []


def a_pod_that_its_kubelet_rejects_is_replaced_with_back_off_and_no_limit_applies_to_it(cases: Cases, job: str) -> None:
    workers = eventually(lambda: at_least_three(cases.record.of_job(job)), PATIENCE_SECONDS, POLL_SECONDS)
    second, third = (datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in workers[1:3])
    assert (third - second).total_seconds() >= BASE_SECONDS
    status = cases.status(job)
    assert (status["phase"], status["restarts"]) == ("Running", status["disruptions"])
    assert status["reason"].startswith("worker-0: NodeAffinity: Pod was rejected: ")


def an_eviction_for_the_pods_own_limits_counts_once(cases: Cases, job: str) -> None:
    for index in "0123":
        replica = (job, "WORKER", index)

        def is_counted(replica: tuple[str, str, str] = replica) -> bool:
            counts = cases.status(job).get("restartCounts") or {}
            pods = [pod for pod in cases.record.of_job(job) if replica_of(pod) == replica]
            return len(pods) == 1 + counts.get(f"worker-{replica[2]}", 0) > 1 and sum(map(is_running, pods)) == 1

        eventually(is_counted, PATIENCE_SECONDS, POLL_SECONDS)


def a_success_runs_once_whatever_its_sidecar_asks_for(cases: Cases, job: str) -> None:
    assert cases.await_phase("Done", job)["state"] == "Succeeded"
    no_pod_is_created_after_the_end_of_a_job(cases, job)
    (pod,) = cases.record.of_job(job)
    counts = {each["name"]: each["restartCount"] for each in pod["status"]["containerStatuses"]}
    assert counts["side"] > counts["tensorflow"] == 0


def no_program_starts_after_the_end_of_a_job_that_keeps_its_pods(cases: Cases, job: str) -> None:
    no_pod_is_created_after_the_end_of_a_job(cases, job)
    (worker,) = [pod for pod in cases.record.of_job(job) if replica_of(pod)[1] == "WORKER"]
    assert not [each for each in worker["status"]["containerStatuses"] if "waiting" not in each["state"]]
    # Its init container would run for minutes, and its program start then.
    eventually(lambda: not cases.running(job, "WORKER"), PATIENCE_SECONDS, POLL_SECONDS)


def the_reason_names_the_error_of_a_parameter_server_between_its_pods(cases: Cases, job: str) -> None:
    cases.await_restarts(job, 2)
    error = "ps-0: exit code 1: no module named tensorflow"
    eventually(lambda: error in cases.status(job).get("reason", ""), PATIENCE_SECONDS, POLL_SECONDS)


def an_overridden_variable_keeps_its_place_so_that_later_ones_can_refer_to_it(cases: Cases, job: str) -> None:
    cases.await_phase("Done", job)


def a_replica_that_waits_for_a_missing_secret_says_so(cases: Cases, job: str) -> None:
    def says_so() -> bool:
        reason = str(cases.status(job).get("reason", ""))
        return reason.startswith("master-0: FailedMount: ") and 'secret "keys" not found' in reason

    eventually(says_so, PATIENCE_SECONDS, POLL_SECONDS)


def a_replica_that_waits_for_another_container_names_it(cases: Cases, job: str, reason: str) -> None:
    eventually(lambda: reason in str(cases.status(job).get("reason", "")), PATIENCE_SECONDS, POLL_SECONDS)


def the_log_of_another_container_is_read_by_its_name(cases: Cases, job: str, container: str, line: str) -> None:
    """An init container that still runs, and a sidecar."""

    def is_printed() -> bool:
        where = ("-n", cases.tfjobs.namespace, "--kubeconfig", str(cases.cluster.kubeconfig))
        with program("logs", job, "-c", container, *where) as printing:
            return printing.communicate()[0] == f"{line}\n"

    eventually(is_printed, PATIENCE_SECONDS)


def an_override_of_what_does_not_exist_is_refused_by_its_name(cases: Cases, job: str, name: str) -> None:
    status = cases.await_phase("Failed", job)
    assert name in status["reason"]
    assert not cases.record.of_job(job)


def no_pod_is_created_after_the_end_of_a_job(cases: Cases, job: str) -> None:
    ended = eventually(lambda: str(cases.status(job).get("completionTime", "")), PATIENCE_SECONDS)
    until = datetime.fromisoformat(ended) + timedelta(seconds=WATCHED_SECONDS)
    eventually(lambda: datetime.now(UTC) > until, PATIENCE_SECONDS, POLL_SECONDS)
    created = [pod["metadata"]["creationTimestamp"] for pod in cases.record.of_job(job)]
    assert created
    assert not [moment for moment in created if moment > ended]


ENDED = (
    "init-fails",
    "init-fails-default",
    "native-sidecar-trainjob",
    "sidecar-fails-tfjob",
    "sidecar-fails-trainjob",
    "liveness-probe",
)
# In an order in which all wait as little as possible. Nothing else of node-2 is left when it is killed.
RULES: Sequence[tuple[Callable[..., None], tuple[str, ...]]] = (
    (the_next_pod_of_a_replica_starts_after_all_containers_of_the_last, ("deleted", "suspended")),
    (a_drain_counts_each_of_its_pods_once_and_no_limit_applies_to_it, ("drained",)),
    (a_node_that_restarts_within_seconds_costs_its_replicas_one_restart, ("reboot-chief", "reboot-worker")),
    (a_failed_init_container_fails_the_job_with_its_name_code_and_last_line, ("init-fails",)),
    (a_failed_init_container_fails_the_job_with_its_name_code_and_last_line, ("init-fails-default",)),
    (a_native_sidecar_that_ends_by_a_signal_does_not_hide_a_failed_init_container, ("native-sidecar-trainjob",)),
    (a_job_succeeds_although_its_sidecar_has_failed, ("sidecar-fails-tfjob",)),
    (a_job_succeeds_although_its_sidecar_has_failed, ("sidecar-fails-trainjob",)),
    (a_killed_worker_is_restarted_with_back_off_although_its_sidecar_runs, ("sidecar-runs-on",)),
    (a_pod_that_its_kubelet_rejects_is_replaced_with_back_off_and_no_limit_applies_to_it, ("rejected",)),
    (an_eviction_for_the_pods_own_limits_counts_once, ("size-limit",)),
    (the_reason_names_the_error_of_a_parameter_server_between_its_pods, ("parameter-server-fails",)),
    (an_overridden_variable_keeps_its_place_so_that_later_ones_can_refer_to_it, ("env-order-trainjob",)),
    (a_replica_that_waits_for_a_missing_secret_says_so, ("missing-secret",)),
    (
        a_replica_that_waits_for_another_container_names_it,
        ("slow-init", "master-0: init container fetch is still running"),
    ),
    (
        a_replica_that_waits_for_another_container_names_it,
        ("slow-sidecar", "master-0: Unhealthy: Startup probe failed: no upstream"),
    ),
    (the_log_of_another_container_is_read_by_its_name, ("slow-init", "fetch", "fetching")),
    (the_log_of_another_container_is_read_by_its_name, ("slow-sidecar", "mesh", "connecting")),
    (
        an_override_of_what_does_not_exist_is_refused_by_its_name,
        ("missing-target-trainjob", "spec.podSpecOverrides[0].containers[0].name"),
    ),
    (a_chief_that_a_probe_ends_is_restarted_within_the_limit, ("liveness-probe",)),
    (a_success_runs_once_whatever_its_sidecar_asks_for, ("restart-all",)),
    (no_program_starts_after_the_end_of_a_job_that_keeps_its_pods, ("none-starts-nothing",)),
    *((no_pod_is_created_after_the_end_of_a_job, (job,)) for job in ENDED),
)


def test_every_replica_ends_by_the_rules(cases: Cases, subtests: pytest.Subtests) -> None:
    for rule, names in RULES:
        with subtests.test(rule.__name__.replace("_", " "), jobs=names):
            rule(cases, *names)
