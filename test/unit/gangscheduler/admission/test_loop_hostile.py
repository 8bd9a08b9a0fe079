"""One tenant must not keep another out with gangs that never start: simulated time, the loop and Permit as they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.gangworld import ADMITTED_TIMEOUT_SECONDS, BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld
from helpers.poll import eventually
from tfjob_controller.api.gang import ADMITTED, ATTEMPT_LABEL, BOUND, GANG_LABEL, MEMBER_LABEL
from tfjob_controller.scheduling.decisions import MAX_BACKOFF_SECONDS

STEP_SECONDS = 5.0
HOUR = 3600.0


def recreate_pod(world: GangWorld, gang: str, *, cpu: int, member: str = "worker-0") -> None:
    """A pod of the gang's present attempt, in place of the last one."""
    name = f"{gang}-pod"
    if f"{NAMESPACE}/{name}" in world.pods:
        world.remove_pod(name)
    labels = {GANG_LABEL: gang, MEMBER_LABEL: member, ATTEMPT_LABEL: str(world.gang(gang).status.attempt)}
    world.put_pod(name, labels, cpu)


def own(world: GangWorld, gang: str) -> None:
    """What the honest tenant's controller does."""
    world.delete_old_pods(gang)
    world.create_pods(gang)
    world.schedule()


def seconds_until_bound(world: GangWorld, honest: str, attack: object = None) -> float:
    """How long the honest gang waits, an hour at most; `attack` is called at each step."""
    begin = world.clock.monotonic()
    while world.clock.monotonic() - begin < HOUR:
        world.run(2)
        if callable(attack):
            attack()
        own(world, honest)
        if world.phase(honest) == BOUND:
            break
        world.clock.advance(STEP_SECONDS)
    return world.clock.monotonic() - begin


@pytest.mark.parametrize("cpu", [pytest.param(0, id="requests nothing"), pytest.param(1, id="as the gang says")])
def test_a_pod_that_is_recreated_again_and_again_keeps_nobody_out(world: GangWorld, cpu: int) -> None:
    world.admit("greedy", 8)
    world.clock.advance(1)
    world.add_gang("honest", worker=8)
    steps = iter(range(10_000))

    def attack() -> None:
        if next(steps) % 5 == 0:
            recreate_pod(world, "greedy", cpu=cpu)
            world.schedule()

    assert seconds_until_bound(world, "honest", attack) <= 2 * BIND_TIMEOUT_SECONDS + 25


def test_a_gang_whose_pods_come_one_by_one_is_given_up_as_a_whole(world: GangWorld) -> None:
    world.put_node("c", 92)
    world.admit("greedy", 100)
    world.clock.advance(1)
    world.add_gang("honest", worker=100)
    steps = iter(range(10_000))

    def attack() -> None:
        if (step := next(steps)) % 5 == 0:
            recreate_pod(world, "greedy", cpu=1, member=f"worker-{step // 5}")

    assert seconds_until_bound(world, "honest", attack) <= ADMITTED_TIMEOUT_SECONDS + BIND_TIMEOUT_SECONDS


def test_gangs_without_pods_that_take_turns_keep_nobody_out(world: GangWorld) -> None:
    for name in ("one", "three", "two"):
        world.add_gang(name, worker=8)
    world.run()
    world.clock.advance(1)
    world.add_gang("honest", worker=8)
    assert seconds_until_bound(world, "honest") <= 15 * BIND_TIMEOUT_SECONDS


def test_a_gang_without_pods_keeps_its_age_twice_and_says_when_it_loses_it(world: GangWorld) -> None:
    world.add_gang("empty", worker=8)
    world.run()
    queued = world.gang("empty").status.queued_time
    for attempt in (1, 2, 3):
        assert (world.phase("empty"), world.gang("empty").status.attempt) == (ADMITTED, attempt)
        assert world.gang("empty").status.queued_time == queued
        world.clock.advance(BIND_TIMEOUT_SECONDS)
        world.run(2)
        status = world.gang("empty").status
        assert ("its age counts from now" in status.message) == (attempt == 3)
        world.clock.advance(MAX_BACKOFF_SECONDS)
        world.run()
    assert status.queued_time != queued
    assert status.message.endswith("No pod was created in 3 attempts, so its age counts from now")


def test_a_gang_with_pods_keeps_its_age(world: GangWorld) -> None:
    world.add_gang("slow", worker=8)
    world.run()
    queued = world.gang("slow").status.queued_time
    for _ in range(5):
        world.create_pods("slow")
        world.clock.advance(BIND_TIMEOUT_SECONDS + 1)
        world.run(2)
        assert world.gang("slow").status.queued_time == queued
        world.delete_old_pods("slow")
        world.clock.advance(MAX_BACKOFF_SECONDS)
        world.run()
        assert world.phase("slow") == ADMITTED


def test_a_new_process_knows_the_pods_that_exist(world: GangWorld) -> None:
    world.add_gang("slow", worker=8)
    world.run()
    world.create_pods("slow")
    world.start_scheduler()
    world.run()
    assert world.permit.has_progress(f"{NAMESPACE}/slow")


def test_a_pod_without_the_gangs_kind_of_controller_is_no_progress(world: GangWorld) -> None:
    world.add_gang("owned", worker=8)
    owner = {"apiVersion": "v1", "kind": "TFJob", "name": "owned", "uid": "1", "controller": True}
    world.change_gang("owned", {"metadata": {"ownerReferences": [owner]}})
    world.run()
    world.create_pods("owned")
    assert not world.permit.has_progress(f"{NAMESPACE}/owned")


def test_large_filters_are_evaluated_before_the_views_lock_is_taken(world: GangWorld) -> None:
    """With the lock taken by somebody else, a pass gets as far as to have evaluated them."""
    world.add_gang("large", worker=2)
    terms = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [f"z-{n}"]}]} for n in range(64)]
    member = {"name": "worker", "count": 2, "resources": {"cpu": "1"}, "nodeAffinity": {"nodeSelectorTerms": terms}}
    world.change_gang("large", {"spec": {"members": [member]}})
    verdicts = world.state.view.verdicts
    assert verdicts.filters == []
    with ThreadPoolExecutor(1) as pool:
        with world.state.lock:
            running = pool.submit(world.run)
            eventually(lambda: verdicts.size_bytes > 0)
            assert not running.done()
        running.result(timeout=10)
    assert world.phase("large") == ADMITTED
