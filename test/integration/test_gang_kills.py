"""The gang scheduler or its kube-scheduler is killed between any two steps: gangs are bound, or wait, as a whole.

One gang stops at each of the steps, because the proxy between the gang scheduler and the API server drops the request
of the next step. Then a program is killed and restarted, no more requests are dropped, and the gangs' owner continues.
There is capacity for all gangs and not for one pod more, so a leaked reservation would keep another gang out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from helpers.cluster import Cluster
from helpers.gangkeeper import Keeper, Seen, pod_name
from helpers.gangowner import pod
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster import ports
from localcluster.extender import extender_beside
from localcluster.fakekubelet import make_node
from localcluster.faultproxy import Fault, FaultProxy, Late, LoseRequest, Reply
from localcluster.gangscheduler import GangScheduler
from localcluster.ourprogram import EXTENDER, OurProgram
from localcluster.programs import LOOPBACK

pytestmark = pytest.mark.cluster

SIZE = 3
# Two of the gangs have a member that kube-scheduler refuses on its node, and which needs another one.
SPARE = 2
# Of the lives of the gang scheduler: in some, gangs are to be given up; in the others none may be, however busy the
# machine is.
SOON, NEVER = "--bind-timeout=2s", "--bind-timeout=10m"
ALWAYS = 10**6
NEVER_ARRIVES, ARRIVES = LoseRequest(), Late(0.0)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Requests of a gang that never arrive, or are refused."""

    method: str
    path: str
    fault: Fault = NEVER_ARRIVES

    def of(self, gang: str) -> str:
        return self.path.replace("GANG", gang)


NO_STATUS = Lost("PATCH", "/gangs/GANG/status")
NO_WAKING = Lost("PATCH", "/pods/GANG-worker")
NO_BINDING = Lost("POST", "/pods/GANG-worker")
BUT_THE_FIRST = tuple(Lost("POST", f"/pods/GANG-worker-{number}-") for number in (1, 2))
REFUSED_BUT_THE_FIRST = tuple(Lost(each.method, each.path, Reply(422, "Invalid")) for each in BUT_THE_FIRST)


@dataclass(frozen=True, slots=True)
class Step:
    """Where a gang stands when the program is killed, and how it came there.

    `lost` from when it is admitted on (or, with `is_new`, from the beginning), then so many of its pods are made.
    `then`: what happens once it is in phase `via`, after which `later` is lost too.
    """

    id: str
    phase: str
    made: int = 0
    bound: int = 0
    parked: int = 0
    lost: Sequence[Lost] = ()
    is_new: bool = False
    via: str = ""
    then: str = ""
    later: Sequence[Lost] = ()
    ends: str = "Bound"


FIRST_WAVE = (
    Step("given up, which is not said", "Admitted", made=2, lost=[NO_STATUS]),
    Step("partly bound and given up, unsaid", "Admitted", made=3, bound=1, lost=[NO_STATUS, *REFUSED_BUT_THE_FIRST]),
    Step("back in the queue, with its pods", "Waiting", made=2, via="Waiting", later=[NO_STATUS]),
    Step(
        "back in the queue, with a bound pod",
        "Waiting",
        made=3,
        bound=1,
        lost=REFUSED_BUT_THE_FIRST,
        via="Waiting",
        later=[NO_STATUS],
    ),
    Step(
        "all have ended, unsaid",
        "Bound",
        made=3,
        bound=3,
        via="Bound",
        then="succeed",
        later=[NO_STATUS],
        ends="Released",
    ),
)
SECOND_WAVE = (
    Step("not admitted yet", "", lost=[NO_STATUS], is_new=True),
    Step("admitted, no pod", "Admitted"),
    Step("one has come", "Admitted", made=1, parked=1),
    Step("all but one have come", "Admitted", made=2, parked=2),
    Step("all have come, none is bound", "Admitted", made=3, parked=3, lost=[NO_BINDING]),
    Step("the first is bound", "Admitted", made=3, bound=1, parked=2, lost=BUT_THE_FIRST),
    Step("all are bound, unsaid", "Admitted", made=3, bound=3, lost=[NO_STATUS]),
    Step("moved, which is not written", "Admitted", made=3, parked=2, lost=[NO_STATUS], then="block 7777"),
    # It may be looked at again for other reasons: so one is missing.
    Step("moved, its pod not woken", "Admitted", made=2, parked=1, lost=[NO_WAKING], then="block 7778"),
    Step(
        "a replacement not bound",
        "Bound",
        made=3,
        bound=2,
        parked=1,
        via="Bound",
        then="replace",
        later=[NO_BINDING],
    ),
    Step("suspended, not released", "Admitted", made=2, lost=[NO_STATUS], then="suspend", ends="Released"),
)
STEPS = (*FIRST_WAVE, *SECOND_WAVE)
NAMES = {step.id: f"g{number:02d}" for number, step in enumerate(STEPS)}


