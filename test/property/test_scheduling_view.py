"""The cluster view against a model that counts everything again, under any order of events."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from helpers.examples import examples
from helpers.gangs import a_node, a_pod, a_view, workers
from tfjob_controller.api.common.cluster import FINISHED_PHASES, Node, ScheduledPod
from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MEMBER_LABEL
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.estimates import CapacityEstimate
from tfjob_controller.scheduling.podsets import pod_set_of

nodes = st.sampled_from(["n", "m"])
members = st.sampled_from(["worker-0", "worker-1", "ps-0"])
gangs = st.sampled_from(["g", "h"])
REQUESTS: Mapping[str, Mapping[str, int]] = {"worker": {"cpu": 1000, "pods": 1}, "ps": {"cpu": 3000, "pods": 1}}
DEMANDS = (
    pod_set_of(workers(3)),
    pod_set_of(workers(2, "3", name="ps", node_selector={"zone": "a"})),
)


class Machine(RuleBasedStateMachine):
    """`reservations` is (gang, member) → (node, attempt)."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ClusterView()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, ScheduledPod] = {}
        self.reservations: dict[tuple[str, str], tuple[str, int]] = {}

    @initialize()
    def begin(self) -> None:
        self.outlook = CapacityEstimate(self.view, DEMANDS)

    @rule(name=nodes, cpu=st.integers(0, 9), zone=st.sampled_from("ab"), ready=st.sampled_from(["True", "False"]))
    def node_is_there(self, name: str, cpu: int, zone: str, ready: str) -> None:
        self.nodes[name] = a_node(name, str(cpu), labels={"zone": zone}, ready=ready)
        self.view.set_node(self.nodes[name])

    @rule(name=nodes)
    def node_is_gone(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.view.remove_node(name)

    @rule(
        name=st.sampled_from("pqr"),
        node=st.sampled_from(["", "n", "m"]),
        cpu=st.integers(0, 3),
        gang=st.sampled_from(["", "g", "h"]),
        member=members,
        attempt=st.integers(1, 2),
        phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    )
    def pod_is_there(self, name: str, node: str, cpu: int, gang: str, member: str, attempt: int, phase: str) -> None:
        pod = a_pod(name, node, str(cpu), gang=gang, member=member, attempt=attempt, phase=phase)
        self.pods[name] = pod
        self.view.set_pod(pod)

    @rule(name=st.sampled_from("pqr"))
    def pod_is_gone(self, name: str) -> None:
        self.pods.pop(name, None)
        self.view.remove_pod(f"ns/{name}")

    @rule(gang=gangs, placement=st.dictionaries(members, nodes, min_size=1), attempt=st.integers(1, 2))
    def reserve(self, gang: str, placement: dict[str, str], attempt: int) -> None:
        self.view.reserve(f"ns/{gang}", placement, REQUESTS, attempt=attempt)
        self.reservations |= {(gang, member): (node, attempt) for member, node in placement.items()}

    @rule(gang=gangs, member=members)
    def release_member(self, gang: str, member: str) -> None:
        self.view.unreserve_member(f"ns/{gang}", member)
        self.reservations.pop((gang, member), None)

    @rule(gang=gangs)
    def release(self, gang: str) -> None:
        self.view.unreserve(f"ns/{gang}")
        self.reservations = {key: value for key, value in self.reservations.items() if key[0] != gang}

    @rule()
    def look(self) -> None:
        """Now and then, so that several changes come at once."""
        self.outlook.refresh()
        fresh = CapacityEstimate(self.view, DEMANDS)
        assert self.outlook.fingerprint() == fresh.fingerprint()
        assert self.outlook.is_sufficient == fresh.is_sufficient

    @invariant()
    def books_are_right(self) -> None:
        assert set(self.view.node_infos) == set(self.nodes)
        for name in self.nodes:
            assert self.view.free(name) == self.expected(name)

    @invariant()
    def pools_hold_what_suits(self) -> None:
        for pod_set in DEMANDS:
            found = {
                name: room
                for key, group in self.view.candidates(pod_set.node_filter).groups.items()
                for name, room in group.items()
                if room.free_key == key
            }
            suited = {name for name, node in self.nodes.items() if not pod_set.node_filter.rejection(node)}
            assert found == {name: self.view.node_infos[name] for name in suited}

    @invariant()
    def nothing_is_left_of_what_is_gone(self) -> None:
        statistics = self.view.statistics()
        assert statistics.gangs == len({gang for gang, _ in self.reservations})
        assert statistics.reserved_members == len(self.reservations)

    def expected(self, name: str) -> dict[str, int]:
        counted = [pod for pod in self.pods.values() if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES]
        left = dict(a_view(self.nodes[name]).free(name))
        taken = [requests_of(pod) for pod in counted if pod.spec.node_name == name]
        for (gang, member), (node, attempt) in self.reservations.items():
            wanted = {GANG_LABEL: gang, MEMBER_LABEL: member, ATTEMPT_LABEL: str(attempt)}
            covered = any(pod.metadata.labels == wanted and pod.spec.node_name == node for pod in counted)
            if node == name and not covered:
                taken.append(dict(REQUESTS[member[:-2]]))
        for each in taken:
            for resource, amount in each.items():
                left[resource] -= amount
        return left


TestView = Machine.TestCase
TestView.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
