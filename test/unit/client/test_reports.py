"""Whether the program that reported a status still runs, by its Lease, as far as the reader may know."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from helpers.memoryapi import MemoryApi
from tfjob_controller.client.reports import CONTROLLER, StatusReport, read_report, status_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STATUS_TIME, RECENT, OLD = "2026-01-01T11:50:00Z", "2026-01-01T11:59:50Z", "2026-01-01T11:48:00Z"
ODD_CLOCK = "2026-01-01T07:00:00.000000Z"


def lease(api: MemoryApi, namespace: str, time: str, duration: int = 15) -> None:
    """A Lease that its holder renewed at that time of the API server; the holder's own clock is hours late."""
    entries = [{"manager": "tfjob-controller", "time": moment} for moment in ("2026-01-01T11:00:00Z", time)]
    meta = {"name": CONTROLLER, "namespace": namespace, "managedFields": entries}
    spec = {"holderIdentity": "pod_1", "leaseDurationSeconds": duration, "renewTime": ODD_CLOCK}
    api.put(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {"metadata": meta, "spec": spec})


def ready_pod(api: MemoryApi) -> None:
    meta = {"name": "pod", "namespace": "dev", "labels": {"app": CONTROLLER}}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    api.put("/api/v1/namespaces/dev/pods", {"metadata": meta, "status": status})


def read(api: Any) -> StatusReport:
    return read_report(api, CONTROLLER, STATUS_TIME, NOW)


def test_a_program_runs_while_its_lease_is_renewed_whatever_its_own_clock_says() -> None:
    api = MemoryApi()
    lease(api, "tfjob-system", RECENT)
    assert read(api).state == "running"
    lease(api, "tfjob-system", OLD, duration=900)
    assert read(api).state == "running"


def test_a_program_whose_lease_is_no_longer_renewed_has_stopped() -> None:
    api = MemoryApi()
    lease(api, "tfjob-system", OLD)
    report = read(api)
    assert report.notice(NOW) == (
        "The controller stopped 12m ago; what it reported may no longer be true; "
        "check its Deployment: kubectl get deployment tfjob-controller -n tfjob-system"
    )
    assert report.origin(NOW) == "reported by the controller 10m ago"


def test_a_program_in_another_namespace_counts_for_users_who_may_list_leases() -> None:
    api = MemoryApi()
    lease(api, "tfjob-system", OLD)
    lease(api, "team", RECENT)
    assert read(api).state == "running"
    lease(api, "team", "2026-01-01T11:49:00Z")
    assert read(api).notice(NOW).endswith("kubectl get deployment tfjob-controller -n team")


def test_without_a_lease_a_ready_pod_shows_that_a_program_runs() -> None:
    api = MemoryApi()
    assert read(api).notice(NOW) == (
        "No Lease and no pod shows that the controller runs; "
        "check that it runs: kubectl get pods -A -l app=tfjob-controller"
    )
    ready_pod(api)
    assert read(api).state == "running"


@pytest.mark.parametrize("status", [403, 500])
def test_a_lease_that_cannot_be_read_claims_nothing(status: int) -> None:
    api = MemoryApi()
    api.fail(status, "Forbidden", times=3)
    report = read(api)
    assert (report.state, report.notice(NOW)) == ("unknown", "")
    assert report.origin(NOW) == "reported by the controller 10m ago"


def test_the_time_of_a_report_is_the_last_change_of_the_status_alone() -> None:
    entries = (
        b'{"manager":"kubectl","time":"2026-01-01T11:59:00Z","fieldsV1":{"f:spec":{}}},'
        b'{"manager":"tfjob-controller","time":"2026-01-01T11:50:00Z","fieldsV1":{"f:status":{}},"subresource":"status"}'
    )
    assert status_time(b'{"metadata":{"managedFields":[' + entries + b"]}}") == STATUS_TIME
    assert status_time(b'{"metadata":{}}') == ""
