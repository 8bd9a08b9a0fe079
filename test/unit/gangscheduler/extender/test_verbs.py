"""The rules of gangscheduler/extender/verbs.py: what `filter` and `bind` answer, and which node a member gets."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from helpers.extenderparts import Table, binding, other_pod, pod
from helpers.gangworld import NAMESPACE, GangWorld
from tfjob_controller.gangscheduler.bindrequests import STOPPING, BindRequest, GangMember
from tfjob_controller.gangscheduler.extender import verbs as service_module
from tfjob_controller.gangscheduler.extender.verbs import (
    NO_GANG,
    NODE_NOT_OFFERED,
    NODE_REJECTED,
    NOT_A_MEMBER,
    NOT_ADMITTED,
    NOT_FILTERED,
    OLD_ATTEMPT,
    RESERVED,
    UNREADABLE,
    ExtenderVerbs,
    NodeAssignment,
)
from tfjob_controller.gangscheduler.extender.wire import (
    BindResult,
    FilterResult,
    WirePod,
    decode_bind_args,
    decode_filter_args,
)
from tfjob_controller.gangscheduler.permit.permit import OnResponse
from tfjob_controller.kube.meta import ObjectMeta


@dataclass
class Gate:
    """Who came; answered by the test."""

    members: list[tuple[GangMember, BindRequest]] = field(default_factory=list)
    others: list[BindRequest] = field(default_factory=list)
    answers: list[OnResponse] = field(default_factory=list)

    def request_bind(self, who: GangMember, pod: BindRequest, on_response: OnResponse) -> None:
        self.members.append((who, pod))
        self.answers.append(on_response)

    def bind_single(self, pod: BindRequest, on_response: OnResponse) -> None:
        self.others.append(pod)
        self.answers.append(on_response)


@dataclass
class Refusals:
    refused: list[tuple[str, str]] = field(default_factory=list)

    def node_rejected(self, who: GangMember, node: str) -> None:
        self.refused.append((who.name, node))


class Trial:
    def __init__(self) -> None:
        self.table, self.permit, self.refusals = Table(), Gate(), Refusals()
        self.table.place("ns/gang", {"worker-0": "n0", "worker-1": "n1"})
        self.service = ExtenderVerbs(self.table, self.permit, self.refusals)

    def filter(self, of: dict[str, Any], *names: str) -> FilterResult:
        return self.service.filter(decode_filter_args(json.dumps({"Pod": of, "NodeNames": names}).encode()))

    async def bind(self, of: dict[str, Any], node: str) -> str:
        result: asyncio.Future[BindResult] = asyncio.get_running_loop().create_future()
        self.service.bind(decode_bind_args(json.dumps(binding(of, node)).encode()), result.set_result)
        return (await result).error

    def bind_with(self, of: dict[str, Any], node: str, error: str) -> str:
        """Returns the response to a bind call, to which the gate answers with this error if it is asked."""

        async def run() -> str:
            call = asyncio.create_task(self.bind(of, node))
            await asyncio.sleep(0)
            while self.permit.answers:
                self.permit.answers.pop()(error)
            return await call

        return asyncio.run(run())


def test_a_member_gets_exactly_its_node() -> None:
    answer = Trial().filter(pod("worker-1"), "n0", "n1", "n2")
    assert (answer.node_names, answer.error) == (["n1"], "")


def test_a_member_without_a_node_is_refused_everywhere_as_preemption_cannot_help() -> None:
    trial = Trial()
    trial.table.nodes["ns/gang", 1, "worker-0"] = NodeAssignment(reason="waits")
    answer = trial.filter(pod("worker-0"), "n0", "n1")
    assert (list(answer.node_names), answer.failed_nodes) == ([], {})
    assert answer.unresolvable_nodes == {"n0": "waits", "n1": "waits"}
    assert trial.refusals.refused == []


def test_a_node_that_kube_scheduler_refuses_is_reported_and_no_other_is_answered() -> None:
    trial = Trial()
    answer = trial.filter(pod("worker-1"), "n0", "n2")
    assert answer.unresolvable_nodes == {"n0": NODE_REJECTED, "n2": NODE_REJECTED}
    assert trial.refusals.refused == [("worker-1", "n1")]


def test_without_any_node_nothing_is_said_of_one() -> None:
    trial = Trial()
    assert trial.filter(pod("worker-1")) == FilterResult(unresolvable_nodes={})
    assert trial.refusals.refused == []


def test_other_pods_are_kept_off_reserved_capacity() -> None:
    trial = Trial()
    trial.table.closed = {"n1": "reserved"}
    answer = trial.filter(other_pod("p"), "n0", "n1")
    assert (answer.node_names, answer.unresolvable_nodes) == (["n0"], {"n1": "reserved"})


def test_a_members_bind_is_the_gates_to_answer() -> None:
    trial = Trial()

    async def run() -> str:
        trial.filter(pod("worker-0"), "n0")
        answer = asyncio.create_task(trial.bind(pod("worker-0"), "n0"))
        await asyncio.sleep(0)
        assert not answer.done()
        trial.permit.answers[0]("late")
        return await answer

    assert asyncio.run(run()) == "late"
    expected = BindRequest("ns", "gang-worker-0", "uid-gang-worker-0", "n0")
    assert trial.permit.members == [(GangMember("ns/gang", 1, "worker-0"), expected)]


def test_another_pods_bind_waits_for_nobody() -> None:
    trial = Trial()
    trial.filter(other_pod("p"), "n0", "n1")
    assert trial.bind_with(other_pod("p"), "n1", "") == ""
    assert trial.permit.others == [BindRequest("ns", "p", "uid-p", "n1")]


@pytest.mark.parametrize(
    ("filtered", "node", "error"),
    [
        pytest.param(False, "n0", NOT_FILTERED, id="not filtered"),
        pytest.param(True, "n1", NODE_NOT_OFFERED, id="another node"),
    ],
)
def test_only_what_filter_has_answered_is_bound(filtered: bool, node: str, error: str) -> None:
    trial = Trial()
    if filtered:
        trial.filter(pod("worker-0"), "n0", "n1")
    assert asyncio.run(trial.bind(pod("worker-0"), node)) == error
    assert trial.permit.members == []


@pytest.mark.parametrize(
    ("node", "error"),
    [
        pytest.param("n0", "", id="a node that filter returned"),
        pytest.param("n1", NODE_NOT_OFFERED, id="a node that filter rejected"),
        pytest.param("n2", NODE_NOT_OFFERED, id="a node that was not filtered"),
        pytest.param("n", NODE_NOT_OFFERED, id="the beginning of a node's name"),
    ],
)
def test_a_pod_of_no_gang_is_bound_only_to_a_node_that_filter_returned_for_it(node: str, error: str) -> None:
    trial = Trial()
    trial.filter(other_pod("q"), "n1", "n2")
    trial.table.closed = {"n1": "reserved", "n3": "reserved"}
    trial.filter(other_pod("p"), "n0", "n1", "n3")
    assert trial.bind_with(other_pod("p"), node, "") == error
    assert [pod.node for pod in trial.permit.others] == ([] if error else [node])


def test_without_a_rejection_a_pod_of_no_gang_is_bound_only_to_a_node_of_the_request() -> None:
    trial = Trial()
    trial.filter(other_pod("p"), "n0", "n1")
    assert asyncio.run(trial.bind(other_pod("p"), "n2")) == NODE_NOT_OFFERED
    assert trial.permit.others == []


@pytest.mark.parametrize(
    ("names", "error"),
    [pytest.param(["n1"], NODE_NOT_OFFERED, id="another node"), pytest.param([], NOT_FILTERED, id="no node")],
)
def test_only_the_latest_response_of_filter_counts(names: list[str], error: str) -> None:
    trial = Trial()
    trial.filter(other_pod("p"), "n0")
    trial.filter(other_pod("p"), *names)
    assert asyncio.run(trial.bind(other_pod("p"), "n0")) == error


def test_what_is_remembered_of_filtered_pods_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 200_000
    monkeypatch.setattr(service_module, "_MAX_NODE_BYTES", bound, raising=False)
    trial = Trial()
    trial.filter(other_pod("warm-up"), "n0")
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(60):
        trial.filter(other_pod(f"p{number}"), *(f"node-{number}-{node:05d}" for node in range(1000)))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1.5 * bound
    assert asyncio.run(trial.bind(other_pod("p0"), "node-0-00000")) == NOT_FILTERED
    assert asyncio.run(trial.bind(other_pod("p59"), "node-0-00000")) == NODE_NOT_OFFERED


@pytest.mark.parametrize("closed", [{}, {"n1": "reserved"}], ids=["all nodes returned", "some rejected"])
def test_pods_with_the_same_nodes_share_what_is_remembered(
    monkeypatch: pytest.MonkeyPatch, closed: dict[str, str]
) -> None:
    """Two lists of some bytes alternate: a bound of three lists keeps all pods, and not one pod of a fourth list."""
    first, second = ["n0", "n1", "n2"], ["n0", "n1", "n3"]
    monkeypatch.setattr(service_module, "_MAX_NODE_BYTES", 3 * len(json.dumps(first)))
    trial = Trial()
    trial.table.closed = closed
    for number in range(100):
        trial.filter(other_pod(f"p{number}"), *(second if number % 2 else first))
    assert asyncio.run(trial.bind(other_pod("p0"), "n3")) == NODE_NOT_OFFERED
    assert asyncio.run(trial.bind(other_pod("p1"), "n2")) == NODE_NOT_OFFERED
    for number in range(100, 104):
        trial.filter(other_pod(f"p{number}"), *(f"n{number}{index}" for index in range(3)))
    assert asyncio.run(trial.bind(other_pod("p0"), "n3")) == NOT_FILTERED
    assert asyncio.run(trial.bind(other_pod("p103"), "n3")) == NODE_NOT_OFFERED


def test_a_failed_bind_may_come_again_without_a_filter() -> None:
    """kube-scheduler filters again, but it does no harm to know."""
    trial = Trial()
    trial.filter(pod("worker-0"), "n0")
    assert trial.bind_with(pod("worker-0"), "n0", "no") == "no"
    assert trial.bind_with(pod("worker-0"), "n0", "") == ""
    assert asyncio.run(trial.bind(pod("worker-0"), "n0")) == NOT_FILTERED


def test_pods_that_are_never_bound_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_MAX_FILTERED_PODS", 2)
    trial = Trial()
    for name in ("a", "b", "a", "c"):
        trial.filter(other_pod(name), "n0")
    assert asyncio.run(trial.bind(other_pod("b"), "n0")) == NOT_FILTERED


def in_namespace(of: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**of, "metadata": {**of["metadata"], "namespace": namespace}}


@pytest.mark.parametrize(
    "bounds", [{"_MAX_FILTERED_PODS": 10}, {"_MAX_NODE_BYTES": 300}], ids=["number of pods", "bytes of nodes"]
)
def test_a_namespace_with_many_filtered_pods_has_its_own_forgotten(
    monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int]
) -> None:
    for name, bound in bounds.items():
        monkeypatch.setattr(service_module, name, bound)
    trial = Trial()
    trial.filter(in_namespace(other_pod("waits"), "team"), "n0")
    trial.filter(pod("worker-0"), "n0")
    for number in range(100):
        trial.filter(in_namespace(other_pod(f"p{number}"), "hostile"), f"n{number}")
    assert asyncio.run(trial.bind(in_namespace(other_pod("waits"), "team"), "other")) == NODE_NOT_OFFERED
    assert asyncio.run(trial.bind(pod("worker-0"), "other")) == NODE_NOT_OFFERED
    assert asyncio.run(trial.bind(in_namespace(other_pod("p0"), "hostile"), "n0")) == NOT_FILTERED


def test_stop_answers_parked_calls_and_refuses_later_ones() -> None:
    trial = Trial()

    async def run() -> list[str]:
        trial.filter(pod("worker-0"), "n0")
        parked = asyncio.create_task(trial.bind(pod("worker-0"), "n0"))
        await asyncio.sleep(0)
        trial.service.stop()
        return [await parked, await trial.bind(pod("worker-0"), "n0")]

    assert asyncio.run(run()) == [STOPPING, STOPPING]
    trial.permit.answers[0]("too late: the loop has ended")


def test_answers_from_other_threads_are_given_in_the_event_loop_and_none_is_lost() -> None:
    trial = Trial()
    names = [f"worker-{number}" for number in range(300)]
    trial.table.place("ns/gang", dict.fromkeys(names, "n0"))

    async def run() -> list[str]:
        for name in names:
            trial.filter(pod(name), "n0")
        calls = [asyncio.create_task(trial.bind(pod(name), "n0")) for name in names]
        await asyncio.sleep(0)
        with ThreadPoolExecutor(8) as threads:
            for number, on_response in enumerate(trial.permit.answers):
                threads.submit(on_response, f"error {number}")
            return await asyncio.gather(*calls)

    assert asyncio.run(run()) == [f"error {number}" for number in range(300)]


def test_an_event_loop_that_is_started_again_answers_too() -> None:
    trial = Trial()

    async def left() -> None:
        trial.filter(pod("worker-0"), "n0")
        call = asyncio.create_task(trial.bind(pod("worker-0"), "n0"))
        await asyncio.sleep(0)
        call.cancel()

    async def run() -> str:
        trial.filter(pod("worker-1"), "n1")
        call = asyncio.create_task(trial.bind(pod("worker-1"), "n1"))
        await asyncio.sleep(0)
        trial.permit.answers[1]("second life")
        return await call

    asyncio.run(left())
    trial.permit.answers[0]("nobody waits any more")
    assert asyncio.run(run()) == "second life"


def test_a_call_is_answered_once() -> None:
    trial = Trial()
    results: list[str] = []

    async def run() -> None:
        trial.filter(pod("worker-0"), "n0")
        args = decode_bind_args(json.dumps(binding(pod("worker-0"), "n0")).encode())
        trial.service.bind(args, lambda result: results.append(result.error))
        trial.service.stop()
        trial.permit.answers[0]("too late")
        # What was handed over before comes first.
        over = asyncio.Event()
        asyncio.get_running_loop().call_soon_threadsafe(over.set)
        await over.wait()

    asyncio.run(run())
    assert results == [STOPPING]


# The look-up of placements

KEY = f"{NAMESPACE}/one"
ATTEMPT = "scheduling.kubeflow.org/attempt"
LABELS = {
    "scheduling.kubeflow.org/gang": "one",
    "scheduling.kubeflow.org/member": "worker-0",
    ATTEMPT: "1",
}
NO_QUANTITY = b'{"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}'


def wire_pod(labels: dict[str, str], body: bytes = b"{}") -> WirePod:
    return WirePod(ObjectMeta(name="pod", namespace=NAMESPACE, labels=labels), body)


def foreign(cpu: str) -> WirePod:
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return wire_pod({}, msgspec.json.encode({"metadata": {"name": "foreign", "namespace": NAMESPACE}, "spec": spec}))


@pytest.mark.parametrize(
    ("labels", "who"),
    [
        pytest.param({}, None, id="no gang's"),
        pytest.param(LABELS, GangMember(KEY, 1, "worker-0"), id="a member"),
        pytest.param({**LABELS, ATTEMPT: "one"}, GangMember(KEY, -1, "worker-0"), id="no number"),
        pytest.param({**LABELS, ATTEMPT: "9" * 40}, GangMember(KEY, -1, "worker-0"), id="too large"),
        pytest.param({"scheduling.kubeflow.org/gang": "one"}, GangMember(KEY, -1, ""), id="nothing but the gang"),
        pytest.param(
            {**LABELS, "scheduling.kubeflow.org/gang": "other/one"},
            GangMember(f"{NAMESPACE}/other/one", 1, "worker-0"),
            id="a gang of another namespace, which is none",
        ),
        pytest.param(
            {
                "scheduling.kubeflow.org/gang": "one",
                "scheduling.kubeflow.org/member-kind": "node",
                "batch.kubernetes.io/job-completion-index": "17",
                ATTEMPT: "2",
            },
            GangMember(KEY, 2, "node-17"),
            id="a pod of an Indexed Job",
        ),
    ],
)
def test_the_labels_of_a_pod_name_its_member(world: GangWorld, labels: dict[str, str], who: GangMember | None) -> None:
    assert world.placements.member_of(wire_pod(labels)) == who


def test_a_gang_that_waits_has_no_node_for_anybody(world: GangWorld) -> None:
    world.add_gang("one", worker=100)
    world.run()
    assert world.placements.node_for(KEY, 1, "worker-0").reason == NOT_ADMITTED


def test_a_member_goes_where_it_was_placed_and_nobody_else_does(world: GangWorld) -> None:
    world.add_gang("one", worker=2)
    world.run()
    assert world.placements.node_for(KEY, 1, "worker-1").node in ("a", "b")
    assert world.placements.node_for(KEY, 1, "worker-2").reason == NOT_A_MEMBER
    assert world.placements.node_for(KEY, 2, "worker-0").reason == OLD_ATTEMPT
    assert world.placements.node_for(f"{NAMESPACE}/other", 1, "worker-0").reason == NO_GANG
    assert world.placements.node_for("elsewhere/one", 1, "worker-0").reason == NO_GANG


def test_another_pod_gets_only_nodes_with_capacity_that_nobody_has_reserved(world: GangWorld) -> None:
    world.add_gang("one", worker=3)
    world.run()
    node = world.placements.node_for(KEY, 1, "worker-0").node
    other = "b" if node == "a" else "a"
    assert world.placements.allowed_nodes(foreign("1"), ["a", "b"]) == (["a", "b"], {})
    assert world.placements.allowed_nodes(foreign("2"), ["a", "b"]) == ([other], {node: RESERVED})


def test_no_answer_waits_for_a_pass_of_the_loop(world: GangWorld) -> None:
    """The loop holds the view's lock while it decides, which the Gangs of one tenant may make long."""
    world.add_gang("one", worker=2)
    world.run()
    with ThreadPoolExecutor(1) as pool, world.state.lock:
        other = pool.submit(world.placements.allowed_nodes, foreign("1"), ["a", "b"])
        assert other.result(timeout=10) == (["a", "b"], {})
        member = pool.submit(world.placements.node_for, KEY, 1, "worker-0")
        assert member.result(timeout=10).node in ("a", "b")


def test_a_node_that_is_not_known_yet_is_kube_schedulers_to_judge(world: GangWorld) -> None:
    assert world.placements.allowed_nodes(foreign("1"), ["new"]) == (["new"], {})


@pytest.mark.parametrize("body", [b"[]", b"{", NO_QUANTITY], ids=["no object", "no JSON", "no quantity"])
def test_a_pod_that_cannot_be_read_goes_nowhere(world: GangWorld, body: bytes) -> None:
    assert world.placements.allowed_nodes(wire_pod({}, body), ["a"]) == ((), {"a": UNREADABLE})
