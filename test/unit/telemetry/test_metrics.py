"""The rules of telemetry/metrics.py, as a scraper sees them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tfjob_controller.jobs.trainingjob import RoleStatus, Scaling, TrainingJob, TrainingStatus
from tfjob_controller.kube.cache.informer import HandlerStatistics, InformerStatistics
from tfjob_controller.kube.cache.reflector import ReflectorStatistics
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.telemetry.jobmetrics import JobSeries
from tfjob_controller.telemetry.metrics import Metrics

TFJOBS = JobSeries("tfjob", counts_workers=True, replica_type=str.upper)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.2.3", [TFJOBS])


def value(metrics: Metrics, series: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(series, labels)


def job(namespace: str, phase: str, state: str, **replicas: dict[str, int]) -> TrainingJob:
    statuses = tuple(RoleStatus(role, states) for role, states in replicas.items())
    return TrainingJob(ObjectMeta(name="n", namespace=namespace), TrainingStatus(phase, state, roles=statuses))


def test_requests_are_counted_by_code_method_and_host(metrics: Metrics) -> None:
    metrics.requests.request_finished("POST", "api:443", "201", 0.2)
    metrics.requests.request_finished("POST", "api:443", "<error>", 0.1)
    metrics.requests.request_retried("GET", "api:443", "503")
    metrics.requests.rate_limited("POST", "api:443", 0.0)
    assert value(metrics, "rest_client_requests_total", code="201", method="POST", host="api:443") == 1
    assert value(metrics, "rest_client_requests_total", code="<error>", method="POST", host="api:443") == 1
    assert value(metrics, "rest_client_request_retries_total", code="503", verb="GET", host="api:443") == 1
    assert value(metrics, "rest_client_request_duration_seconds_count", verb="POST", host="api:443") == 2
    assert value(metrics, "rest_client_rate_limiter_duration_seconds_count", verb="POST", host="api:443") == 1


@pytest.mark.parametrize(
    ("result", "shown_as", "errors", "terminal"),
    [
        pytest.param("success", "success", 0, 0, id="success"),
        pytest.param("requeue", "requeue", 0, 0, id="passing obstacle"),
        pytest.param("error", "error", 1, 0, id="error"),
        pytest.param("terminal", "error", 1, 1, id="given up"),
        pytest.param("panic", "error", 1, 0, id="bug"),
    ],
)
def test_syncs_are_counted_by_result(metrics: Metrics, result: str, shown_as: str, errors: int, terminal: int) -> None:
    metrics.syncs.workers_started("tfjob", 4)
    metrics.syncs.sync_started("tfjob")
    assert value(metrics, "controller_runtime_active_workers", controller="tfjob") == 1
    metrics.syncs.sync_finished("tfjob", result, 0.002)
    assert value(metrics, "controller_runtime_active_workers", controller="tfjob") == 0
    assert value(metrics, "controller_runtime_max_concurrent_reconciles", controller="tfjob") == 4
    assert value(metrics, "controller_runtime_reconcile_total", controller="tfjob", result=shown_as) == 1
    assert value(metrics, "controller_runtime_reconcile_errors_total", controller="tfjob") == errors
    assert value(metrics, "controller_runtime_terminal_reconcile_errors_total", controller="tfjob") == terminal
    assert value(metrics, "controller_runtime_reconcile_panics_total", controller="tfjob") == (result == "panic")
    assert value(metrics, "controller_runtime_reconcile_time_seconds_count", controller="tfjob") == 1


def test_jobs_and_replicas_are_counted_in_the_cache_at_the_scrape(metrics: Metrics) -> None:
    jobs = [
        job("a", "Running", "Running", worker={"Running": 2, "Succeeded": 1}),
        job("a", "Running", "Running", worker={"Running": 1}),
        job("b", "Done", "Succeeded"),
    ]
    metrics.collect_jobs(lambda series: jobs)
    assert value(metrics, "tfjob_jobs", namespace="a", phase="Running", state="Running") == 2
    assert value(metrics, "tfjob_jobs", namespace="b", phase="Done", state="Succeeded") == 1
    assert value(metrics, "tfjob_replicas", namespace="a", type="WORKER", state="Running") == 3
    jobs.clear()
    assert value(metrics, "tfjob_jobs", namespace="b", phase="Done", state="Succeeded") is None


def test_workers_are_counted_of_jobs_that_go_on(metrics: Metrics) -> None:
    jobs = [job("a", "Running", "Running"), job("a", "Running", "Running"), job("a", "Done", "Succeeded")]
    times = (None, None, "2026-01-01T00:00:00Z")
    metrics.collect_jobs(
        lambda series: [
            replace(
                each,
                status=replace(each.status, scaling=Scaling(replicas=4), scaled_replicas=3, completion_time=completed),
            )
            for each, completed in zip(jobs, times, strict=True)
        ]
    )
    assert value(metrics, "tfjob_workers_desired", namespace="a") == 8
    assert value(metrics, "tfjob_workers_actual", namespace="a") == 6


def test_starts_restarts_and_ends_of_jobs_are_counted(metrics: Metrics) -> None:
    metrics.jobs[TFJOBS].job_created("TFJob", "a")
    metrics.jobs[TFJOBS].job_running(3.0)
    metrics.jobs[TFJOBS].job_restarted("TFJob", "a", 2)
    metrics.jobs[TFJOBS].job_preempted()
    metrics.jobs[TFJOBS].job_resized("down", "autoscaler")
    metrics.jobs[TFJOBS].job_finished("TFJob", "a", "Succeeded", 60.0)
    metrics.jobs[TFJOBS].job_finished("TFJob", "a", "Failed", None)
    assert value(metrics, "tfjob_created_total") == 1
    assert value(metrics, "tfjob_time_to_running_seconds_sum") == 3.0
    assert value(metrics, "tfjob_restarts_total") == 2
    assert value(metrics, "tfjob_preemptions_total") == 1
    assert value(metrics, "tfjob_resizes_total", direction="down", reason="autoscaler") == 1
    assert value(metrics, "tfjob_resizes_total", direction="up", reason="spec") == 0
    assert value(metrics, "tfjob_finished_total", state="Succeeded") == 1
    assert value(metrics, "tfjob_finished_total", state="Failed") == 1
    assert value(metrics, "tfjob_duration_seconds_count") == 1


def test_the_lease_s_holder_shows_1(metrics: Metrics) -> None:
    metrics.leadership.on("tfjob-controller")
    assert value(metrics, "leader_election_master_status", name="tfjob-controller") == 1
    metrics.leadership.off("tfjob-controller")
    assert value(metrics, "leader_election_master_status", name="tfjob-controller") == 0


def test_informers_and_threads_show_themselves(metrics: Metrics) -> None:
    reflector = ReflectorStatistics(
        mode="watch",
        last_resource_version=7,
        last_error="",
        lists=1,
        list_pages=3,
        streaming_lists=1,
        watches=4,
        events=9,
        bookmarks=2,
        expired=1,
        failures=5,
        undecodable=0,
    )
    handler = HandlerStatistics("h", pending=3, delivered=1, failures=1, has_synced=True, thread_restarts=0)
    metrics.collect_informers(lambda: {"pods": InformerStatistics(12, 7, True, 0, reflector, (handler,))})
    metrics.collect_thread_restarts(lambda: {"worker-0": 2})
    assert value(metrics, "informer_objects", name="pods") == 12
    assert value(metrics, "informer_synced", name="pods") == 1
    assert value(metrics, "informer_pending_notifications", name="pods") == 3
    assert value(metrics, "reflector_lists_total", name="pods") == 2
    assert value(metrics, "reflector_watches_total", name="pods") == 4
    assert value(metrics, "reflector_connected", name="pods") == 1
    assert value(metrics, "tfjob_controller_thread_restarts_total", thread="worker-0") == 2


def test_the_most_restarts_of_an_unfinished_job_are_shown_by_namespace(metrics: Metrics) -> None:
    def restarted(namespace: str, restarts: int, completion_time: str | None = None) -> TrainingJob:
        status = TrainingStatus("Running", restarts=restarts, completion_time=completion_time)
        return TrainingJob(ObjectMeta(name="n", namespace=namespace), status)

    jobs = [restarted("a", 2), restarted("a", 5), restarted("a", 9, "2026-01-01T00:00:00Z"), restarted("b", 0)]
    metrics.collect_jobs(lambda series: jobs)
    assert value(metrics, "tfjob_restarts_max", namespace="a") == 5
    assert value(metrics, "tfjob_restarts_max", namespace="b") == 0


def test_the_gang_scheduler_shows_no_series_of_jobs_syncs_and_queues() -> None:
    names = {family.name for family in Metrics("1.2.3", [TFJOBS], of_controller=False).registry.collect()}
    assert {"rest_client_requests", "tfjob_controller_build_info"} <= names
    assert not [name for name in names if name.startswith(("tfjob_created", "trainjob_", "workqueue_", "controller_"))]


def test_no_label_is_called_after_a_job_or_pod(metrics: Metrics) -> None:
    metrics.collect_jobs(lambda series: [job("a", "Running", "Running", WORKER={"Running": 2})])
    labels = {label for family in metrics.registry.collect() for sample in family.samples for label in sample.labels}
    assert labels.isdisjoint({"job", "pod", "key", "uid", "tfjob"})


def test_the_exposition_is_text_that_names_its_version_and_has_no_second_series_of_times(metrics: Metrics) -> None:
    metrics.jobs[TFJOBS].job_created("TFJob", "a")
    content_type, body = metrics.exposition("text/plain")
    assert content_type.startswith("text/plain")
    assert b'tfjob_controller_build_info{version="1.2.3"} 1.0' in body
    assert b"tfjob_created_created" not in body
