"""Tests of lab.leases: the holder of a Lease, and whether it is renewed."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from helpers.httpserver import Answer, HttpServer
from lab.leases import LeaseMonitor, holder_of
from localcluster.api import Api


@dataclass
class Replica:
    name: str
    is_ready: bool = True


@pytest.mark.parametrize(
    ("spec", "holder"),
    [({"holderIdentity": "replica-a_12-34"}, "replica-a"), ({"holderIdentity": ""}, ""), ({}, "")],
    ids=["held", "released", "never held"],
)
def test_the_holder_of_a_lease_is_its_host_name(spec: dict[str, str], holder: str) -> None:
    assert holder_of(spec) == holder


def test_a_lease_counts_while_a_replica_that_is_ready_renews_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("lab.leases.time.monotonic", lambda: now)
    spec, replica = {"holderIdentity": "a_1", "renewTime": "1"}, Replica("a")
    with HttpServer(lambda _: Answer(body=json.dumps({"spec": spec}).encode())) as server:
        monitor = LeaseMonitor(Api(server.url, ca=None), "lease", [replica], stale_seconds=5.0)
        assert monitor.is_renewed()
        now = 4.0
        spec["renewTime"] = "2"
        assert monitor.is_renewed()
        now = 9.5
        assert not monitor.is_renewed(), "the renewal is too old"
        spec["renewTime"] = "3"
        assert monitor.is_renewed()
        replica.is_ready = False
        assert not monitor.is_renewed(), "the leader does not work"
        replica.is_ready, spec["holderIdentity"] = True, "b_1"
        assert not monitor.is_renewed(), "a stranger holds it"
