"""The gang scheduler as a process of its own, beside a kube-scheduler that calls it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from helpers.cluster import Cluster
from localcluster import ports
from localcluster.extender import extender_beside
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import EXTENDER, OurProgram
from localcluster.programs import LOOPBACK


@contextlib.contextmanager
def extender_process(cluster: Cluster, *flags: str) -> Iterator[OurProgram]:
    """Starts an extender with these flags, and waits until it is ready; kills it at the end."""
    with ports.reserve(2, LOOPBACK) as (port, probes_port):
        extender = extender_beside(cluster.own, port, probes_port, *flags)
        try:
            extender.start()
            extender.wait_ready()
            with GangScheduler(cluster.own, extender.urls[EXTENDER]):
                yield extender
        finally:
            extender.kill()
