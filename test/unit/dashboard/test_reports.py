"""Pages show whether programs run by the Leases of the installation, and ages by the API server's clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from starlette.testclient import TestClient

from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from tfjob_controller.api.gang import GANGS
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.users import User

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOST = "127.0.0.1:8001"


@pytest.fixture
def api() -> MemoryApi:
    """An API server whose clock shows another year than this machine's, with a Lease and a Gang of 20 minutes ago."""
    api = MemoryApi()
    api.now = NOW
    old = "2026-01-01T11:40:00Z"
    changed = [{"manager": "gang-scheduler", "time": old, "fieldsV1": {"f:status": {}}}]
    lease = {"name": "gang-scheduler", "namespace": "team-x", "managedFields": changed}
    api.put("/apis/coordination.k8s.io/v1/namespaces/team-x/leases", {"metadata": lease, "spec": {}})
    meta = {"name": "big", "namespace": "team", "creationTimestamp": old, "managedFields": changed}
    status = {"phase": "Waiting", "position": 1, "message": "no room"}
    api.put(GANGS.path("team"), {"metadata": meta, "spec": {"members": []}, "status": status})
    return api


@contextmanager
def browser_of(api: MemoryApi, controller_namespace: str) -> Iterator[TestClient]:
    user = User("me", api, "team", "there", FakeClock(), controller_namespace=controller_namespace)
    app = create_app(Logins(link=OneTimeLink(user, "secret")), [HOST], FakeClock(), is_secure=False)
    with TestClient(app, base_url=f"http://{HOST}") as browser:
        browser.cookies.update(browser.get("/login?token=secret", follow_redirects=False).cookies)
        yield browser


def test_a_program_has_stopped_by_its_lease_in_the_namespace_of_the_installation(api: MemoryApi) -> None:
    with browser_of(api, "team-x") as browser:
        banner = browser.get("/reports").text
        queue = browser.get("/queue?namespace=team").text
    assert "The gang scheduler stopped 20m ago; its last report may be out of date" in banner
    assert "kubectl get deployment gang-scheduler -n team-x" in banner
    assert "1 waiting, 0 with capacity, reported by the gang scheduler 20m ago" in queue
    with browser_of(api, "tfjob-system") as browser:
        assert browser.get("/reports").text == ""


def test_ages_count_from_the_clock_of_the_api_server(api: MemoryApi) -> None:
    with browser_of(api, "tfjob-system") as browser:
        page = browser.get("/queue?namespace=team").text
    assert 'data-clock="2026-01-01T12:00:00.000+00:00"' in page
    assert '<time class="age" datetime="2026-01-01T11:40:00Z">20m</time>' in page
