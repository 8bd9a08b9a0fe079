"""Tests of lab.owners: retries after a failed request, and what an owner does when it is asked to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from helpers.httpserver import Answer, HttpServer, Request
from helpers.poll import eventually
from lab.owners import Owners, gang_plan
from localcluster.api import INITIAL_EVENTS_END, Api

PREFIX = "scheduling.kubeflow.org"
LISTED = {"resourceVersion": "1", "annotations": {INITIAL_EVENTS_END: "true"}}
PLAN = replace(
    gang_plan(0, Random(1)),
    name="g",
    members={"worker": 2},
    min_members={"worker": 1},
    max_members={"worker": 4},
    cpu="1",
    priority=0,
    withheld=0,
    suspend_after=None,
    leave_seconds=0.0,
)
WORKERS = ["worker-0", "worker-1"]


class Server:
    """Watches show one gang and two pods of it. It rejects the first PATCH, and accepts all other requests.

    The pods appear once the gang is known: the owner deletes pods without a gang.
    """

    def __init__(self) -> None:
        self.is_gang_known: Callable[[], bool] = bool
        self.patches: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.status: dict[str, Any] = {}
        self.spec: dict[str, Any] = {"members": [{"name": "worker", "count": 2}]}
        self.watches = 0

    def respond(self, request: Request) -> Answer:
        if request.method == "GET":
            self.watches += 1
            objects = [self._gang()]
            if request.path.endswith("/pods"):
                objects = self._pods() if self.is_gang_known() else []
            events = [{"type": "ADDED", "object": each} for each in objects]
            events.append({"type": "BOOKMARK", "object": {"metadata": LISTED}})
            return Answer(chunks=[json.dumps(each).encode() + b"\n" for each in events])
        if request.method == "DELETE":
            self.deleted.append(request.path.rpartition("/")[2])
            return Answer()
        if request.method == "PATCH":
            self.patches.append(json.loads(request.body))
            if len(self.patches) == 1:
                return Answer(500)
            self.spec |= self.patches[-1]["spec"]
            return Answer()
        return Answer(201)

    def _gang(self) -> dict[str, Any]:
        meta = {"name": "g", "generation": 1, "resourceVersion": "1"}
        placement = [{"node": "node-a", "members": WORKERS}]
        status = {"phase": "Bound", "attempt": 1, "observedGeneration": 1, "placement": placement}
        return {"metadata": meta, "spec": self.spec, "status": status | self.status}

    def _pods(self) -> list[dict[str, Any]]:
        return [
            {
                "metadata": {
                    "name": f"g-{member}-1",
                    "uid": f"uid-{member}",
                    "resourceVersion": "1",
                    "labels": {f"{PREFIX}/gang": "g", f"{PREFIX}/member": member, f"{PREFIX}/attempt": "1"},
                },
                "status": {"phase": "Running"},
            }
            for member in WORKERS
        ]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def owners(server: Server) -> Iterator[Owners]:
    with HttpServer(server.respond) as started:
        owners = Owners(Api(started.url, ca=None), "ns", "gang-scheduler")
        owners.start()
        server.is_gang_known = lambda: owners.observed("g")[0] is not None
        yield owners
        owners.stop()


def test_a_gang_is_suspended_for_some_time_also_after_a_failed_request(server: Server, owners: Owners) -> None:
    owners.submit(replace(PLAN, suspend_after=0.0, suspend_seconds=1.0))
    eventually(lambda: server.spec.get("suspend") is True)
    eventually(lambda: server.spec["suspend"] is False)
    suspended = [patch["spec"]["suspend"] for patch in server.patches]
    assert suspended[:2] == [True, True], "the first one is refused"
    assert owners.counts["gangs suspended"] == 1


def test_the_pods_of_a_gang_that_is_preempted_are_deleted(server: Server, owners: Owners) -> None:
    server.status = {"preemption": {"by": "ns/other", "state": "Requested", "time": "2026-01-01T00:00:00Z"}}
    owners.submit(PLAN)
    eventually(lambda: set(server.deleted) == {"g-worker-0-1", "g-worker-1-1"})
    assert owners.counts["gangs preempted"] == 1


def test_an_owner_may_take_its_time_to_leave(server: Server, owners: Owners) -> None:
    server.status = {"preemption": {"by": "ns/other", "state": "Requested", "time": "2026-01-01T00:00:00Z"}}
    owners.submit(replace(PLAN, leave_seconds=600.0))
    eventually(lambda: owners.counts["gangs preempted"] == 1)
    assert server.deleted == []


def test_a_gang_gets_the_size_that_it_is_asked_for(server: Server, owners: Owners) -> None:
    server.status = {"targetMembers": {"worker": 1}}
    owners.submit(PLAN)
    eventually(lambda: owners.counts["resizes"] > 0)
    assert server.patches[-1]["spec"]["members"][0]["count"] == 1
    assert server.patches[-1]["metadata"]["resourceVersion"] == "1"


def test_a_request_to_resize_an_older_spec_is_not_followed(server: Server, owners: Owners) -> None:
    server.status = {"targetMembers": {"worker": 1}, "observedGeneration": 0}
    owners.submit(PLAN)
    # Each of them shows the gang again.
    eventually(lambda: owners.counts["gangs bound"] == 1 and server.watches > 10)
    assert server.patches == []
