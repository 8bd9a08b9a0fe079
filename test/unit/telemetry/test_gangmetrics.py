"""The gang scheduler's series: what is counted, and that no name is a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from tfjob_controller.api.gang import Gang, GangMeta, GangStatus
from tfjob_controller.gangscheduler.status.writer import FAILED, StatusChange
from tfjob_controller.telemetry.gangmetrics import GangMetrics, Underway


def gang(phase: str, *, queued_time: str | None = None, admitted_time: str | None = None) -> Gang:
    status = GangStatus(phase=phase, queued_time=queued_time, admitted_time=admitted_time)
    return Gang(GangMeta(name="secret-name", namespace="team"), status=status)


def scraped(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_gangs_are_shown_by_phase_and_what_is_reserved_by_resource() -> None:
    registry = CollectorRegistry()
    GangMetrics(registry).collect(lambda: [gang("Bound"), gang("Bound"), gang("")], lambda: {"cpu": 1500})
    text = scraped(registry)
    assert 'gang_gangs{phase="Bound"} 2.0' in text
    assert 'gang_gangs{phase="Waiting"} 1.0' in text
    assert 'gang_reserved_amount{resource="cpu"} 1500.0' in text
    assert "secret-name" not in text


def test_the_share_of_the_nodes_that_is_used_is_shown_by_resource() -> None:
    registry = CollectorRegistry()
    GangMetrics(registry).collect(list, dict, lambda: {"cpu": 0.75})
    assert 'gang_cluster_used_ratio{resource="cpu"} 0.75' in scraped(registry)


def test_resize_requests_for_other_sizes_are_counted_by_direction() -> None:
    registry = CollectorRegistry()
    metrics = GangMetrics(registry)
    for result in (
        StatusChange.SHRINK_REQUESTED,
        StatusChange.SHRINK_REQUESTED,
        StatusChange.GROW_REQUESTED,
        StatusChange.REQUEST_WITHDRAWN,
        StatusChange.RESIZED,
    ):
        metrics.written(result, gang("Bound"))
    text = scraped(registry)
    assert 'gang_resize_requests_total{direction="shrink"} 2.0' in text
    assert 'gang_resize_requests_total{direction="grow"} 1.0' in text


def test_an_admission_is_counted_with_the_time_that_the_gang_has_waited() -> None:
    registry = CollectorRegistry()
    metrics = GangMetrics(registry)
    since, then = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.500000Z"
    metrics.written("admitted", gang("Admitted", queued_time=since, admitted_time=then))
    metrics.written("waiting", gang("Waiting"))
    text = scraped(registry)
    assert 'gang_status_writes_total{result="admitted"} 1.0' in text
    assert "gang_waiting_seconds_sum 2.5" in text


def test_calls_and_bindings_are_counted_by_how_they_ended() -> None:
    registry = CollectorRegistry()
    metrics = GangMetrics(registry)
    metrics.answered("filter", False, 0.001)
    metrics.answered("bind", True, 0.2)
    metrics.binding_ended("bound", 0.01)
    text = scraped(registry)
    assert "gang_extender_filter_duration_seconds_count 1.0" in text
    assert 'gang_extender_errors_total{verb="bind"} 1.0' in text
    assert 'gang_bindings_total{result="bound"} 1.0' in text


def test_what_is_on_its_way_is_shown_by_a_replica_that_decides_and_by_no_other() -> None:
    registry = CollectorRegistry()
    metrics: list[Underway | None] = []
    GangMetrics(registry).collect_underway(lambda: metrics[0])
    metrics[:] = [Underway([("yes", 3.0), ("yes", 7.0), ("no", 90.0)], [4.0, 12.0])]
    text = scraped(registry)
    assert 'gang_queue_length{fits="yes"} 2.0' in text
    assert 'gang_queue_longest_wait_seconds{fits="yes"} 7.0' in text
    assert 'gang_queue_longest_wait_seconds{fits="unknown"} 0.0' in text
    assert "gang_partly_bound 2.0" in text
    assert "gang_partly_bound_longest_seconds 12.0" in text
    metrics[:] = [None]
    assert "gang_queue_length{" not in scraped(registry)


def test_results_of_writes_and_bindings_are_counted_from_nought_on() -> None:
    registry = CollectorRegistry()
    GangMetrics(registry)
    text = scraped(registry)
    for result in (*StatusChange, FAILED):
        assert f'gang_status_writes_total{{result="{result}"}} 0.0' in text
    assert 'gang_bindings_total{result="refused"} 0.0' in text
