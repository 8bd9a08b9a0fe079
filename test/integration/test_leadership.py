"""Leaders and followers, and how leadership is handed over: no work is done twice or left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.auditor import Auditor
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.controllerprocess import WORKING, controller_process
from helpers.fleet import Fleet, fleet_kubelet, runs
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.faultproxy import FaultProxy, Late

pytestmark = pytest.mark.cluster

# The defaults of the flags. A shorter lease is lost on a machine whose cores are all busy.
LEASE_SECONDS, RETRY_SECONDS = 15.0, 2.0
# A loaded machine is slow to notice. test_leaderelection.py has the exact times.
SLACK_SECONDS = 30.0
STOP_SECONDS = 10.0


@pytest.fixture
def flags(kubectl: Kubectl, namespace: str) -> tuple[str, ...]:
    return "--leader-elect", f"--leader-elect-lease-namespace={namespace}"


@pytest.fixture
def auditor(api: Api, kubectl: Kubectl, namespace: str) -> Iterator[Auditor]:
    with Auditor(api, namespace) as auditor:
        yield auditor


@pytest.fixture
def fleet(api: Api, kubectl: Kubectl, namespace: str) -> Iterator[Fleet]:
    """Jobs, and kubelets for them."""
    with fleet_kubelet(api, namespace):
        yield Fleet(Jobs(api, namespace))


def test_a_leader_that_is_killed_is_followed_within_its_lease(
    control_plane: Cluster, fleet: Fleet, auditor: Auditor, namespace: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    with (
        controller_process(control_plane.kubeconfig, namespace, tmp_path / "first", *flags) as first,
        controller_process(control_plane.kubeconfig, namespace, tmp_path / "second", *flags) as second,
    ):
        eventually(lambda: first.logged(WORKING) + second.logged(WORKING))
        leader, other = (first, second) if first.logged(WORKING) else (second, first)
        other.await_log("attempting to acquire lease")
        for number in range(4):
            fleet.submit(number)
        eventually(lambda: auditor.count > 40)
        leader.kill()
        killed = time.monotonic()
        assert not other.logged(WORKING)
        other.await_log(WORKING)
        assert time.monotonic() - killed < LEASE_SECONDS + RETRY_SECONDS + SLACK_SECONDS
        fleet.await_ends()
        auditor.await_no_violations()


def test_a_leader_that_is_stopped_hands_over_while_jobs_run(
    control_plane: Cluster, fleet: Fleet, auditor: Auditor, namespace: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Its last request gives the lease back. test_leaderelection.py bounds the time without a leader."""
    with (
        FaultProxy(control_plane.own.server) as proxy,
        controller_process(
            proxy.kubeconfig(tmp_path, control_plane.own.token), namespace, tmp_path / "first", *flags
        ) as first,
    ):
        first.await_log(WORKING)
        with controller_process(control_plane.kubeconfig, namespace, tmp_path / "second", *flags) as second:
            second.await_log("attempting to acquire lease")
            eventually(lambda: second.logged('"event": "listed"') >= 5)
            for number in range(6):
                fleet.submit(number)
            eventually(lambda: auditor.count > 60)
            told = time.monotonic()
            first.terminate()
            assert first.wait(STOP_SECONDS + SLACK_SECONDS) == 0
            ended = time.monotonic()
            assert ended - told < STOP_SECONDS + SLACK_SECONDS
            second.await_log(WORKING)
            assert time.monotonic() - ended < RETRY_SECONDS + SLACK_SECONDS
            # An event that had to be given up at the end of its time may still be on its way.
            last = [each for each in proxy.seen if "watch=1" not in each.path and "/events" not in each.path][-1]
            assert (last.method, "/leases/" in last.path) == ("PUT", True), last
            fleet.await_ends()
            auditor.await_no_violations()


def test_a_stop_is_in_time_although_the_server_has_fallen_silent(
    control_plane: Cluster, fleet: Fleet, namespace: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """The lease is not given back then: a write may still be under way."""
    with FaultProxy(control_plane.own.server) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path, control_plane.own.token)
        with controller_process(kubeconfig, namespace, tmp_path / "log", *flags) as controller:
            controller.await_log(WORKING)
            # Requests hang, watches go on.
            proxy.choose = lambda _, path: None if "watch=1" in path else Late(20.0)
            fleet.submit(0)
            eventually(lambda: any(each.fault and "/tfjobs/" in each.path for each in proxy.seen))
            told = time.monotonic()
            controller.terminate()
            code = controller.wait(STOP_SECONDS + SLACK_SECONDS)
            assert code == 1
            assert time.monotonic() - told < STOP_SECONDS + SLACK_SECONDS


def test_it_leaves_no_thread_behind(control_plane: Cluster, fleet: Fleet, namespace: str) -> None:
    before = set(threading.enumerate())
    for name in ("first", "second"):
        with running_controller(
            control_plane.kubeconfig, namespace, leader_elect=True, leader_elect_lease_namespace=namespace
        ):
            fleet.jobs.submit(tfjob(master(template=runs(0.1)), name=name))
            fleet.jobs.await_phase("Done", name)
            assert len(threading.enumerate()) > len(before)
        own = [each for each in threading.enumerate() if each not in before and not _is_the_tests(each)]
        assert own == [], own


def _is_the_tests(thread: threading.Thread) -> bool:
    return thread.name.startswith("fake-kubelet")
