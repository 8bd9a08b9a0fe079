"""The gang scheduler as a process of its own, beside a kube-scheduler that asks it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from helpers.cluster import Cluster
from localcluster import ports
from localcluster.extender import Extender
from localcluster.gangscheduler import GangScheduler
from localcluster.programs import LOOPBACK


@contextlib.contextmanager
def extender_process(cluster: Cluster, *flags: str) -> Iterator[Extender]:
    """One that is ready, with these flags; killed at the end, if the test has not done so."""
    with ports.reserve(2, LOOPBACK) as (port, probes_port):
        extender = Extender(cluster.own, port, probes_port, *flags)
        try:
            extender.start()
            extender.wait_ready()
            with GangScheduler(cluster.own, extender.url):
                yield extender
        finally:
            extender.kill()