class Scene:
    """Gangs that are brought to their steps."""

    def __init__(self, keeper: Keeper, proxy: FaultProxy, gate: Callable[[], Object]) -> None:
        self._keeper = keeper
        self._proxy = proxy
        self._gate = gate

    def begin(self, steps: Sequence[Step]) -> None:
        """All of them at once, as far as they come before any is given up."""
        for step in steps:
            if step.is_new:
                self._lose(step, step.lost)
            self._keeper.submit(NAMES[step.id], SIZE)
        self._keeper.await_phase("Admitted", *(NAMES[step.id] for step in steps if not step.is_new))
        for step in steps:
            if not step.is_new:
                self._lose(step, step.lost)
            self._make(step)
        for step in steps:
            if step.via != "Waiting":
                self._go_on(step)
        eventually(lambda: self._are_bound(steps))

    def hold_in_the_queue(self, steps: Sequence[Step]) -> None:
        """Of those that have to be given up first, the next status arrives, which says so, and none after it.

        To be called while the gang scheduler does not run: a second later it would admit them again.
        """
        for step in steps:
            if step.via == "Waiting":
                for lost in step.later:
                    self._proxy.next(ARRIVES, method=lost.method, path=lost.of(NAMES[step.id]))
                self._lose(step, step.later)

    def _are_bound(self, steps: Sequence[Step]) -> bool:
        found = self._keeper.look()
        return all(found[NAMES[step.id]].bound >= step.bound for step in steps)

    def await_stand(self, steps: Sequence[Step]) -> None:
        """Each is where it is to be, and has tried in vain to go on."""
        astray: list[str] = []

        def is_so() -> bool:
            astray[:] = self._astray(steps)
            return not astray

        try:
            eventually(is_so)
        except AssertionError:
            raise AssertionError(f"not where they are to be: {astray}") from None

    def _astray(self, steps: Sequence[Step]) -> list[str]:
        found = {step.id: self._keeper.look()[NAMES[step.id]] for step in steps}
        wrong = [f"{step.id}: {found[step.id]}" for step in steps if not stands(step, found[step.id])]
        wrong += [f"{step.id}: has not tried" for step in steps if not self._has_tried(step)]
        calls, parked = self._gate()["calls"], sum(step.parked for step in steps)
        return wrong if calls >= parked else [*wrong, f"{calls} calls wait instead of {parked}"]

    def _has_tried(self, step: Step) -> bool:
        return all(
            any(seen.fault == lost.fault and lost.of(NAMES[step.id]) in seen.path for seen in self._proxy.seen)
            for lost in (*step.lost, *step.later)
            if step.via != "Waiting" or lost.fault != NEVER_ARRIVES
        )

    def _lose(self, step: Step, what: Sequence[Lost]) -> None:
        for lost in what:
            self._proxy.next(lost.fault, times=ALWAYS, method=lost.method, path=lost.of(NAMES[step.id]))

    def _make(self, step: Step) -> None:
        name = NAMES[step.id]
        for number in range(step.made):
            more: Object = {}
            if number == 0 and step.then.startswith("block"):
                more = self._block(name, int(step.then.split()[1]))
            self._keeper.make_pod(name, f"worker-{number}", 1, **more)

    def _block(self, name: str, port: int) -> Object:
        """A port that is taken on the node of the first member: only kube-scheduler knows of ports."""
        blocker = with_port(pod(f"blocker-{port}", "0"), port)
        blocker["spec"]["nodeName"] = self._keeper.seen(name).placed["worker-0"]
        self._keeper.api.create(self._keeper.pods_path, blocker)
        return {"containers": with_port(pod("any", "1"), port)["spec"]["containers"]}

    def _go_on(self, step: Step) -> None:
        name = NAMES[step.id]
        if step.via:
            self._keeper.await_phase(step.via, name, timeout=30)
            self._lose(step, step.later)
        path = f"{self._keeper.pods_path}/{pod_name(name, 'worker-0', 1)}"
        if step.then == "succeed":
            for number in range(SIZE):
                ended = f"{self._keeper.pods_path}/{pod_name(name, f'worker-{number}', 1)}/status"
                self._keeper.api.patch(ended, {"status": {"phase": "Succeeded"}})
        elif step.then == "replace":
            self._keeper.api.delete(path, gracePeriodSeconds=0)
            self._keeper.make_pod(name, "worker-0", 1)
        elif step.then == "suspend":
            self._keeper.api.patch(f"{self._keeper.gangs_path}/{name}", {"spec": {"suspend": True}})


