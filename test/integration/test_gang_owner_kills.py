"""The TFJob controller is killed between any two of its steps for a gang: the next one completes the gang.

One job stops at each of the steps, in a namespace of its own, because the proxy between controller and API server drops
the requests of the next step. Everything else is real but the kubelet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs
from helpers.controllerprocess import WORKING, controller_process
from helpers.gangkeeper import PREFIX, Keeper, Seen
from helpers.gangscheduler import running_gang_scheduler
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import eventually
from localcluster import ports
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.faultproxy import FaultProxy, Late, LoseRequest
from localcluster.gangscheduler import GangScheduler
from localcluster.programs import LOOPBACK
from tfjob_controller.flags import BindAddress

pytestmark = pytest.mark.cluster

NAME = "job"
# A master and two workers.
SIZE = 3
ALWAYS = 10**6
# Of two lives of the gang scheduler: gangs are to be given up; none may be, however busy the machine.
SOON_SECONDS, NEVER_SECONDS = 3.0, 600.0

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Requests for a kind of object, of which the first `passing` ones arrive."""

    method: str
    plural: str
    passing: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """Where a job stands when the controller is killed: `gangs` and child Jobs there are, the gang in this `phase`.

    `lost` from the beginning on; or `later`, once the gang is bound and the job's spec was changed (`patch`).
    """

    id: str
    lost: Sequence[Lost] = ()
    phase: str = "Admitted"
    jobs: int = 0
    patch: Object | None = None
    later: Sequence[Lost] = ()
    size: int = SIZE


NO_GANGS = Lost("", "gangs")
GIVEN_UP = (
    Step("back in the queue, nothing is taken down", [Lost("POST", "jobs", 2), Lost("DELETE", "jobs")], jobs=2),
    Step("back in the queue, one Job is taken down", [Lost("POST", "jobs", 2), Lost("DELETE", "jobs", 1)], jobs=1),
)
OTHERS = (
    Step("the gang is not written", [NO_GANGS], phase=""),
    Step("admitted, nothing is made", [Lost("POST", "jobs"), Lost("POST", "services")]),
    Step("admitted, one Job is made", [Lost("POST", "jobs", 1)], jobs=1),
    Step("bound, no Service is made", [Lost("POST", "services")], "Bound", jobs=SIZE),
    Step("bound, its job does not say so", [Lost("", f"tfjobs/{NAME}/status")], "Bound", jobs=SIZE),
    Step("suspended, its gang not told", (), "Released", SIZE, {"suspend": True}, [NO_GANGS]),
    Step("another worker, its gang not told", (), "Bound", SIZE, {"workerReplicas": 3}, [NO_GANGS], SIZE + 1),
)
STEPS = (*GIVEN_UP, *OTHERS)


@dataclass(frozen=True, slots=True)
class Scene:
    """The job of one step."""

    step: Step
    jobs: Jobs
    keeper: Keeper
    proxy: FaultProxy

    @classmethod
    def of(cls, step: Step, api: Api, proxy: FaultProxy) -> Scene:
        namespace = new_namespace(api, "owner-kill")
        return cls(step, Jobs(api, namespace), Keeper(api, namespace), proxy)

    def begin(self) -> None:
        self._lose(self.step.lost)
        template = pod_template(container(resources={"requests": {"cpu": "1"}}))
        both = master(template=template), workers(SIZE - 1, template=template)
        self.jobs.submit(tfjob(*both, name=NAME, gang={"enabled": True}))

    def go_on(self) -> None:
        if self.step.patch is not None:
            eventually(lambda: self.seen.is_whole and self.jobs.phase(NAME) == "Running")
            self._lose(self.step.later)
            self.jobs.change({"spec": self.step.patch}, NAME)

    @property
    def seen(self) -> Seen:
        """Its gang; an empty one if there is none."""
        return next(iter(self.keeper.look().values()), Seen())

    def stands(self) -> bool:
        """Where it is to be, and the controller has tried in vain to go on; of attempts that may be a later one."""
        seen = self.seen
        is_phase = seen.phase == self.step.phase or (self.step in GIVEN_UP and bool(seen.status.get("message")))
        return is_phase and len(self.jobs.children("jobs")) == self.step.jobs and self._has_tried()

    def is_whole(self) -> bool:
        """The gang, the job, and one child of each kind for each member, made for the present attempt."""
        seen, children = self.seen, self.jobs.children("jobs").values()
        attempts = {each["metadata"]["labels"][f"{PREFIX}attempt"] for each in children}
        counts = seen.bound, len(children), len(self.jobs.children("services"))
        is_made = counts == (self.step.size,) * 3 and attempts == {str(seen.attempt)}
        return seen.is_whole and is_made and self.jobs.phase(NAME) == "Running"

    def __str__(self) -> str:
        made = {plural: len(self.jobs.children(plural)) for plural in ("jobs", "services", "pods")}
        return f"{self.step.id}: {self.seen}; {made}; {self.jobs.status(NAME)}"

    def _lose(self, what: Sequence[Lost]) -> None:
        for lost in what:
            path = f"/namespaces/{self.jobs.namespace}/{lost.plural}"
            if lost.passing:
                self.proxy.next(Late(0.0), times=lost.passing, method=lost.method, path=path)
            self.proxy.next(LoseRequest(), times=ALWAYS, method=lost.method, path=path)

    def _has_tried(self) -> bool:
        return all(
            any(
                seen.fault == LoseRequest() and f"/{self.jobs.namespace}/{lost.plural}" in seen.path
                for seen in self.proxy.seen
                if lost.method in ("", seen.method)
            )
            for lost in (*self.step.lost, *self.step.later)
        )


