"""The admission loop while statuses are being written: it waits for no write, and gives no capacity away twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from helpers.apiconfig import config_for
from helpers.gangworld import BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld
from helpers.hangingapi import HangingApi
from helpers.poll import eventually
from tfjob_controller.api.common.cluster import decode_node
from tfjob_controller.api.gang import ADMITTED, GANGS, Gang, decode_gang
from tfjob_controller.gangscheduler.admission.loop import AdmissionLoop
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.state.informers import NodeHandler
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status.writer import StatusWriter
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import AdmissionPolicy
from tfjob_controller.util.clock import RealClock

HOSTILE, QUIET = "hostile", "quiet"
THREADS = 3
CPUS = 100
# Longer than any test lasts.
TIMEOUT_SECONDS = 600.0


class Stage:
    """A loop with its writer and a real HTTP client, whose server does not answer writes in the namespace `HOSTILE`."""

    def __init__(self, server: HangingApi) -> None:
        clock = RealClock()
        self.server = server
        self.transport = Transport(config_for(server.url), qps=0)
        self.gangs: Store[Gang] = Store()
        self.state = SharedState(self.gangs, clock)
        self.writer = StatusWriter(
            self.gangs,
            ResourceClient(self.transport, GANGS, decode_gang, timeout_seconds=TIMEOUT_SECONDS),
            None,
            lambda result, gang: None,
            EventRecorder(self.transport, clock, "test", "test"),
            self.state.wake,
            clock,
            threads=THREADS,
        )
        permit = Permit(
            lambda pods, on_result: None,
            self.state,
            clock,
            http_timeout_seconds=TIMEOUT_SECONDS,
            bind_timeout_seconds=TIMEOUT_SECONDS,
            admitted_timeout_seconds=TIMEOUT_SECONDS,
        )
        self.loop = AdmissionLoop(
            self.state,
            self.gangs,
            lambda namespace: (),
            self.writer,
            permit,
            clock,
            policy=AdmissionPolicy(),
            scale_policy=AutoscalingPolicy(),
            rng=random.Random(1),
        )
        NodeHandler(self.state).on_add(decode_node(msgspec.json.encode(_node())), True)
        self.writer.start()

    def add_gang(self, namespace: str, name: str, workers: int = 1) -> None:
        """Creates a Gang, which the loop sees."""
        members = [{"name": "worker", "count": workers, "resources": {"cpu": "1"}}]
        meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
        body = msgspec.json.encode({"metadata": meta, "spec": {"members": members}})
        self.gangs.upsert(decode_gang(self.server.api.request("POST", GANGS.path(namespace), body=body)))
        self.state.enqueue(f"{namespace}/{name}")

    def phase(self, namespace: str, name: str) -> str:
        gang = self.gangs.get(f"{namespace}/{name}")
        return "" if gang is None else gang.status.phase

    def close(self) -> None:
        self.server.release()
        assert self.writer.stop(60.0)
        assert self.loop.stop(60.0)
        self.transport.close()


def _node() -> dict[str, Any]:
    status = {
        "allocatable": {"cpu": str(CPUS), "pods": "1000"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"metadata": {"name": "a", "resourceVersion": "1"}, "status": status}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with HangingApi(HOSTILE) as server:
        stage = Stage(server)
        yield stage
        stage.close()


@pytest.mark.parametrize("workers", [1, 2 * CPUS], ids=["admissions", "reports"])
def test_statuses_of_a_namespace_that_are_never_written_delay_no_gang_of_another(stage: Stage, workers: int) -> None:
    """Each pass waited for all its writes, and one of a large Gang takes a busy API server many seconds."""
    for number in range(4 * THREADS):
        stage.add_gang(HOSTILE, f"g{number}", workers)
    stage.loop.start()
    eventually(lambda: stage.server.writes(HOSTILE) == THREADS - 1)
    for number in range(3):
        stage.add_gang(QUIET, f"g{number}")
        eventually(lambda name=f"g{number}": stage.phase(QUIET, name) == ADMITTED)
    assert stage.server.writes(HOSTILE) == THREADS - 1


def test_no_two_passes_write_the_same_gang_at_once(stage: Stage) -> None:
    stage.add_gang(HOSTILE, "one")
    stage.loop.run_once()
    eventually(lambda: stage.server.writes(HOSTILE) == 1)
    for number in range(5):
        stage.state.enqueue(f"{HOSTILE}/one")
        stage.add_gang(QUIET, f"g{number}")
        stage.loop.run_once()
    eventually(lambda: all(stage.phase(QUIET, f"g{number}") == ADMITTED for number in range(5)))
    stage.server.release()
    eventually(lambda: stage.phase(HOSTILE, "one") == ADMITTED)
    stage.loop.run_once()
    assert stage.server.writes(HOSTILE) == 1
    assert max(stage.server.most_at_once.values()) == 1


def test_the_capacity_of_an_admission_that_is_being_written_is_not_given_away(world: GangWorld) -> None:
    world.slow_writes()
    world.add_gang("one", worker=5)
    world.run()
    world.add_gang("two", worker=5, priority=1)
    for _ in range(3):
        world.state.enqueue(f"{NAMESPACE}/one")
        world.run()
    assert world.state.view.statistics().reserved_members == 5
    world.end_writes()
    world.run(2)
    assert [world.phase(name) for name in ("one", "two")] == ["Admitted", "Waiting"]
    assert world.state.view.statistics().reserved_members == 5


def test_the_nodes_of_members_that_are_being_written_stay_theirs(world: GangWorld) -> None:
    world.add_gang("one", worker=3)
    world.run()
    world.create_pods("one")
    world.schedule()
    world.run()
    world.slow_writes()
    world.resize("one", 9)
    world.run()
    reserved = dict(world.state.view.reserved_members(f"{NAMESPACE}/one"))
    assert len(reserved) == 8
    world.put_node("c", 4)
    world.run()
    assert world.state.view.reserved_members(f"{NAMESPACE}/one") == reserved
    world.end_writes()
    world.run(2)
    assert world.gang("one").status.members == "9/9"


def test_a_gang_that_changed_while_it_was_written_is_processed_as_soon_as_the_write_has_failed(
    world: GangWorld,
) -> None:
    world.slow_writes()
    world.add_gang("one", worker=9)
    world.run()
    world.resize("one", 2)
    world.run()
    world.end_writes()
    world.state.take()  # what the watch has marked since
    world.run()
    assert world.phase("one") == "Admitted"


def fill(world: GangWorld) -> None:
    """A gang has all nodes."""
    world.add_gang("first", worker=8)
    world.run()
    world.clock.advance(1)


def test_a_gang_whose_report_is_being_written_keeps_its_place_in_the_queue(world: GangWorld) -> None:
    fill(world)
    world.slow_writes()
    world.add_gang("older", worker=8)
    world.run()
    world.clock.advance(1)
    world.add_gang("younger", worker=8)
    world.remove_gang("first")
    world.run(2)
    world.end_writes()
    world.run(2)
    assert [world.phase(name) for name in ("older", "younger")] == ["Admitted", "Waiting"]
    assert world.state.view.statistics().reserved_members == 8


def test_a_gang_whose_report_is_being_written_still_holds_back_those_behind_it(world: GangWorld) -> None:
    world.add_gang("first", worker=3)
    world.run()
    world.clock.advance(1)
    world.slow_writes()
    world.add_gang("older", worker=8)
    world.run()
    world.clock.advance(BIND_TIMEOUT_SECONDS - 20)
    world.add_gang("younger", worker=2)
    world.run()
    world.end_writes()
    world.run(2)
    assert [world.phase(name) for name in ("older", "younger")] == ["Waiting", "Waiting"]
    assert world.state.view.statistics().reserved_members == 3


def test_a_gang_that_leaves_before_its_report_is_written_keeps_nothing(world: GangWorld) -> None:
    fill(world)
    world.slow_writes()
    world.add_gang("older", worker=8)
    world.run()
    world.remove_gang("first")
    world.run()
    assert world.state.view.statistics().reserved_members == 8, "it fits, and is admitted after its report"
    world.remove_gang("older")
    world.add_gang("younger", worker=8)
    world.end_writes()
    for _ in range(3):
        world.clock.advance(1)
        world.run()
    assert world.phase("younger") == "Admitted"
    assert world.state.view.statistics().reserved_members == 8


def test_an_admission_replaces_a_report_that_has_not_begun(world: GangWorld) -> None:
    fill(world)
    world.slow_writes()
    world.add_gang("hanging", worker=6)
    world.run()
    world.add_gang("small", worker=2)
    world.run()
    world.remove_gang("first")
    world.run()
    world.end_writes()
    paths = [request.path.split("/")[-2] for request in world.api.written("PATCH")]
    assert paths.count("small") == 1
    assert world.phase("small") == "Admitted"


def test_a_gang_that_is_suspended_while_its_admission_is_being_written_is_released(world: GangWorld) -> None:
    world.slow_writes(is_after=True)
    world.add_gang("one", worker=8)
    world.run()
    assert world.phase("one") == "Admitted", "only the response is missing"
    world.change_gang("one", {"spec": {"suspend": True}})
    world.run()
    assert world.state.view.statistics().reserved_members == 8
    world.end_writes()
    world.run(3)
    assert world.phase("one") == "Released"
    assert world.state.view.statistics().reserved_members == 0
