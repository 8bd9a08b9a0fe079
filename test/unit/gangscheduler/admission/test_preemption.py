"""Gangs that leave their nodes for one of higher priority: what the gang scheduler writes, and when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.api.common.cluster import PriorityClass
from tfjob_controller.api.gang import Preemption, placed_nodes
from tfjob_controller.gangscheduler.admission.preemption import ENDING_SECONDS, NOT_ADMITTED
from tfjob_controller.gangscheduler.status.preempted import (
    DELETION_SECONDS,
    EVICTION_SECONDS,
    LEAVING_SECONDS,
    SHORTENING_SECONDS,
)
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.preemption import PreemptionPolicy
from tfjob_controller.util.timestamps import format_micro_time

AFTER, GRACE = 10.0, 60.0


@pytest.fixture
def world(is_indexed: bool) -> Iterator[GangWorld]:
    """Two nodes of four CPUs, on which `low-a` and then `low-b` have run for longer than the grace time."""
    world = GangWorld(is_indexed=is_indexed, preemption=PreemptionPolicy(AFTER, GRACE))
    world.priority_classes = [a_class("high", 100), a_class("never", 100, policy="Never")]
    world.put_node("a", 4)
    world.put_node("b", 4)
    world.put_pod("once", {}, 0, phase="Succeeded", priority_class="high")
    world.start("low-a", 4)
    world.clock.advance(1)
    world.start("low-b", 4)
    world.clock.advance(GRACE)
    yield world
    world.end_writes()
    world.stop_writing()


def a_class(name: str, value: int, *, policy: str = "", default: bool = False) -> PriorityClass:
    return PriorityClass(ObjectMeta(name=name), value, default, policy)


def wait(world: GangWorld, name: str, workers: int, *, priority: int = 100, of_class: str = "high") -> None:
    """The gang waits for long enough to preempt others."""
    world.add_gang(name, worker=workers, priority=priority, priority_class=of_class)
    world.run()
    assert world.phase(name) == "Waiting"
    world.clock.advance(AFTER)
    world.run()


def states(world: GangWorld) -> dict[str, str]:
    """Returns the states of the preemptions, by gang."""
    found = {name: world.gang(name).status.preemption for name in world.names()}
    return {name: each.state for name, each in found.items() if each is not None}


def condition(world: GangWorld, name: str) -> tuple[str, str] | None:
    found = (each for each in world.gang(name).status.conditions if each.type == "Preempted")
    return next(((each.status, each.reason) for each in found), None)


def test_the_owner_is_asked_and_the_gang_stays_bound_until_its_pods_are_gone(world: GangWorld) -> None:
    wait(world, "high", 4)
    since = format_micro_time(world.clock.now())
    status = world.gang("low-b").status
    assert (status.phase, status.preemption) == ("Bound", Preemption(f"{NAMESPACE}/high", "Requested", since))
    assert condition(world, "low-b") == ("True", "Requested")
    assert len(placed_nodes(status)) == 4
    assert states(world) == {"low-b": "Requested"}
    assert len(world.pods_of("low-b")) == 4
    waiting = world.gang("high").status
    assert (waiting.phase, waiting.conditions[0].reason) == ("Waiting", "Preempting")
    assert ("low-b", "PreemptionRequested") in [each[:2] for each in world.events.told]
    assert ("high", "Preempting") in [each[:2] for each in world.events.told]


def test_once_its_pods_are_gone_it_queues_with_its_age_until_there_is_capacity_again(world: GangWorld) -> None:
    wait(world, "high", 4)
    queued = world.gang("low-b").status.queued_time
    world.remove_pods("low-b")
    world.run()
    status = world.gang("low-b").status
    assert (status.phase, status.placement, status.queued_time) == ("Waiting", (), queued)
    assert states(world) == {"low-b": "Preempted"}
    world.run()
    assert world.phase("high") == "Admitted"
    assert world.nodes_of("high") == {"b"}
    assert world.phase("low-b") == "Waiting"
    world.remove_gang("low-a")
    world.run(2)
    status = world.gang("low-b").status
    assert (status.phase, status.attempt, status.preemption) == ("Admitted", 2, None)
    assert condition(world, "low-b") == ("False", "NotPreempted")


def test_as_long_as_one_pod_runs_nothing_starts_in_the_place_of_the_others(world: GangWorld) -> None:
    wait(world, "high", 4)
    for pod in world.pods_of("low-b")[1:]:
        world.remove_pod(pod.metadata.name)
    world.add_gang("small", worker=1)
    world.run(3)
    assert world.phase("high") == "Waiting"
    assert world.phase("small") == "Waiting"
    assert states(world) == {"low-b": "Requested"}


def test_nothing_else_takes_what_victims_have_left(world: GangWorld) -> None:
    """Not even a gang of higher priority that comes meanwhile: it has to wait as long, and preempts others."""
    wait(world, "high", 4)
    world.priority_classes.append(a_class("highest", 200))
    world.add_gang("highest", worker=4, priority=200, priority_class="highest")
    world.remove_pods("low-b")
    world.run(3)
    assert world.phase("high") == "Admitted"
    assert world.phase("highest") == "Waiting"


def test_nobody_is_asked_for_what_a_gang_that_has_ended_still_uses(world: GangWorld) -> None:
    world.add_gang("high", worker=4, priority=100, priority_class="high")
    world.run()
    world.delete_gang("low-a")
    world.clock.advance(AFTER)
    world.run()
    assert states(world) == {}
    world.clock.advance(ENDING_SECONDS)
    world.run()
    assert states(world) == {"low-b": "Requested"}


def test_what_a_gang_had_and_others_have_taken_is_not_waited_for(world: GangWorld) -> None:
    """In a cluster where gangs end all the time, one of high priority would otherwise never preempt."""
    world.add_gang("high", worker=4, priority=100, priority_class="high")
    world.run()
    world.clock.advance(AFTER)
    world.delete_gang("low-a")
    world.remove_pods("low-a")
    world.put_pod("other", {}, 4, node="a")
    world.run()
    assert states(world) == {"low-b": "Requested"}


def test_the_pods_of_an_owner_that_deletes_none_are_evicted_and_nobody_else_is_asked(world: GangWorld) -> None:
    wait(world, "high", 4)
    world.clock.advance(DELETION_SECONDS - 1)
    world.run()
    assert (states(world), world.evicted) == ({"low-b": "Requested"}, [])
    world.clock.advance(1)
    world.is_ending_slow = True
    world.run()
    assert len(world.evicted) == 4
    assert states(world) == {"low-b": "Requested"}
    assert "its pods are evicted" in world.gang("low-b").status.message
    assert ("low-b", "PreemptionEnforced") in [each[:2] for each in world.events.told]
    world.remove_pods("low-b")
    world.run(2)
    assert states(world) == {"low-b": "Preempted"}
    assert world.phase("high") == "Admitted"
    assert world.gang("low-a").status.phase == "Bound"


def test_a_gang_whose_pods_cannot_be_evicted_is_left_alone_and_others_are_asked(world: GangWorld) -> None:
    world.protected.add(NAMESPACE)
    wait(world, "high", 4)
    world.clock.advance(DELETION_SECONDS + EVICTION_SECONDS - 1)
    world.run()
    assert states(world) == {"low-b": "Requested"}
    world.clock.advance(1)
    world.run(2)
    assert states(world) == {"low-b": "NotFollowed", "low-a": "Requested"}
    status = world.gang("low-b").status
    assert (status.phase, len(placed_nodes(status))) == ("Bound", 4)
    assert condition(world, "low-b") == ("False", "NotFollowed")
    assert len(world.pods_of("low-b")) == 4


def test_pods_have_their_grace_period_within_a_bound(world: GangWorld) -> None:
    world.is_ending_slow = True
    wait(world, "high", 4)
    for pod in world.pods_of("low-b"):
        world.end_pod(pod.metadata.name)
    world.clock.advance(SHORTENING_SECONDS - 1)
    world.run()
    assert (states(world), world.evicted) == ({"low-b": "Requested"}, [])
    world.clock.advance(1)
    world.run(2)
    assert len(world.evicted) == 4
    assert states(world) == {"low-b": "Preempted"}


def test_pods_that_do_not_end_hold_a_preemptor_up_for_a_bounded_time(world: GangWorld) -> None:
    world.protected.add(NAMESPACE)
    wait(world, "high", 4)
    for pod in world.pods_of("low-b"):
        world.end_pod(pod.metadata.name)
    world.clock.advance(LEAVING_SECONDS - 1)
    world.run()
    assert states(world) == {"low-b": "Requested"}
    world.clock.advance(1)
    world.run()
    assert states(world)["low-b"] == "NotFollowed"


def test_an_owner_that_creates_the_pods_again_gets_no_node_for_them_and_holds_nobody_up(world: GangWorld) -> None:
    wait(world, "high", 4)
    old = [(pod.metadata.name, pod.metadata.labels) for pod in world.pods_of("low-b")]
    world.remove_pods("low-b")
    for name, labels in old:
        world.put_pod(f"{name}-again", labels, 1)
    world.run()
    world.schedule()
    assert not any(pod.spec.node_name for pod in world.pods_of("low-b"))
    assert states(world) == {"low-b": "Requested"}
    world.clock.advance(DELETION_SECONDS)
    world.run(2)
    assert states(world) == {"low-b": "Preempted"}
    assert world.phase("high") == "Admitted"


def test_a_request_is_looked_at_again_when_its_time_is_over(world: GangWorld) -> None:
    wait(world, "high", 4)
    world.run()
    assert world.admission.sleep_seconds() <= DELETION_SECONDS


def test_a_number_alone_protects_from_nobody(world: GangWorld) -> None:
    world.remove_gang("low-a")
    world.run()
    world.start("claims", 4, priority=10**9)
    world.clock.advance(GRACE)
    wait(world, "high", 8)
    assert states(world) == {"claims": "Requested", "low-b": "Requested"}


def test_the_default_class_counts_for_pods_without_one(world: GangWorld) -> None:
    world.priority_classes.append(a_class("default", 50, default=True))
    world.change_gang("low-a", {"spec": {"priority": 50}})
    world.change_gang("low-b", {"spec": {"priority": 50}})
    wait(world, "same", 4, priority=50, of_class="")
    assert states(world) == {}


def test_a_class_counts_once_a_pod_of_the_namespace_was_admitted_with_it(world: GangWorld) -> None:
    """A Gang can name any class: quotas and policies judge pods, and a gang that waits has none."""
    world.priority_classes.append(a_class("forbidden", 200))
    wait(world, "claims", 4, priority=200, of_class="forbidden")
    with world.in_namespace("other"):
        world.put_pod("allowed", {}, 0, priority_class="forbidden")
    world.run()
    assert states(world) == {}
    status = world.gang("claims").status
    assert status.message.endswith(NOT_ADMITTED.format(name="forbidden"))
    assert status.conditions[0].message == status.message
    world.put_pod("allowed", {}, 0, priority_class="forbidden")
    world.run()
    assert states(world) == {"low-b": "Requested"}


def test_a_class_of_other_pods_protects_from_nobody(world: GangWorld) -> None:
    world.priority_classes.append(a_class("forbidden", 200))
    world.remove_gang("low-a")
    world.run()
    world.add_gang("claims", worker=4, priority=200, priority_class="forbidden")
    world.run()
    world.create_pods("claims", priority_class="")
    world.schedule()
    world.run()
    world.clock.advance(GRACE)
    wait(world, "high", 8)
    assert states(world) == {"claims": "Requested", "low-b": "Requested"}


@pytest.mark.parametrize(
    ("priority", "of_class"),
    [
        pytest.param(10**9, "", id="a number alone: whoever may write Gangs can write any"),
        pytest.param(100, "nonsense", id="an unknown class"),
        pytest.param(100, "never", id="a class that never preempts"),
    ],
)
def test_without_a_class_that_preempts_a_gang_asks_nobody_and_says_nothing(
    world: GangWorld, priority: int, of_class: str
) -> None:
    wait(world, "claims", 4, priority=priority, of_class=of_class)
    assert states(world) == {}
    assert "preempts nobody" not in world.gang("claims").status.message


def test_without_the_flag_nobody_is_asked(world: GangWorld) -> None:
    world.preemption = None
    world.start_scheduler()
    wait(world, "high", 4)
    assert states(world) == {}


def test_a_new_process_goes_on_with_what_the_last_one_began(world: GangWorld) -> None:
    wait(world, "high", 4)
    world.start_scheduler()
    world.run()
    assert states(world) == {"low-b": "Requested"}
    world.remove_pods("low-b")
    world.run()
    world.start_scheduler()
    world.add_gang("older", worker=4, priority=10**9)
    world.run(3)
    assert world.phase("high") == "Admitted"


def test_a_new_process_completes_what_has_begun_even_if_preemption_is_off_now(world: GangWorld) -> None:
    wait(world, "high", 4)
    world.preemption = None
    world.start_scheduler()
    world.remove_pods("low-b")
    world.run(3)
    assert states(world) == {"low-b": "Preempted"}
    assert world.phase("high") == "Admitted"


def test_a_victim_that_is_suspended_meanwhile_is_released(world: GangWorld) -> None:
    wait(world, "high", 4)
    world.change_gang("low-b", {"spec": {"suspend": True}})
    world.remove_pods("low-b")
    world.run(3)
    assert world.gang("low-b").status.phase == "Released"
    assert states(world) == {}
    assert world.phase("high") == "Admitted"


def test_a_time_that_somebody_else_wrote_does_not_hold_the_gang_for_ever(world: GangWorld) -> None:
    for time in ("2999-01-01T00:00:00.000000Z", "tomorrow", "0001-01-01T00:00:00Z"):
        status = {"preemption": {"by": "x/y", "state": "Requested", "time": time}}
        world.change_gang("low-b", {"status": status})
        world.run()
        assert states(world)["low-b"] == "NotFollowed"


def test_an_elastic_gang_is_preempted_only_if_its_owner_does_not_shrink_it(
    world: GangWorld,
) -> None:
    world.remove_gang("low-b")
    world.run()
    world.start("elastic", 4, limits=(2, 4))
    world.clock.advance(GRACE)
    wait(world, "high", 2)
    assert states(world) == {}
    world.clock.advance(30)
    world.run()
    assert world.gang("elastic").status.target_members == {"worker": 2}
    for _ in range(3):
        world.clock.advance(30)
        world.run(2)
    assert states(world) == {"elastic": "Requested"}
