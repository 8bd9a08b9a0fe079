"""`make bench-placement`: the cost of the rules of gang scheduling, without a cluster.

- `placing_1000_on_5000`: a gang of a chief, 20 parameter servers and 979 workers is placed on 5,000 nodes, on each of
  which a few other pods of many sizes run already. Nothing is cached: the view has just been filled.
- `waiting_2000_one_node_freed`: 2,000 gangs of 200 different sizes wait on 5,000 nodes without a free GPU; one node
  becomes free, which is not enough for any, and all of them are evaluated again. Half of them have waited beyond the
  starvation timeout, so that others may not start before them.

Each runs in one thread, on a view in memory, and measures placement alone, without requests.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import UTC, datetime, timedelta

from bench.report import ROUNDS, Reach, progress, report, size
from tfjob_controller.api.common.cluster import (
    Node,
    NodeStatus,
    ScheduledPod,
    ScheduledPodSpec,
)
from tfjob_controller.api.common.quantity import amount_from
from tfjob_controller.api.gang import Gang, GangMeta, GangSpec, Member
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import AdmissionDecider, AdmissionPolicy, Pending
from tfjob_controller.scheduling.placement import place
from tfjob_controller.scheduling.podsets import pod_sets_of

NODES = size(5000, tiny=20)
WORKERS = size(979, tiny=9)
SERVERS = size(20, tiny=2)
GANGS = size(2000, tiny=10)
SHAPES = size(200, tiny=5)
GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster() -> ClusterView:
    """Returns nodes of 32 CPUs and 8 GPUs in five zones."""
    view = ClusterView()
    allocatable = {"cpu": "32", "memory": "256Gi", GPU: "8", "pods": "110"}
    for number in range(NODES):
        labels = {"zone": f"zone-{number % 5}", "kubernetes.io/hostname": f"node-{number:04}"}
        view.set_node(Node(ObjectMeta(name=f"node-{number:04}", labels=labels), status=NodeStatus(allocatable)))
    return view


def pod(name: str, number: int, requests: dict[str, str]) -> ScheduledPod:
    amounts = {resource: amount_from(resource, text) for resource, text in requests.items()} | {"pods": 1}
    spec = ScheduledPodSpec(node_name=f"node-{number:04}")
    return ScheduledPod(ObjectMeta(name=f"{name}-{number}", namespace="bench"), spec, requests=amounts)


def placing(seed: int) -> float:
    """Returns the milliseconds to place the large gang."""
    rng = random.Random(seed)  # noqa: S311 -- sizes
    view = cluster()
    for number in range(NODES):
        requests = {"cpu": f"{rng.randrange(40) * 100}m", GPU: str(rng.randrange(5))}
        view.set_pod(pod("foreign", number, requests))
    members = (
        Member("chief", 1, {"cpu": "2", "memory": "8Gi"}),
        Member("ps", SERVERS, {"cpu": "3", "memory": "16Gi"}),
        Member("worker", WORKERS, {"cpu": "2", "memory": "8Gi", GPU: "1"}),
    )
    pod_sets = pod_sets_of(GangSpec(members))
    begin = time.perf_counter()
    found = place(view, pod_sets)
    milliseconds = (time.perf_counter() - begin) * 1000
    if found is None:
        raise RuntimeError(f"the gang does not fit: {found}")
    progress(f"{len(found.node_of)} pods on {len(set(found.node_of.values()))} nodes: {milliseconds:.1f} ms")
    return milliseconds


def waiting(seed: int) -> float:
    """Returns the milliseconds of the cycle after one node became free."""
    rng = random.Random(seed)  # noqa: S311 -- sizes
    view = cluster()
    for number in range(NODES):
        view.set_pod(pod("busy", number, {"cpu": f"{rng.randrange(40) * 100}m", GPU: "8"}))
    decider = AdmissionDecider(view, AdmissionPolicy(starvation_timeout_seconds=30.0))
    gangs = [_gang(number) for number in range(GANGS)]
    decider.decide(gangs, NOW)
    view.remove_pod(f"bench/busy-{rng.randrange(NODES)}")
    begin = time.perf_counter()
    decisions = decider.decide(gangs, NOW + timedelta(seconds=1))
    milliseconds = (time.perf_counter() - begin) * 1000
    if not all(isinstance(each, Pending) for each in decisions):
        raise RuntimeError("not all gangs wait")
    progress(f"{len(decisions)} gangs wait: {milliseconds:.1f} ms")
    return milliseconds


def _gang(number: int) -> Gang:
    """Returns a gang. The first half has waited for a minute, the second was just created."""
    created = NOW - timedelta(seconds=60 if number < GANGS // 2 else 1)
    worker = Member("worker", 9 + number % SHAPES, {"cpu": f"{1000 + number % SHAPES}m", GPU: "1"})
    meta = GangMeta(name=f"gang-{number:04}", namespace="bench", creation_timestamp=created.isoformat())
    return Gang(meta, GangSpec((Member("ps", 1, {"cpu": "1"}), worker)))


def main() -> int:
    """Prints both figures. Returns 1 if one missed its target."""
    placed = [placing(seed) for seed in range(ROUNDS)]
    passed = [waiting(seed) for seed in range(ROUNDS)]
    ok = report("placing_1000_on_5000", "ms", placed, reach=Reach(max_value=100.0), nodes=NODES)
    ok &= report("waiting_2000_one_node_freed", "ms", passed, reach=Reach(max_value=50.0), gangs=GANGS)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
