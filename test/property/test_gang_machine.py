"""Gangs under any order of arrivals, losses, time-outs, slow writes, faults and restarts.

At any moment no node has more bound to it than it can take, and no gang leaves for one of equal or lower priority. Once
all faults have ended and nothing changes any more, each gang is bound as a whole or not at all, reservations equal the
Gangs' statuses, no gang waits that would fit, no resize request is out of bounds, and no gang is being preempted.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from helpers.examples import examples
from helpers.gangworld import BIND_TIMEOUT_SECONDS, NAMESPACE, GangWorld
from helpers.memoryapi import no_answer, refusal
from tfjob_controller.api.common.cluster import PriorityClass
from tfjob_controller.api.gang import ADMITTED, BOUND, MAX_MEMBERS, WAITING, must_leave, placed_nodes
from tfjob_controller.gangscheduler.admission.loop import RETRY_SECONDS
from tfjob_controller.gangscheduler.status.lifecycle import pods_by_member
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.autoscaling.elasticgang import member_index
from tfjob_controller.scheduling.preemption import PreemptionPolicy

NODES = ("a", "b", "c")
CPUS = 4
POLICY = PreemptionPolicy(after_seconds=5.0, grace_seconds=20.0)
MAX_GANGS = 5
# Longer than any rest after a failed attempt.
LONG_SECONDS = 120.0


class GangMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # A priority counts as it is.
        self.world = GangWorld(preemption=POLICY)
        self.world.priority_classes = [PriorityClass(ObjectMeta(name="default"), value=1, global_default=True)]
        self.numbers = 0
        # What each pod of a gang really takes, where that is more than the gang says.
        self.more: dict[str, int] = {}
        self.priorities: dict[str, int] = {}
        # The gangs whose pods are those of an Indexed Job.
        self.indexed: set[str] = set()
        # The last attempt of an earlier gang of the name, whose pods may still be there.
        self.earlier: dict[str, int] = {}
        for name in NODES:
            self.world.put_node(name, CPUS)

    # What users and owners do

    @precondition(lambda self: len(self.world.names()) < MAX_GANGS)
    @rule(
        workers=st.integers(0, 8),
        cpu=st.integers(1, 2),
        priority=st.integers(0, 1),
        more=st.sampled_from([0, 0, 1]),
        elastic=st.none() | st.tuples(st.integers(0, 4), st.integers(0, 3)),
        is_indexed=st.booleans(),
    )
    def a_gang_comes(
        self, workers: int, cpu: int, priority: int, more: int, elastic: tuple[int, int] | None, is_indexed: bool
    ) -> None:
        self.numbers += 1
        self.world.clock.advance(1)
        name = f"g{self.numbers}"
        if is_indexed:
            self.indexed.add(name)
        self.priorities[name] = priority
        self.more[name] = cpu + more if more else 0
        limits = None if elastic is None else (max(workers - elastic[0], 0), workers + elastic[1])
        self.world.add_gang(name, cpu=cpu, priority=priority, limits=limits, is_indexed=is_indexed, worker=workers)

    @precondition(lambda self: len(self.world.names()) < MAX_GANGS - 1)
    @rule(running=st.integers(2, 8), waiting=st.integers(1, 8), is_elastic=st.booleans())
    def a_gang_waits_for_one_of_lower_priority(self, running: int, waiting: int, is_elastic: bool) -> None:
        """Long enough to preempt it."""
        least = (1, 0) if is_elastic else None
        self.a_gang_comes(workers=running, cpu=1, priority=0, more=0, elastic=least, is_indexed=False)
        for _ in range(2):
            self.world.run()
            self.own(f"g{self.numbers}")
            self.world.schedule()
        self.world.run()
        self.world.clock.advance(POLICY.grace_seconds)
        self.a_gang_comes(workers=waiting, cpu=1, priority=1, more=0, elastic=None, is_indexed=False)
        self.world.run()
        self.world.clock.advance(POLICY.after_seconds)
        self.world.run()

    @precondition(lambda self: self.world.names())
    @rule(data=st.data())
    def a_gang_goes(self, data: st.DataObject) -> None:
        self.world.remove_gang(data.draw(st.sampled_from(self.world.names())))

    @precondition(lambda self: self.world.names())
    @rule(data=st.data(), is_suspended=st.booleans())
    def a_gang_is_suspended_or_resumed(self, data: st.DataObject, is_suspended: bool) -> None:
        name = data.draw(st.sampled_from(self.world.names()))
        self.world.change_gang(name, {"spec": {"suspend": is_suspended or None}})

    @precondition(lambda self: self.world.names())
    @rule(data=st.data())
    def a_gang_is_made_anew_under_its_name(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.world.names()))
        self.earlier[name] = max(self.earlier.get(name, 0), self.world.gang(name).status.attempt)
        self.world.remake_gang(name)

    @precondition(lambda self: self.world.names())
    @rule(data=st.data(), count=st.integers(0, 8), least=st.none() | st.integers(0, 2))
    def a_gang_grows_or_shrinks(self, data: st.DataObject, count: int, least: int | None) -> None:
        name = data.draw(st.sampled_from(self.world.names()))
        (member,) = self.world.gang(name).spec.members
        members = [msgspec.to_builtins(replace(member, count=count))]
        lower = None if least is None else {"worker": min(least, count)}
        upper = {kind: max(most, count) for kind, most in self.world.gang(name).spec.max_members.items()}
        self.world.change_gang(name, {"spec": {"members": members, "minMembers": lower, "maxMembers": upper}})

    @precondition(lambda self: self.world.names())
    @rule(data=st.data())
    def an_owner_acts(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.world.names()))
        self.own(name)

    @precondition(lambda self: self.world.names())
    @rule(data=st.data())
    def an_owner_does_as_it_is_asked(self, data: st.DataObject) -> None:
        self.follow(data.draw(st.sampled_from(self.world.names())))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def a_pod_is_told_to_end(self, data: st.DataObject) -> None:
        self.world.end_pod(data.draw(st.sampled_from(sorted(self.world.pods))).partition("/")[2])

    # What programs do

    @rule()
    def the_loop_runs(self) -> None:
        self.world.run()

    @rule(is_blind=st.booleans())
    def the_scheduler_asks(self, is_blind: bool) -> None:
        self.world.schedule(is_blind=is_blind)

    @rule()
    def the_gang_scheduler_starts_anew(self) -> None:
        self.world.start_scheduler()

    @rule(seconds=st.sampled_from([0.5, 5.0, BIND_TIMEOUT_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    # What goes wrong

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), how=st.sampled_from(["gone", "Succeeded", "Failed"]))
    def a_pod_ends(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.pods))).partition("/")[2]
        if how == "gone":
            self.world.remove_pod(name)
        elif self.world.pods[f"{NAMESPACE}/{name}"].spec.node_name:
            self.world.finish_pod(name, how)

    @rule(name=st.sampled_from(NODES), is_there=st.booleans())
    def a_node_comes_or_goes(self, name: str, is_there: bool) -> None:
        if is_there:
            self.world.put_node(name, CPUS)
        elif name in self.world.nodes:
            self.world.remove_node(name)

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), cpu=st.integers(1, CPUS))
    def another_scheduler_brings_a_pod(self, data: st.DataObject, cpu: int) -> None:
        node = data.draw(st.sampled_from(sorted(self.world.nodes)))
        if self.world.used(node) + self.world.coming(node) + cpu <= CPUS:
            self.numbers += 1
            self.world.put_pod(f"foreign-{self.numbers}", {}, cpu, node=node)

    @rule(fault=st.sampled_from(["conflict", "lost before", "lost after"]))
    def the_next_request_fails(self, fault: str) -> None:
        self.world.api.script.append(
            refusal(409, "Conflict") if fault == "conflict" else no_answer(applied=fault == "lost after")
        )
        self.world.run_pass()
        self.world.api.script.clear()
        self.world.deliver()

    @rule(is_after=st.booleans())
    def writes_hang(self, is_after: bool) -> None:
        self.world.slow_writes(is_after=is_after)

    @rule()
    def writes_end(self) -> None:
        self.world.end_writes()

    @rule(is_slow=st.booleans())
    def bindings_take_their_time(self, is_slow: bool) -> None:
        self.world.is_binding_slow = is_slow

    @rule(is_slow=st.booleans())
    def the_handler_of_pods_falls_behind_or_catches_up(self, is_slow: bool) -> None:
        self.world.is_pod_handler_slow = is_slow
        if not is_slow:
            self.world.deliver_pods()

    @rule()
    def bindings_land(self) -> None:
        self.world.end_bindings()

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data())
    def a_node_is_cordoned(self, data: st.DataObject) -> None:
        self.world.put_node(data.draw(st.sampled_from(sorted(self.world.nodes))), CPUS, unschedulable=True)

    @rule(seconds=st.sampled_from([-3600.0, 3600.0]))
    def the_clock_is_set(self, seconds: float) -> None:
        self.world.clock.jump(seconds)

    @rule(is_broken=st.booleans())
    def bindings_fail(self, is_broken: bool) -> None:
        self.world.is_binding_broken = is_broken

    # What must hold

    @invariant()
    def no_node_is_over_committed(self) -> None:
        for name in self.world.nodes:
            assert self.world.used(name) <= CPUS

    @invariant()
    def only_members_of_the_present_attempt_are_bound(self) -> None:
        for name in self.world.names():
            for pod in self.world.pods_of(name):
                attempt = int(pod.metadata.labels["scheduling.kubeflow.org/attempt"])
                assert attempt <= max(self.world.gang(name).status.attempt, self.earlier.get(name, 0))

    @invariant()
    def no_gang_leaves_for_one_that_is_not_more_important(self) -> None:
        for name in self.world.names():
            gang = self.world.gang(name)
            if must_leave(gang) and gang.status.preemption is not None:
                preemptor = gang.status.preemption.by.partition("/")[2]
                assert self.priorities[name] < self.priorities[preemptor]

    def teardown(self) -> None:
        self._come_to_rest()
        for name in self.world.names():
            assert not must_leave(self.world.gang(name))
            self._check_whole_or_nothing(name)
            self._check_wish(name)
        self._check_reservations()
        self._check_nobody_waits_in_vain()
        self.world.stop_writing()

    def own(self, name: str) -> None:
        self.world.delete_old_pods(name)
        self.world.is_indexed = name in self.indexed
        self.world.create_pods(name, cpu=self.more.get(name, 0))

    def follow(self, name: str) -> None:
        gang = self.world.gang(name)
        (member,) = gang.spec.members
        target = gang.status.target_members.get("worker", member.count)
        members = [msgspec.to_builtins(replace(member, count=target))]
        self.world.change_gang(name, {"spec": {"members": members}})

    def _come_to_rest(self) -> None:
        self.world.is_binding_broken = self.world.is_binding_slow = self.world.is_pod_handler_slow = False
        self.world.deliver_pods()
        self.world.end_bindings()
        self.world.api.script.clear()
        self.world.end_writes()
        # Failed requests are repeated.
        self.world.clock.advance(2 * RETRY_SECONDS)
        for _ in range(12):
            for name in self.world.names():
                self.own(name)
            self.world.schedule()
            self.world.run()
        for _ in range(4):
            self.world.clock.advance(LONG_SECONDS)
            for _ in range(6):
                for name in self.world.names():
                    self.follow(name)
                    self.own(name)
                self.world.schedule()
                self.world.run()

    def _check_wish(self, name: str) -> None:
        gang = self.world.gang(name)
        status, spec = gang.status, gang.spec
        assert bool(status.target_members) == bool(status.target_reason)
        assert "worker-0" not in status.leaving
        if not status.target_members:
            assert not status.leaving
            return
        assert status.phase == BOUND
        assert spec.min_members["worker"] <= status.target_members["worker"] <= spec.max_members["worker"]
        assert set(status.leaving) <= placed_nodes(status).keys()
        if spec.members[0].indexed:
            staying = placed_nodes(status).keys() - set(status.leaving)
            assert max(map(member_index, staying)) < min(map(member_index, status.leaving), default=MAX_MEMBERS)

    def _check_whole_or_nothing(self, name: str) -> None:
        gang = self.world.gang(name)
        living = [pod for pod in self.world.pods_of(name) if pod.status.phase not in ("Succeeded", "Failed")]
        bound = [pod for pod in living if pod.spec.node_name]
        assert gang.status.phase != ADMITTED
        if gang.status.phase == WAITING or gang.spec.suspend:
            assert not bound
        if gang.status.phase == BOUND:
            # A member whose old node is full, with no other that has room, waits for it: it is a replacement.
            assert len(bound) == len(living) or not self._has_room_for(gang.status.attempt, name)

    def _has_room_for(self, attempt: int, name: str) -> bool:
        cpu = self.more[name] or int(self.world.gang(name).spec.members[0].resources["cpu"])
        view = self.world.state.view
        return any(view.free(node).get("cpu", 0) >= 1000 * cpu for node in self._schedulable())

    def _schedulable(self) -> list[str]:
        return [node for node, body in self.world.nodes.items() if not body.spec.unschedulable]

    def _check_reservations(self) -> None:
        """What is reserved is what the Gangs say, but for members that have succeeded."""
        said = {f"{NAMESPACE}/{name}": self._reserved_for(name) for name in self.world.names()}
        for number in range(self.numbers + 1):
            key = f"{NAMESPACE}/g{number}"
            assert dict(self.world.state.view.reserved_members(key)) == said.get(key, {})

    def _reserved_for(self, name: str) -> dict[str, str]:
        gang = self.world.gang(name)
        if gang.status.phase not in (ADMITTED, BOUND) or gang.spec.suspend:
            return {}
        pods = pods_by_member(gang, self.world.pods_of(name))
        done = {member for member, pod in pods.items() if pod.status.phase == "Succeeded"}
        return {member: node for member, node in placed_nodes(gang.status).items() if member not in done}

    def _check_nobody_waits_in_vain(self) -> None:
        view = self.world.state.view
        for name in self.world.names():
            gang = self.world.gang(name)
            if gang.status.phase != WAITING or gang.spec.suspend or gang.status.position != 1:
                continue
            (member,) = self.world.state.observed_requests.apply(f"{NAMESPACE}/{name}", gang).spec.members
            least = max(1, gang.spec.min_members.get("worker", member.count))
            cpu = 1000 * int(member.resources["cpu"])
            room = sum(max(0, view.free(node).get("cpu", 0)) // cpu for node in self._schedulable())
            assert room < least, f"{name} waits although it fits"


TestGangMachine = GangMachine.TestCase
TestGangMachine.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
