"""Requests to the API server for a gang (a part of `make bench-gang`), counted in its audit log.

- `writes_per_gang`: one gang of N pods alone, from its creation until 2 s after it is Bound: all writes to its Gang and
  its pods, including their creation, without events. 2N + 3 are the Gang, N pods, N Bindings, Admitted and Bound.
- `writes_per_gang_at_once`: the mean of the same for 20 gangs that are created at the same time, all of which fit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bench.auditlog import entries_of
from bench.gangdriver import Driver
from bench.gangplane import Plane, gang_scheduler, planes
from bench.gangworkload import GANGS, OURS, Shape, clean, new_namespace
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import wait

MEMBERS = size(10, tiny=2)
ONE = Shape(1, MEMBERS)
MANY = Shape(size(20, tiny=2), MEMBERS)
NODES = size(40, tiny=2)
ALLOWED = 2 * MEMBERS + 3
# Longer than any program needs for further writes.
AFTERWARDS_SECONDS = 2.0
_READS = ("get", "list")

Object = dict[str, Any]


def report_writes() -> bool:
    """Prints both figures. Returns False if one missed its target."""
    ok = True
    with planes("audited") as running, gang_scheduler(plane := running["audited"]):
        plane.set_nodes(NODES)
        for name, shape in (("writes_per_gang", ONE), ("writes_per_gang_at_once", MANY)):
            values = [writes_per_gang(plane, shape) for _ in range(ROUNDS)]
            extra: Object = {"allowed": ALLOWED, "gangs": shape.gangs, "members": MEMBERS}
            ok &= report(name, "writes", values, reach=Reach(max_value=ALLOWED), **extra)
    return ok


def writes_per_gang(plane: Plane, shape: Shape) -> float:
    """Runs one round. The log is read before anything is deleted."""
    name = new_namespace(plane)
    with Driver(plane, name) as driver:
        OURS.start(driver, shape)
        driver.round(shape.pods)
        wait(lambda: _are_bound(plane, name), f"not all Gangs of {name} are Bound")
        time.sleep(AFTERWARDS_SECONDS)
    assert plane.audit is not None  # noqa: S101 - the plane was opened with one
    counts = writes_of(entries_of(plane.audit, name))
    clean(OURS, plane, name)
    progress(f"{shape.gangs} gangs of {shape.members}: {dict(counts)}")
    return sum(counts.values()) / shape.gangs


def writes_of(entries: Iterable[Object]) -> Counter[str]:
    """Counts the writes to pods and Gangs, by verb and resource. Other objects of a new namespace do not count."""
    counts: Counter[str] = Counter()
    for entry in entries:
        reference = entry["objectRef"]
        if reference["resource"] in ("pods", "gangs") and entry["verb"] not in _READS:
            subresource = f"/{reference['subresource']}" if reference.get("subresource") else ""
            counts[f"{entry['verb']} {reference['resource']}{subresource}"] += 1
    return counts


def _are_bound(plane: Plane, namespace: str) -> bool:
    return all((gang.get("status") or {}).get("phase") == "Bound" for gang in plane.api.list(GANGS.format(namespace)))
