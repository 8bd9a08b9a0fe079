"""The machine under every order of arrivals, losses, failed Bindings, time-outs, moves and restarts.

It runs in a simulated cluster: pods that exist or not and are bound or not, a kube-scheduler that sends bind calls for
unbound ones, an API server whose responses come in any order. Whatever happens: nothing of an attempt is bound before
all of it has come; every call is answered once; nobody is bound to a node that the placement did not say; and when all
has come to rest the bound set is complete, or empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from helpers.examples import examples
from tfjob_controller.gangscheduler.bindrequests import BindRequest, GangMember
from tfjob_controller.gangscheduler.permit.machine import PermitMachine
from tfjob_controller.gangscheduler.permit.members import (
    AttemptRejected,
    BindResponse,
    GangBound,
    PermitOutput,
    PostBindings,
)

GANG = "ns/gang"
MEMBERS = [f"worker-{number}" for number in range(4)]
CALL_TIMEOUT, BIND_TIMEOUT, ADMITTED_TIMEOUT = 40.0, 60.0, 300.0

members = st.sampled_from(MEMBERS)


@dataclass
class Pod:
    uid: str
    bound_to: str = ""


class Cluster(RuleBasedStateMachine):
    """One gang; more would not meet."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.attempt = 0
        self.numbers = 0
        self.pods: dict[str, Pod] = {}
        self.open_calls: set[int] = set()
        self.under_way: list[tuple[str, BindRequest]] = []
        self.machine = self.new_machine()

    @initialize(nodes=st.dictionaries(members, st.sampled_from("ab"), min_size=1))
    def begin(self, nodes: dict[str, str]) -> None:
        self.nodes = nodes
        self.next_attempt()

    @rule(member=members)
    def create(self, member: str) -> None:
        if member in self.nodes and member not in self.pods:
            self.pods[member] = Pod(f"uid-{self.number()}")
            self.own.add(self.pods[member].uid)
            self.machine.note_progress(GANG, self.attempt, member, self.now)

    @rule(member=members)
    def come(self, member: str) -> None:
        """kube-scheduler brings a pod that it does not see bound, to the node that filter says."""
        if member in self.nodes and member in self.pods:
            self.request_bind(GangMember(GANG, self.attempt, member), self.pods[member].uid, self.nodes[member])

    @rule(member=members, attempt=st.integers(-1, 1), node=st.sampled_from("abc"), name=st.sampled_from(["", "x"]))
    def intrude(self, member: str, attempt: int, node: str, name: str) -> None:
        """Somebody who may not be bound: of another attempt, no member, or on a node that nobody answered."""
        if attempt or name or node == "c":
            self.request_bind(GangMember(GANG, self.attempt + attempt, name + member), f"uid-{self.number()}", node)

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 10), is_refused=st.booleans())
    def land(self, which: int, is_refused: bool) -> None:
        member, pod = self.under_way.pop(which % len(self.under_way))
        attempt = self.attempt
        error = "refused" if is_refused else self.bind(member, pod)
        self.close_if_none_is_bound()
        self.follow(self.machine.record_result(GANG, attempt, member, pod.uid, error, self.now))

    @rule(member=members, is_seen_late=st.booleans())
    def vanish(self, member: str, is_seen_late: bool) -> None:
        pod = self.pods.pop(member, None)
        if pod is not None and is_seen_late:
            self.create(member)
            self.come(member)
        if pod is not None:
            self.close_if_none_is_bound()
            self.follow(self.machine.remove_pod(GANG, member, pod.uid))

    @rule(wanted=st.dictionaries(members, st.sampled_from("ab")))
    def move(self, wanted: dict[str, str]) -> None:
        """Members are placed anew, but those whose Bindings are under way or done."""
        wanted = {member: node for member, node in wanted.items() if member in self.nodes}
        outputs, moved = self.machine.reassign(GANG, wanted)
        fixed = {member for member, _ in self.under_way} | {each for each, pod in self.pods.items() if pod.bound_to}
        assert not moved & fixed
        self.nodes |= {member: wanted[member] for member in moved}
        self.follow(outputs)
        self.set_placement()

    @rule()
    def reject(self) -> None:
        """The gang is suspended: its attempt ends as if it had been given up; one that was bound is resumed."""
        self.follow(self.machine.reject(GANG))
        if self.was_bound:
            self.set_placement()

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.machine.tick(self.now))

    @rule(are_landed=st.booleans())
    def restart(self, are_landed: bool) -> None:
        """The process dies; the Bindings that it has sent arrive, or do not."""
        self.follow(self.machine.stop())
        for member, pod in self.under_way if are_landed else ():
            self.bind(member, pod)
        self.under_way.clear()
        self.machine = self.new_machine()
        self.is_open = self.was_bound or any(pod.bound_to for pod in self.pods.values())
        self.set_placement()

    def teardown(self) -> None:
        if self.attempt % 2:
            self.finish()
        else:
            self.abandon()
        assert not self.open_calls
        bound = {member for member, pod in self.pods.items() if pod.bound_to}
        assert self.was_bound or not bound

    def finish(self) -> None:
        """Everything works from now on."""
        for _ in range(4):
            for member in self.nodes:
                self.create(member)
                self.come(member)
            while self.under_way:
                self.land(0, False)
        assert self.was_bound
        assert all(self.pods[member].bound_to for member in self.nodes)

    def abandon(self) -> None:
        """Nobody comes any more."""
        while self.under_way:
            self.land(0, False)
        attempt = self.attempt
        self.wait(BIND_TIMEOUT)
        self.wait(CALL_TIMEOUT)
        assert self.was_bound or self.attempt > attempt

    def close_if_none_is_bound(self) -> None:
        """Nothing is bound any more: all must come together again."""
        if not self.was_bound and not self.under_way and not any(pod.bound_to for pod in self.pods.values()):
            self.is_open = False

    def new_machine(self) -> PermitMachine:
        return PermitMachine(
            call_timeout_seconds=CALL_TIMEOUT,
            bind_timeout_seconds=BIND_TIMEOUT,
            admitted_timeout_seconds=ADMITTED_TIMEOUT,
        )

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def next_attempt(self) -> None:
        """The owner has deleted all pods, and the gang was admitted anew."""
        self.attempt += 1
        self.pods.clear()
        self.own: set[str] = set()
        self.is_open = self.was_bound = False
        self.set_placement()

    def set_placement(self) -> None:
        bound = {member: pod.uid for member, pod in self.pods.items() if pod.bound_to}
        self.follow(
            self.machine.set_placement(GANG, self.attempt, self.nodes, self.now, bound=bound, was_bound=self.was_bound)
        )

    def request_bind(self, who: GangMember, uid: str, node: str) -> None:
        call = self.number()
        self.open_calls.add(call)
        self.follow(self.machine.request_bind(call, who, BindRequest("ns", who.name, uid, node), self.now))

    def bind(self, member: str, wanted: BindRequest) -> str:
        """What the API server does; its error."""
        pod = self.pods.get(member)
        if pod is None or pod.uid != wanted.uid:
            return "gone"
        assert pod.bound_to in ("", wanted.node)
        pod.bound_to = wanted.node
        return ""

    def follow(self, outputs: list[PermitOutput]) -> None:
        for output in outputs:
            if isinstance(output, BindResponse):
                self.open_calls.remove(output.call)
            elif isinstance(output, PostBindings):
                self.check_posted(output)
                self.under_way += output.pods
            elif isinstance(output, GangBound):
                assert not self.was_bound
                self.was_bound = True
            elif isinstance(output, AttemptRejected):
                assert output.attempt == self.attempt
                assert not self.under_way
                if not self.was_bound:
                    self.next_attempt()

    def check_posted(self, output: PostBindings) -> None:
        assert output.attempt == self.attempt
        posted = dict(output.pods)
        if not self.is_open:
            assert posted.keys() == self.nodes.keys()
            self.is_open = True
        for member, pod in posted.items():
            assert pod.node == self.nodes[member]
            assert pod.uid in self.own


class TestBarrier(Cluster.TestCase):  # type: ignore[misc]  # hypothesis makes it
    settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
