"""Invalid gangs, pods, statuses and calls: each gets an error, and none affects another gang.

Every case has a node of its own (a pool) and they all happen at once, under one gang scheduler and a real
kube-scheduler; a gang beside them stays as it is, and one that comes after them is bound.
"""

from __future__ import annotations

import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.extenderprocess import extender_process
from helpers.gangkeeper import POOL, PREFIX, Keeper, Seen
from helpers.poll import eventually
from localcluster.fakekubelet import make_node
from localcluster.ourprogram import EXTENDER, OurProgram
from localcluster.programs import LOOPBACK
from tfjob_controller.gangscheduler.bindrequests import SECOND_POD
from tfjob_controller.gangscheduler.extender.verbs import NO_GANG, NOT_A_MEMBER, NOT_FILTERED, OLD_ATTEMPT

pytestmark = pytest.mark.cluster

SIZE = 3
WORKERS = tuple(f"worker-{number}" for number in range(SIZE))
ROOM = {"cpu": str(SIZE), "memory": "8Gi", "pods": "20"}
BESIDE = "beside"
# Of two lives of the gang scheduler: in the first none is given up, however slow the machine is, in the second all are.
NEVER, SOON = "--bind-timeout=10m", "--bind-timeout=2s"
CALLS = 10_000

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """`act` when the gang (none with `count` None) is in phase `first`; after which `ends` is true of it and its pods.

    `tended`: its owner does meanwhile what owners do.
    """

    id: str
    ends: Callable[[Seen], bool]
    act: Callable[[Keeper, str], object] = lambda _keeper, _name: None
    count: int | None = SIZE
    first: str = "Admitted"
    tended: bool = False

    @property
    def name(self) -> str:
        return self.id.replace(" ", "-")


def says(seen: Seen, pod: str, words: str) -> bool:
    """kube-scheduler says so of a pod that has no node."""
    found = seen.pods.get(pod, {})
    return not found.get("spec", {}).get("nodeName") and words in str(found.get("status", {}).get("conditions"))


def with_odd(*labels: Mapping[str, str]) -> Callable[[Keeper, str], None]:
    """All that belong to the gang, and before the last of them one with each of these labels, which takes no room."""

    def act(keeper: Keeper, name: str) -> None:
        keeper.make(name, *WORKERS[:-1])
        for number, each in enumerate(labels):
            body = keeper.pod_of(name, WORKERS[0], 1)
            body["metadata"]["name"] = f"{name}-odd-{number}"
            body["metadata"]["labels"] |= {PREFIX + key: value for key, value in each.items()}
            body["spec"]["containers"][0]["resources"] = {}
            keeper.api.create(keeper.pods_path, body)
        keeper.make(name, WORKERS[-1])

    return act


def odd_says(words: str) -> Callable[[Seen], bool]:
    """The gang is bound, and each odd pod is refused in these words."""

    def ends(seen: Seen) -> bool:
        odd = {name for name in seen.pods if "-odd-" in name}
        is_said = all(says(seen, name, words) for name in odd)
        bound = [name for name, each in seen.pods.items() if each["spec"].get("nodeName")]
        return seen.phase == "Bound" and bool(odd) and is_said and len(bound) == SIZE

    return ends


def greedy(keeper: Keeper, name: str) -> None:
    """Pods that each request all that the whole gang was promised."""
    containers = [{"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": str(SIZE)}}}]
    for number in range(SIZE):
        keeper.make_pod(name, f"worker-{number}", 1, containers=containers)


def edited(**status: Any) -> Callable[[Keeper, str], object]:
    return lambda keeper, name: keeper.api.patch(f"{keeper.gangs_path}/{name}/status", {"status": status})


def made_again(keeper: Keeper, name: str) -> None:
    """Another gang of the same name, while pods of the first wait for the last one."""
    keeper.make(name, *WORKERS[:-1])
    keeper.api.delete(f"{keeper.gangs_path}/{name}")
    keeper.submit(name, SIZE, pool=name)


def placed(node: str, *members: str) -> list[Object]:
    return [{"node": node, "members": list(members)}]


def is_given_up(seen: Seen) -> bool:
    return seen.bound == 0 and "given up" in str(seen.status.get("message"))


def is_whole(seen: Seen) -> bool:
    return seen.is_whole and seen.bound == SIZE


CASES = [
    Case("a pod comes twice", odd_says(SECOND_POD), with_odd({"member": "worker-0"})),
    Case("pods of other attempts", odd_says(OLD_ATTEMPT), with_odd({"attempt": "0"}, {"attempt": "2"})),
    Case("an attempt that is no number", odd_says(OLD_ATTEMPT), with_odd({"attempt": "one"})),
    Case("unknown members", odd_says(NOT_A_MEMBER), with_odd({"member": "worker-9"}, {"member": "x"})),
    Case("deleted and made again", is_whole, made_again, tended=True),
    Case("no pods at all", lambda seen: seen.phase == "Released", count=0, first="Released"),
    Case("edited to a node that is none", is_whole, edited(placement=placed("no-such-node", *WORKERS)), tended=True),
    Case("edited to a full node", is_whole, edited(placement=placed(BESIDE, *WORKERS)), tended=True),
    Case("edited to members that are none", is_whole, edited(placement=placed("node-a", "ghost-0")), tended=True),
    Case("edited to no phase", is_whole, edited(phase="Dancing", attempt=-5), tended=True),
    Case("edited to be bound", lambda seen: seen.phase == "Released", edited(phase="Bound")),
]
GIVEN_UP = [
    Case("pods never come", is_given_up),
    Case("pods that take more than was said", is_given_up, greedy),
]
NOT_TENDED = [case.name for case in (*CASES, *GIVEN_UP) if not case.tended]