def await_all(scenes: Sequence[Scene], is_so: str, seconds: float) -> None:
    left = list(scenes)

    def are_so() -> bool:
        left[:] = [scene for scene in scenes if not getattr(scene, is_so)()]
        return not left

    try:
        eventually(are_so, seconds, 0.1)
    except AssertionError:
        raise AssertionError(f"{is_so} is not true of {[str(scene) for scene in left]}") from None


@pytest.fixture
def scenes(gang_cluster: Cluster) -> Iterator[list[Scene]]:
    """With room for all of them and not for one pod more."""
    half = (sum(step.size for step in STEPS) + 1) // 2
    room = {"cpu": str(half), "memory": "64Gi", "pods": "110"}
    kubelet = FakeKubelet(Api.from_kubeconfig(gang_cluster.kubeconfig), nodes=("node-a", "node-b"), resources=room)
    with FaultProxy(gang_cluster.own.server) as proxy, kubelet:
        scenes = [Scene.of(step, gang_cluster.api, proxy) for step in STEPS]
        yield scenes
        for scene in scenes:
            scene.jobs.delete(NAME)
            delete_namespace(gang_cluster.api, scene.jobs.namespace)


def test_whatever_step_a_job_is_at_when_its_controller_is_killed_its_gang_becomes_whole(
    gang_cluster: Cluster, scenes: list[Scene], tmp_path: Path
) -> None:
    proxy = scenes[0].proxy
    through = proxy.kubeconfig(tmp_path, gang_cluster.own.token)
    with ports.reserve(1, LOOPBACK) as (port,):
        flags: dict[str, Any] = {"extender_bind_address": BindAddress(LOOPBACK, port)}
        with (
            GangScheduler(gang_cluster.own, f"http://{LOOPBACK}:{port}"),
            controller_process(through, "", tmp_path / "first", "--qps=0") as controller,
        ):
            controller.await_log(WORKING)
            for steps, seconds in ((GIVEN_UP, SOON_SECONDS), (OTHERS, NEVER_SECONDS)):
                wave = [scene for scene in scenes if scene.step in steps]
                with running_gang_scheduler(gang_cluster.kubeconfig, bind_timeout=seconds, **flags):
                    for scene in wave:
                        scene.begin()
                    for scene in wave:
                        scene.go_on()
                    await_all(wave, "stands", 30)
            controller.kill()
            assert [scene.step.id for scene in scenes if not scene.stands()] == []
            proxy.clear()
            with (
                running_gang_scheduler(gang_cluster.kubeconfig, bind_timeout=NEVER_SECONDS, **flags),
                controller_process(through, "", tmp_path / "second", "--qps=0"),
            ):
                (suspended,) = [scene for scene in scenes if scene.step.patch == {"suspend": True}]
                eventually(lambda: suspended.seen.phase == "Released" and not suspended.seen.placed)
                suspended.jobs.change({"spec": {"suspend": False}}, NAME)
                await_all(scenes, "is_whole", 60)
