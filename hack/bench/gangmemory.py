"""Memory of the gang scheduler in a large cluster (a part of `make bench-gang`).

- `gang_scheduler_rss`: resident set of the process `tfjob-controller extender`, 5 s after it has cached 10,000 pods on
  5,000 nodes and admitted one more gang. The pods are members of 1,000 Gangs in phase Bound; their specs are those of
  ordinary training pods. All objects exist on the real API server; no pod ever ran. `peak` is the largest resident set.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from bench import usage
from bench.gangdriver import PODS
from bench.gangplane import Plane, Planes, running_extender
from bench.gangworkload import GANGS, gang_body, gang_labels, new_namespace
from bench.objects import pod
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import in_parallel, rest, wait
from localcluster import podstatus
from localcluster.gangscheduler import NAME

GANG_COUNT = size(1000, tiny=3)
MEMBERS = 10
NODES = size(5000, tiny=10)
NODE = {"cpu": "64", "memory": "512Gi", "pods": "110"}
SETTLE_SECONDS = float(size(5, tiny=0))

Object = dict[str, Any]


def report_memory(planes: Planes) -> bool:
    """Prints the figure. Returns False if it missed its target."""
    plane = planes.get("audited")
    namespace = new_namespace(plane)
    fill(plane, namespace)
    found = [measure(plane, namespace) for _ in range(ROUNDS)]
    values, peak = [now for now, _ in found], round(max(highest for _, highest in found), 1)
    extra: Object = {"pods": GANG_COUNT * MEMBERS, "nodes": NODES, "gangs": GANG_COUNT, "peak": peak}
    return report("gang_scheduler_rss", "MB", values, reach=Reach(max_value=300.0), **extra)


def measure(plane: Plane, namespace: str) -> tuple[float, float]:
    """Runs one and returns its resident set and the peak, in MB."""
    path = f"{GANGS.format(namespace)}/one-more"
    with running_extender(plane) as extender:
        plane.api.create(GANGS.format(namespace), gang_body("one-more", MEMBERS))
        wait(lambda: plane.api.get(path).get("status", {}).get("phase") == "Admitted", "the gang is not admitted")
        time.sleep(SETTLE_SECONDS)
        now, peak = usage.resident_bytes(extender.pid) / 1e6, usage.peak_resident_bytes(extender.pid) / 1e6
    plane.api.delete(path)
    _check_known(plane, namespace)
    progress(f"resident: {now:.0f} MB, peak {peak:.0f} MB")
    return now, peak


def _check_known(plane: Plane, namespace: str) -> None:
    """Raises RuntimeError if a gang is Released, which happens if the gang scheduler does not know its pods."""
    phases = Counter((gang.get("status") or {}).get("phase") for gang in plane.api.list(GANGS.format(namespace)))
    if phases != {"Bound": GANG_COUNT}:
        raise RuntimeError(f"the gang scheduler does not know the pods: {dict(phases)}")


def fill(plane: Plane, namespace: str) -> None:
    """Creates nodes, gangs and their pods."""
    begin = time.monotonic()
    plane.set_nodes(0)
    in_parallel(lambda number: _create_node(plane, number), range(NODES))
    progress(f"{NODES} nodes after {time.monotonic() - begin:.0f} s")
    in_parallel(lambda number: _create_gang(plane, namespace, number), range(GANG_COUNT))
    rest(plane.api)
    progress(f"{GANG_COUNT * MEMBERS} pods after {time.monotonic() - begin:.0f} s")


def _create_gang(plane: Plane, namespace: str, number: int) -> None:
    """Creates a gang in phase Bound, and its pods."""
    name, path = f"gang-{number:04d}", GANGS.format(namespace)
    plane.api.create(path, gang_body(name, MEMBERS))
    nodes = {f"worker-{index}": _node_name(number * MEMBERS + index) for index in range(MEMBERS)}
    placement = [{"node": node, "members": [member]} for member, node in nodes.items()]
    status = {"phase": "Bound", "attempt": 1, "placement": placement, "members": f"{MEMBERS}/{MEMBERS}"}
    plane.api.patch(f"{path}/{name}/status", {"status": status})
    for index, (member, node) in enumerate(nodes.items()):
        body = pod_of(name, member, node, number * MEMBERS + index)
        plane.api.create(PODS.format(namespace), body)


def pod_of(gang: str, member: str, node: str, number: int) -> Object:
    """Returns a pod as in bench.objects, but bound, a member of a gang, and without claims that do not exist."""
    spec = pod(number, 0)["spec"]
    claims = [each["name"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] not in claims]
    (container,) = spec["containers"]
    container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] not in claims]
    labels = {**gang_labels(gang, member, "1"), "app.kubernetes.io/part-of": "recommendation", "team": "ml"}
    metadata = {"name": f"{gang}-{member}", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "nodeName": node, "schedulerName": NAME},
    }


def _create_node(plane: Plane, number: int) -> None:
    """Creates a node with its status and removes the server's taint, which no other controller removes."""
    plane.api.create("/api/v1/nodes", _node(number))
    plane.api.patch(f"/api/v1/nodes/{_node_name(number)}", {"spec": {"taints": None}})


def _node(number: int) -> Object:
    now, name = podstatus.now(), _node_name(number)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    status = {"capacity": NODE, "allocatable": NODE, "conditions": [{**ready, "lastTransitionTime": now}]}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _node_name(number: int) -> str:
    return f"worker-node-{number % NODES:04d}"
