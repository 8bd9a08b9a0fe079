"""Bindings that fail on the way to the API server: each is completed in the first attempt of its gang."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from helpers.cluster import Cluster
from helpers.gangkeeper import Keeper
from helpers.gangscheduler import running_schedulers
from localcluster.fakekubelet import make_node
from localcluster.faultproxy import Fault, FaultProxy, LoseAnswer, LoseRequest, Reply

pytestmark = pytest.mark.cluster

SIZE = 3
# What the first Binding of each of a gang's pods meets.
FAULTS: dict[str, Fault] = {
    "a-conflict": Reply(409, "Conflict"),
    "too-many-requests": Reply(429, "TooManyRequests", retry_after_seconds=1),
    "an-internal-error": Reply(500, "InternalError"),
    "unavailable": Reply(503, "ServiceUnavailable"),
    "lost-before-it-was-done": LoseRequest(),
    "done-but-not-answered": LoseAnswer(),
}


def test_a_binding_that_fails_is_done_once_and_no_gang_stays_in_part(gang_cluster: Cluster, tmp_path: Path) -> None:
    make_node(gang_cluster.api, "node-c", {"cpu": str(SIZE * len(FAULTS) - 8), "memory": "8Gi", "pods": "20"})
    keeper = Keeper(gang_cluster.api)
    with FaultProxy(gang_cluster.own.server) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path, gang_cluster.own.token)
        for name, fault in FAULTS.items():
            proxy.next(fault, times=SIZE, method="POST", path=f"/pods/{name}-worker")
        with running_schedulers(gang_cluster, kubeconfig):
            for name in FAULTS:
                keeper.submit(name, SIZE)
            found = keeper.tend_until_whole(*FAULTS, timeout=30)
        met = Counter(seen.fault for seen in proxy.seen if seen.path.endswith("/binding"))
    assert {name: seen.attempt for name, seen in found.items()} == dict.fromkeys(FAULTS, 1)
    assert {fault: met[fault] for fault in FAULTS.values()} == dict.fromkeys(FAULTS.values(), SIZE)
    # Nobody posts again what was done.
    done = SIZE * (len(FAULTS) - 1)
    assert met[None] == done
