"""Whether the program that reported a status still runs, by its Lease, as far as the reader may know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from helpers.memoryapi import MemoryApi
from tfjob_controller.client.statusreports import CONTROLLER, StatusReport, read_report, status_time
from tfjob_controller.kube import requester
from tfjob_controller.kube.requester import server_now

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STATUS_TIME, RECENT, OLD = "2026-01-01T11:40:00Z", "2026-01-01T11:59:50Z", "2026-01-01T11:48:00Z"
ODD_CLOCK = "2026-01-01T07:00:00.000000Z"


@pytest.fixture
def api() -> MemoryApi:
    """An API server whose clock shows noon, as the responses say."""
    api = MemoryApi()
    api.now = NOW
    return api


def lease(api: MemoryApi, namespace: str, time: str, duration: int = 15) -> None:
    """A Lease that its holder renewed at that time of the API server; the holder's own clock is hours late."""
    entries = [{"manager": "tfjob-controller", "time": moment} for moment in ("2026-01-01T11:00:00Z", time)]
    meta = {"name": CONTROLLER, "namespace": namespace, "managedFields": entries}
    spec = {"holderIdentity": "pod_1", "leaseDurationSeconds": duration, "renewTime": ODD_CLOCK}
    api.put(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {"metadata": meta, "spec": spec})


def ready_pod(api: MemoryApi, namespace: str) -> None:
    meta = {"name": "pod", "namespace": namespace, "labels": {"app": CONTROLLER}}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    api.put(f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "status": status})


def read(api: MemoryApi, time: str = STATUS_TIME, namespace: str = "tfjob-system") -> StatusReport:
    return read_report(api, CONTROLLER, time, namespace)


def test_a_program_runs_while_its_lease_is_renewed_whatever_its_own_clock_says(api: MemoryApi) -> None:
    lease(api, "tfjob-system", RECENT)
    assert read(api).state == "running"
    lease(api, "tfjob-system", OLD, duration=900)
    assert read(api).state == "running"


def test_a_program_whose_lease_is_no_longer_renewed_has_stopped(api: MemoryApi) -> None:
    lease(api, "tfjob-system", OLD)
    report = read(api)
    assert report.notice(NOW) == (
        "The controller stopped 12m ago; its last report may be out of date; "
        "check its Deployment: kubectl get deployment tfjob-controller -n tfjob-system"
    )
    assert report.origin(NOW) == "reported by the controller 20m ago"


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_the_clock_of_the_api_server_decides_and_not_that_of_the_reader(
    api: MemoryApi, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    class ReadersClock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> ReadersClock:
            return cls.fromtimestamp((NOW + timedelta(hours=hours)).timestamp(), tz)

    monkeypatch.setattr(requester, "datetime", ReadersClock)
    lease(api, "tfjob-system", RECENT)
    assert read(api).state == "running"
    lease(api, "tfjob-system", OLD)
    assert read(api).stop(server_now(api)) == "the controller stopped 12m ago"


def test_without_the_time_of_the_api_server_no_lease_has_expired(api: MemoryApi) -> None:
    api.now = None
    lease(api, "tfjob-system", OLD)
    assert read(api).state == "unknown"


def test_a_status_written_after_the_lease_expired_shows_that_the_lease_is_a_leftover(api: MemoryApi) -> None:
    lease(api, "tfjob-system", OLD)
    assert read(api, "2026-01-01T11:48:59Z").state == "stopped"
    report = read(api, "2026-01-01T11:50:00Z")
    assert (report.state, report.notice(NOW)) == ("unknown", "")
    assert report.origin(NOW) == "reported by the controller 10m ago"


def test_a_ready_pod_of_the_installation_shows_that_the_lease_is_a_leftover(api: MemoryApi) -> None:
    lease(api, "tfjob-system", OLD)
    ready_pod(api, "team")
    assert read(api).state == "stopped"
    assert read(api, time="").state == "unknown", "without a status, the installation may be that of the pod"
    ready_pod(api, "tfjob-system")
    assert read(api).state == "unknown"


def test_a_user_who_may_not_list_pods_is_told_what_the_lease_shows(api: MemoryApi) -> None:
    lease(api, "tfjob-system", OLD)
    api.fail(403, "Forbidden", part="/pods")
    assert read(api).state == "stopped"


def test_a_lease_that_a_tenant_can_write_shows_nothing(api: MemoryApi) -> None:
    lease(api, "tfjob-system", OLD)
    lease(api, "team", RECENT)
    assert read(api).state == "stopped"
    assert read(api, namespace="team").state == "running"
    assert read(api, namespace="elsewhere").state == "no lease"


def test_without_a_lease_a_ready_pod_of_the_installation_shows_that_a_program_runs(api: MemoryApi) -> None:
    assert read(api).notice(NOW) == (
        "No Lease and no pod shows that the controller runs; "
        "check that it runs: kubectl get pods -A -l app=tfjob-controller"
    )
    ready_pod(api, "tfjob-system")
    assert read(api).state == "running"


def test_whether_an_installation_in_another_namespace_runs_is_unknown(api: MemoryApi) -> None:
    ready_pod(api, "team")
    report = read(api)
    assert (report.state, report.notice(NOW)) == ("unknown", "")


@pytest.mark.parametrize("status", [403, 500])
def test_a_lease_that_cannot_be_read_claims_nothing(api: MemoryApi, status: int) -> None:
    api.fail(status, "Forbidden", times=3)
    report = read(api)
    assert (report.state, report.notice(NOW)) == ("unknown", "")
    assert report.origin(NOW) == "reported by the controller 20m ago"


def test_the_time_of_a_report_is_the_last_change_of_the_status_alone() -> None:
    entries = (
        b'{"manager":"kubectl","time":"2026-01-01T11:59:00Z","fieldsV1":{"f:spec":{}}},'
        b'{"manager":"tfjob-controller","time":"2026-01-01T11:40:00Z","fieldsV1":{"f:status":{}},"subresource":"status"}'
    )
    assert status_time(b'{"metadata":{"managedFields":[' + entries + b"]}}") == STATUS_TIME
    assert status_time(b'{"metadata":{}}') == ""
