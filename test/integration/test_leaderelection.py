"""Leader election on a real API server: the contract, and two real electors that lose their network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.cluster import Cluster, new_namespace
from helpers.leasecontract import LeaseContract
from helpers.poll import eventually
from helpers.timing import shortest
from localcluster.faultproxy import FaultProxy
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.leaderelection.elector import LeaderElector
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import RealClock

pytestmark = pytest.mark.cluster

STOP_SECONDS = 10.0
LEASE, DEADLINE, RETRY = 4.0, 2.5, 0.5
SAMPLE_SECONDS = 0.005


class TestLease(LeaseContract):
    """Fixtures `requester` and `namespace` are those of conftest.py."""


@dataclass
class Entrant:
    """An elector and when it was told to start and stop (real monotonic time)."""

    elector: LeaderElector
    started_at: list[float] = field(default_factory=list)
    stopped_at: list[float] = field(default_factory=list)


def new_entrant(
    requester: Requester, namespace: str, identity: str, times: tuple[float, float, float] = (LEASE, DEADLINE, RETRY)
) -> Entrant:
    lease, deadline, retry = times
    entrant: Entrant
    elector = LeaderElector(
        requester,
        RealClock(),
        namespace,
        "controller",
        identity,
        on_started=lambda: entrant.started_at.append(time.monotonic()),
        on_stopped=lambda: entrant.stopped_at.append(time.monotonic()),
        lease_seconds=lease,
        renew_deadline_seconds=deadline,
        retry_seconds=retry,
    )
    entrant = Entrant(elector)
    return entrant


class Referee:
    """Looks all the time whether two lead."""

    def __init__(self, *entrants: Entrant) -> None:
        self._entrants = entrants
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="referee")
        self.samples = 0
        self.fouls = 0

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.samples += 1
            self.fouls += sum(entrant.elector.is_leader for entrant in self._entrants) > 1

    def __enter__(self) -> Referee:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


Enter = Callable[..., Entrant]


@pytest.fixture
def enter(namespace: str) -> Iterator[Enter]:
    entrants: list[Entrant] = []

    def start(requester: Requester, identity: str, **options: tuple[float, float, float]) -> Entrant:
        entrants.append(new_entrant(requester, namespace, identity, **options))
        entrants[-1].elector.start()
        return entrants[-1]

    yield start
    for entrant in entrants:
        assert entrant.elector.stop(STOP_SECONDS)


def test_with_the_default_times_a_second_instance_leads_within_two_seconds_after_the_first_has_stopped(
    enter: Enter, requester: Transport
) -> None:
    def hand_over() -> float:
        first = enter(requester, "first", times=(15.0, 10.0, 2.0))
        eventually(lambda: first.started_at)
        second = enter(requester, "second", times=(15.0, 10.0, 2.0))
        eventually(lambda: second.elector.leader == "first")
        assert first.elector.stop(STOP_SECONDS)
        stopped_at = time.monotonic()
        eventually(lambda: second.started_at)
        assert second.elector.stop(STOP_SECONDS)
        assert first.stopped_at == []
        return second.started_at[0] - stopped_at

    assert shortest(hand_over, 2.0) < 2.0


def test_a_leader_without_its_network_stops_in_time_and_then_another_leads(
    control_plane: Cluster, enter: Enter, requester: Transport, tmp_path: Path
) -> None:
    bound = DEADLINE + 0.5
    assert shortest(lambda: lose_the_network(control_plane, enter, requester, tmp_path), bound) < bound


def lose_the_network(control_plane: Cluster, enter: Enter, requester: Transport, folder: Path) -> float:
    """Seconds from the fault to the moment at which the leader has stopped."""
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(control_plane.api.server))
        config = load_config(str(proxy.kubeconfig(folder, control_plane.own.token)))
        through_proxy = Transport(config, qps=0)
        stack.callback(through_proxy.close)
        first = enter(through_proxy, "first")
        eventually(lambda: first.started_at)
        second = enter(requester, "second")
        eventually(lambda: second.elector.leader == "first")
        with Referee(first, second) as referee:
            broken_at = time.monotonic()
            proxy.is_swallowing = True  # the connections stay half open
            eventually(lambda: first.stopped_at)
            # A renewal that was on its way may arrive late, and the lease is counted from then.
            eventually(lambda: second.started_at)
        assert referee.fouls == 0
        assert referee.samples > 100
        for entrant in (first, second):
            assert entrant.elector.stop(STOP_SECONDS)
        return first.stopped_at[0] - broken_at


def test_two_electors_while_the_api_server_is_killed_and_comes_back(spare_control_plane: Cluster) -> None:
    namespace = new_namespace(spare_control_plane.api)
    config = load_config(str(spare_control_plane.kubeconfig))
    transports = [Transport(config, qps=0) for _ in range(2)]
    first = new_entrant(transports[0], namespace, "first")
    second = new_entrant(transports[1], namespace, "second")
    try:
        first.elector.start()
        eventually(lambda: first.started_at)
        second.elector.start()
        eventually(lambda: second.elector.leader == "first")
        with Referee(first, second) as referee:
            spare_control_plane.own.kill("kube-apiserver")
            eventually(lambda: first.stopped_at)
            assert not second.started_at
            spare_control_plane.own.start_program("kube-apiserver")
            eventually(lambda: second.started_at, timeout=LEASE + 10.0)
        assert referee.fouls == 0
    finally:
        for entrant in (first, second):
            assert entrant.elector.stop(STOP_SECONDS)
        for transport in transports:
            transport.close()