def stands(step: Step, seen: Seen) -> bool:
    there = [each["spec"].get("nodeName") for each in seen.pods.values()]
    return (seen.phase, len(there), len([*filter(None, there)])) == (step.phase, step.made, step.bound)


def with_port(body: Object, port: int) -> Object:
    body["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return body


class Programs:
    """Both as processes, the gang scheduler through the proxy."""

    def __init__(self, cluster: Cluster, proxy: FaultProxy, folder: Path, port: int, probes_port: int) -> None:
        self._plane = cluster.own
        self._ports = port, probes_port
        self._pages = f"{LOOPBACK}:{probes_port}"
        kubeconfig = proxy.kubeconfig(folder, cluster.own.token)
        self._flags = f"--kubeconfig={kubeconfig}", f"--debug-bind-address={self._pages}"
        self.extender = self._extender()
        self.scheduler = GangScheduler(cluster.own, self.extender.urls[EXTENDER])

    def start_extender(self, *flags: str) -> None:
        self.extender = self._extender(*flags)
        self.extender.start()
        self.extender.wait_ready()

    def gate(self) -> Object:
        """How many calls wait, and more of the kind."""
        found: Object = urllib3.request("GET", f"http://{self._pages}/debug/permit", timeout=PATIENCE_SECONDS).json()
        return found

    def end(self) -> None:
        self.extender.kill()
        self.scheduler.kill()

    def _extender(self, *flags: str) -> OurProgram:
        return extender_beside(self._plane, *self._ports, *self._flags, *flags)


@dataclass(frozen=True, slots=True)
class Stage:
    programs: Programs
    proxy: FaultProxy
    keeper: Keeper
    scene: Scene


@pytest.fixture
def stage(gang_cluster: Cluster, tmp_path: Path) -> Iterator[Stage]:
    keeper = Keeper(gang_cluster.api)
    with FaultProxy(gang_cluster.own.server) as proxy, ports.reserve(2, LOOPBACK) as (port, probes_port):
        programs = Programs(gang_cluster, proxy, tmp_path, port, probes_port)
        try:
            programs.scheduler.start()
            yield Stage(programs, proxy, keeper, Scene(keeper, proxy, programs.gate))
        finally:
            programs.end()


def room_for(cluster: Cluster, pods: int) -> None:
    """So many CPUs in all, on nodes of six; the fixture's two have four each."""
    left = pods - 8
    for number in range((left + 5) // 6):
        cpu = str(min(6, left - 6 * number))
        make_node(cluster.api, f"node-{number}", {"cpu": cpu, "memory": "8Gi", "pods": "20"})


def kill(stage: Stage, victim: OurProgram | GangScheduler, steps: Sequence[Step]) -> None:
    """While each of these gangs stands where it is to be; then nothing is lost any more."""
    stage.scene.await_stand(steps)
    victim.kill()
    found = stage.keeper.look()
    assert [step.id for step in steps if not stands(step, found[NAMES[step.id]])] == []
    stage.proxy.clear()


def check_end(keeper: Keeper, steps: Sequence[Step]) -> None:
    """All have gone to their end, and whoever came after them gets all the room that is left."""
    keeper.tend_until_whole(*(NAMES[step.id] for step in steps if step.ends == "Bound"))
    released = [NAMES[step.id] for step in steps if step.ends == "Released"]
    keeper.await_phase("Released", *released)
    keeper.submit("rest", SIZE * len(released) + SPARE)
    keeper.tend_until_whole("rest")


def test_whatever_step_a_gang_is_at_when_the_gang_scheduler_is_killed_it_becomes_whole(
    gang_cluster: Cluster, stage: Stage
) -> None:
    room_for(gang_cluster, SIZE * len(STEPS) + SPARE)
    stage.programs.start_extender(NEVER)
    stage.scene.begin(FIRST_WAVE)
    stage.programs.extender.kill()
    stage.scene.hold_in_the_queue(FIRST_WAVE)
    stage.programs.start_extender(SOON)
    kill(stage, stage.programs.extender, FIRST_WAVE)
    stage.programs.start_extender(NEVER)
    stage.scene.begin(SECOND_WAVE)
    kill(stage, stage.programs.extender, SECOND_WAVE)
    stage.programs.start_extender(NEVER)
    check_end(stage.keeper, STEPS)


def test_whatever_step_a_gang_is_at_when_kube_scheduler_is_killed_it_becomes_whole(
    gang_cluster: Cluster, stage: Stage
) -> None:
    room_for(gang_cluster, SIZE * len(SECOND_WAVE) + SPARE)
    stage.programs.start_extender(NEVER)
    stage.scene.begin(SECOND_WAVE)
    kill(stage, stage.programs.scheduler, SECOND_WAVE)
    stage.programs.scheduler.start()
    check_end(stage.keeper, SECOND_WAVE)
