"""Under faults of all kinds every job reaches its final state: nothing is created twice, left over, or run again.

An auditor that watches from outside (hack/audit/jobs) checks every version of every object.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.auditor import Auditor
from helpers.cluster import Cluster, clear_nodes, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.controllerprocess import WORKING, ControllerProcess, controller_process
from helpers.fleet import SORTS, Fleet, fleet_kubelet, runs
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.faultproxy import Fault, FaultProxy, LoseAnswer, LoseRequest, Reply

pytestmark = pytest.mark.cluster

# Of jobs of all sorts, while the control plane dies under them; and of those under a controller that dies itself.
FEW_JOBS = 18
JOBS = 50
KILLS = 50
# Of the random points: another FAULT_SEED shows others.
SEED = int(os.environ.get("FAULT_SEED", "20261121"))
# A life of the controller lasts for so many changes in the cluster since it works; a job makes some forty.
CHANGES_PER_LIFE = (0, 60)
# ... or for so long, if nothing happens any more.
LIFE_SECONDS = 2.0
# One life in five does not even get so far.
SHARE_OF_FALSE_STARTS = 0.2
FALSE_START_SECONDS = 0.5
# The jobs so far when a program of the control plane is killed.
KILLED_AT = {FEW_JOBS // 3: "kube-apiserver", FEW_JOBS * 2 // 3: "etcd"}


@pytest.fixture
def auditor(api: Api, kubectl: Kubectl, namespace: str) -> Iterator[Auditor]:
    with Auditor(api, namespace) as auditor:
        yield auditor


def live(controller: ControllerProcess, auditor: Auditor, rng: random.Random) -> None:
    """Let it work until something between its start and the end of a job, then kill it."""
    if rng.random() < SHARE_OF_FALSE_STARTS:
        time.sleep(rng.uniform(0.0, FALSE_START_SECONDS))
    else:
        controller.await_log(WORKING)
        last = auditor.count + rng.randint(*CHANGES_PER_LIFE)
        end = time.monotonic() + LIFE_SECONDS
        while auditor.count < last and time.monotonic() < end:
            time.sleep(0.001)
    controller.kill()


@pytest.mark.long
def test_a_controller_that_is_killed_at_random_points_leaves_nothing_wrong(
    control_plane: Cluster, auditor: Auditor, api: Api, namespace: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    fleet = Fleet(Jobs(api, namespace))
    lives = []
    with fleet_kubelet(api, namespace):
        for number in range(KILLS):
            fleet.submit(number)
            lives.append(tmp_path / f"life-{number}")
            with controller_process(control_plane.kubeconfig, namespace, lives[-1]) as controller:
                if number > 10 and number % 2:
                    fleet.change(1)
                live(controller, auditor, rng)
        assert len(fleet.ends) == JOBS
        with controller_process(control_plane.kubeconfig, namespace, tmp_path / "last"):
            fleet.await_ends()
            auditor.await_no_violations()
    assert auditor.gaps == 0
    # The points were where they hurt: many lives wrote something, and none ended by itself.
    wrote = [life for life in lives if life.exists() and '"event": "children written"' in life.read_text()]
    assert len(wrote) > KILLS / 3
    assert not any("stopping" in life.read_text() for life in lives if life.exists())


@pytest.fixture
def spare(spare_control_plane: Cluster) -> Iterator[Cluster]:
    """A control plane whose programs may be killed, with the CRDs."""
    install_crds(spare_control_plane.api)
    yield spare_control_plane
    # The nodes of the fleet have no kubelet any more, and pods of other tests would wait on them.
    clear_nodes(spare_control_plane.api)


def test_a_control_plane_that_is_killed_and_comes_back_in_the_middle_of_many_jobs(spare: Cluster) -> None:
    namespace = new_namespace(spare.api)
    fleet = Fleet(Jobs(spare.api, namespace))
    with (
        Auditor(spare.api, namespace) as auditor,
        fleet_kubelet(spare.api, namespace),
        running_controller(spare.kubeconfig, namespace),
    ):
        for number in range(FEW_JOBS):
            fleet.submit(number)
            if number in KILLED_AT:
                spare.own.kill(KILLED_AT[number])
                time.sleep(0.5)  # long enough for everybody to notice
                spare.own.start_program(KILLED_AT[number])
        fleet.await_ends()
        auditor.await_no_violations()


def test_a_history_that_is_compacted_while_the_watches_are_cut_is_listed_again(spare: Cluster, tmp_path: Path) -> None:
    """410: what happened meanwhile, deletions above all, is seen all the same."""
    namespace = new_namespace(spare.api)
    fleet = Fleet(Jobs(spare.api, namespace))
    with (
        Auditor(spare.api, namespace) as auditor,
        fleet_kubelet(spare.api, namespace),
        FaultProxy(spare.own.server) as proxy,
        running_controller(proxy.kubeconfig(tmp_path, spare.own.token), namespace) as controller,
    ):
        for number in range(9):
            fleet.submit(number)
        eventually(lambda: len(fleet.jobs.children("pods")) > 10)
        proxy.is_refusing = True
        proxy.cut_all()
        for number in range(9, 18):
            fleet.submit(number)
        fleet.change()
        gone = [name for name, end in fleet.ends.items() if not end]
        eventually(lambda: not {each["metadata"]["name"] for each in fleet.jobs.all()} & set(gone))
        spare.own.compact_etcd()
        spare.own.kill("kube-apiserver")  # its own cache knows what etcd has forgotten
        spare.own.start_program("kube-apiserver")
        proxy.is_refusing = False
        fleet.await_ends()
        auditor.await_no_violations()
        assert sum(each.reflector.expired for each in controller.caches.informers.statistics().values()) > 0


def random_fault(rng: random.Random) -> Fault:
    replies = (Reply(500), Reply(503), Reply(504), Reply(429, retry_after_seconds=1), Reply(409, "Conflict"))
    return rng.choice((LoseAnswer(), LoseAnswer(), LoseRequest(), rng.choice(replies)))


def test_lost_answers_and_storms_of_refusals_make_nothing_twice(
    control_plane: Cluster, auditor: Auditor, api: Api, namespace: str, tmp_path: Path
) -> None:
    """Every third write or so meets a fault; now and then all connections are half open, then break."""
    rng = random.Random(SEED)
    fleet = Fleet(Jobs(api, namespace))
    with (
        fleet_kubelet(api, namespace),
        FaultProxy(control_plane.own.server) as proxy,
        running_controller(proxy.kubeconfig(tmp_path, control_plane.own.token), namespace),
    ):
        for number in range(len(SORTS) * 2):
            for method, times in (("POST", 3), ("PATCH", 2), ("DELETE", 1)):
                for _ in range(times):
                    proxy.next(random_fault(rng), method=method)
            fleet.submit(number)
            if number % 9 == 4:
                proxy.is_swallowing = True
                time.sleep(0.5)
                proxy.cut_all()
                proxy.is_swallowing = False
        fleet.await_ends()
        auditor.await_no_violations()
        met = [each.fault for each in proxy.seen if each.fault is not None]
    assert len(met) > 60
    assert sum(isinstance(fault, LoseAnswer) for fault in met) > 15


def test_a_worker_that_is_scaled_away_and_wanted_again_never_runs_twice(
    control_plane: Cluster, auditor: Auditor, api: Api, namespace: str
) -> None:
    jobs = Jobs(api, namespace)
    with fleet_kubelet(api, namespace), running_controller(control_plane.kubeconfig, namespace):
        jobs.submit(tfjob(master(template=runs(600)), workers(3, template=runs(600))))
        for _ in range(5):
            eventually(lambda: len(jobs.children("pods")) == 4, 60, 0.02)
            jobs.change({"spec": {"workerReplicas": 1}})
            eventually(lambda: len(jobs.children("jobs")) < 4, 60, 0.005)
            jobs.change({"spec": {"workerReplicas": 3}})
        eventually(lambda: len(jobs.children("pods")) == 4, 60, 0.02)
        auditor.await_no_violations()


@pytest.mark.long
def test_a_crd_that_is_taken_away_takes_its_jobs_along_and_new_ones_work_when_it_is_back(
    own_control_plane: Cluster,
) -> None:
    """The garbage collector cannot look for owners of a kind that is not there: the children go when it is back."""
    namespace = new_namespace(own_control_plane.api)
    fleet = Fleet(Jobs(own_control_plane.api, namespace))
    with (
        fleet_kubelet(own_control_plane.api, namespace),
        running_controller(own_control_plane.kubeconfig, namespace) as controller,
    ):
        fleet.submit(0)
        fleet.await_ends()
        own_control_plane.api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org")
        eventually(lambda: not controller.jobs["tfjob"].jobs.store.list())
        install_crds(own_control_plane.api)
        again = Fleet(fleet.jobs)
        for number in range(1, 4):
            again.submit(number)
        again.await_ends()


def test_two_controllers_that_both_believe_to_lead_make_nothing_twice(
    control_plane: Cluster, auditor: Auditor, api: Api, namespace: str
) -> None:
    """Names and resourceVersions are the lock; the lease only saves work."""
    fleet = Fleet(Jobs(api, namespace))
    with (
        fleet_kubelet(api, namespace),
        running_controller(control_plane.kubeconfig, namespace),
        running_controller(control_plane.kubeconfig, namespace),
    ):
        for number in range(len(SORTS)):
            fleet.submit(number)
        fleet.await_ends()
        auditor.await_no_violations()
