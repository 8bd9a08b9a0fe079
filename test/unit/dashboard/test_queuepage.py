"""The page of the queue in a cluster without gang scheduling, and how often it reads who holds what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from helpers.answering import Request
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from helpers.poll import eventually
from tfjob_controller.api.gang import GANGS
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError

HOST = "127.0.0.1:8001"
JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/team/trainjobs"


class Cluster(MemoryApi):
    """Allows everything, and serves gangs only if `has_gangs`; `pod_lists` counts the lists of pods."""

    def __init__(self, *, has_gangs: bool) -> None:
        super().__init__()
        self.has_gangs = has_gangs
        self.pod_lists = 0
        self.put("/api/v1/namespaces", {"metadata": {"name": "team"}})

    def answer(self, request: Request) -> bytes:
        if request.path.endswith("/selfsubjectaccessreviews"):
            return b'{"status": {"allowed": true}}'
        if "/gangs" in request.path and not self.has_gangs:
            raise ApiError(404, "NotFound", "404 page not found")
        # Those of programs, which have a label, are few.
        self.pod_lists += request.path == "/api/v1/pods" and not request.query.get("labelSelector")
        return super().answer(request)


@contextmanager
def visit(api: MemoryApi, clock: FakeClock) -> Iterator[TestClient]:
    user = User("me", api, "team", "there", clock)
    app = create_app(Logins(link=OneTimeLink(user, "secret")), [HOST], clock, is_secure=False)
    with TestClient(app, base_url=f"http://{HOST}") as browser:
        browser.cookies.update(browser.get("/login?token=secret", follow_redirects=False).cookies)
        yield browser


def test_without_gang_scheduling_the_jobs_that_wait_for_their_pods_are_shown() -> None:
    api = Cluster(has_gangs=False)
    for name, status in (
        ("waits", {"summary": "Pending", "phase": "Creating", "reason": "no node"}),
        ("runs", {"summary": "Running", "phase": "Running"}),
    ):
        api.put(JOBS, {"metadata": {"name": name}, "spec": {}, "status": status})
    with visit(api, FakeClock()) as browser:
        eventually(lambda: "waits</a>" in browser.get("/queue?namespace=team").text)
        answer = browser.get("/queue?namespace=team")
    assert answer.status_code == 200
    assert "this cluster has no gang scheduling (no Gang kind is installed)" in answer.text
    assert "no node" in answer.text
    assert ">runs<" not in answer.text


def waiting() -> dict[str, Any]:
    lacks = [{"resource": "cpu", "requested": "4", "available": "1"}]
    status = {"phase": "Waiting", "position": 1, "message": "needs more", "missing": lacks}
    return {"metadata": {"name": "a", "namespace": "team"}, "spec": {"members": []}, "status": status}


def test_holders_are_read_again_only_after_ten_seconds_as_all_pods_are_listed_for_them() -> None:
    api, clock = Cluster(has_gangs=True), FakeClock()
    api.put(GANGS.path("team"), waiting())
    with visit(api, clock) as browser:
        for _ in range(4):
            assert "May start:" in browser.get("/queue?namespace=team").text
            clock.advance(2)
        assert api.pod_lists == 1
        clock.advance(3)
        browser.get("/queue?namespace=team")
    assert api.pod_lists == 2


def test_what_is_no_quantity_in_the_status_of_a_gang_is_shown_without_a_bar() -> None:
    api = Cluster(has_gangs=True)
    gang = waiting()
    gang["status"]["missing"].append({"resource": "<b>", "requested": "many", "available": "few"})
    api.put(GANGS.path("team"), gang)
    with visit(api, FakeClock()) as browser:
        answer = browser.get("/queue?namespace=team")
    assert answer.status_code == 200
    assert "few of many &lt;b&gt; usable" in answer.text
    assert 'aria-label="1 of 4 cpu usable"' in answer.text
    assert 'aria-label="few of many' not in answer.text


def test_a_queue_in_which_nobody_waits_does_not_list_pods() -> None:
    api = Cluster(has_gangs=True)
    api.put(GANGS.path("team"), {**waiting(), "status": {"phase": "Bound"}})
    with visit(api, FakeClock()) as browser:
        assert "No gang waits." in browser.get("/queue?namespace=team").text
    assert api.pod_lists == 0