@pytest.fixture
def extender(gang_cluster: Cluster) -> Iterator[OurProgram]:
    """A process of its own: the calls of a test and their answers would be too many files for one."""
    with extender_process(gang_cluster, NEVER) as extender:
        yield extender


def pool(keeper: Keeper, name: str) -> None:
    make_node(keeper.api, name, ROOM, {POOL: name})


def begin(keeper: Keeper, cases: list[Case]) -> None:
    for case in cases:
        pool(keeper, case.name)
        keeper.submit(case.name, case.count or 0, pool=case.name)
    for case in cases:
        keeper.await_phase(case.first, case.name)
        case.act(keeper, case.name)


def await_ends(keeper: Keeper, cases: list[Case]) -> None:
    """Each of them at some moment: who is given up comes again."""
    left = {case.name: case for case in cases}
    found: dict[str, Seen] = {}

    def is_so() -> bool:
        found.update(keeper.tend(but=NOT_TENDED))
        for name in [name for name, case in left.items() if case.ends(found[name])]:
            del left[name]
        return not left

    try:
        eventually(is_so)
    except AssertionError:
        raise AssertionError({case.id: str(found[name]) for name, case in left.items()}) from None


@pytest.fixture
def elsewhere(gang_cluster: Cluster) -> Iterator[Keeper]:
    """An owner in another namespace."""
    api = gang_cluster.api
    api.create_if_missing("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    keeper = Keeper(api, "elsewhere")
    yield keeper
    for path in (keeper.gangs_path, keeper.pods_path):
        for each in api.list(path):
            api.delete(f"{path}/{each['metadata']['name']}", gracePeriodSeconds=0)


def test_invalid_input_gets_its_error_and_affects_no_other_gang(gang_cluster: Cluster, elsewhere: Keeper) -> None:
    keeper = Keeper(gang_cluster.api)
    pool(keeper, BESIDE)
    with extender_process(gang_cluster, NEVER):
        keeper.submit(BESIDE, SIZE, pool=BESIDE)
        before = keeper.tend_until_whole(BESIDE)[BESIDE]
        # The name is taken in the other namespace only.
        stray = elsewhere.pod_of(CASES[0].name, WORKERS[0], 1)
        elsewhere.api.create(elsewhere.pods_path, stray)
        begin(keeper, CASES)
        await_ends(keeper, CASES)
        path = f"{elsewhere.pods_path}/{stray['metadata']['name']}"
        eventually(lambda: NO_GANG in str(elsewhere.api.get(path).get("status", {}).get("conditions")))
        pool(elsewhere, "elsewhere")
        elsewhere.submit(BESIDE, SIZE, pool="elsewhere")
        same_name = elsewhere.tend_until_whole(BESIDE)[BESIDE]
        assert set(same_name.placed.values()) == {"elsewhere"}
        begin(keeper, GIVEN_UP)
    with extender_process(gang_cluster, SOON):
        await_ends(keeper, GIVEN_UP)
    after = keeper.seen(BESIDE)
    assert (after.placed, after.made, after.attempt) == (before.placed, before.made, before.attempt)


# Calls


def flood(port: int, count: int, seconds: float) -> Counter[str]:
    """So many connections, all open before the first call goes out; what was answered, by status line and error."""
    uid = '"PodUID": "no-such-uid", "Node": "node-a"'
    body = f'{{"PodName": "no-such-pod", "PodNamespace": "gangs", {uid}}}'
    head = f"POST /bind HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    open_ = [socket.create_connection((LOOPBACK, port), timeout=seconds) for _ in range(count)]
    for each in open_:
        each.sendall((head + body).encode())
    return Counter(_answer(each) for each in open_)


def _answer(connection: socket.socket) -> str:
    """The status and the body."""
    with connection:
        data = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = data.decode().partition("\r\n\r\n")
    return f"{head.split()[1] if head else 'nothing'} {body}"


def test_ten_thousand_calls_at_once_are_all_answered_and_gangs_go_on(
    gang_cluster: Cluster, extender: OurProgram
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    keeper = Keeper(gang_cluster.api)
    with ThreadPoolExecutor(1) as pool_:
        answers = pool_.submit(flood, int(extender.urls[EXTENDER].rpartition(":")[2]), CALLS, 60.0)
        keeper.submit("through", 2 * SIZE)
        keeper.tend_until_whole("through")
        assert answers.result(60) == {f'200 {{"Error":"{NOT_FILTERED}"}}': CALLS}
