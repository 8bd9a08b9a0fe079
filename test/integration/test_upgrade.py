"""From a release to this tree, with the released manifests and the released programs: existing jobs continue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from helpers.cluster import Cluster, set_pod_terminated
from helpers.controller import Jobs
from helpers.fleet import fleet_kubelet
from helpers.installation import (
    PODS,
    RELEASED_CRDS,
    RELEASED_CRDS_SINCE,
    Installation,
    Object,
    essence,
    install,
    is_deliberate,
    lost,
)
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from release.records import Release, releases
from tfjob_controller.trainer.naming import runtime_id_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(400),
    pytest.mark.kubernetes(RELEASED_CRDS_SINCE, RELEASED_CRDS),
]

LAST = releases()[-1]


@pytest.fixture(params=[LAST], ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture
def installed(own_control_plane: Cluster, release: Release, tmp_path: Path) -> Iterator[Installation]:
    """The release as its users have it."""
    installation = install(own_control_plane, release, tmp_path)
    with fleet_kubelet(Api.from_kubeconfig(own_control_plane.kubeconfig), installation.user.namespace):
        yield installation


def test_jobs_go_on_and_what_is_stored_stays(installed: Installation, release: Release, tmp_path: Path) -> None:
    released = release.unpack_program(tmp_path / "released")
    controller, gang_scheduler = installed.controller(released), installed.gang_scheduler(released)
    installed.submit()
    eventually(installed.has_settled, period=0.2)
    stored, children = installed.stored(), installed.children()
    essential = essence(stored)

    installed.upgrade(controller, gang_scheduler)
    now, there = essence(installed.stored()), installed.children()
    assert [path for path in lost(essential, now) if not is_deliberate(release, path)] == []
    assert {name: there.get(name) for name in children} == children

    every_stored_object_can_be_written_again(installed.user, without_deliberate_breaks(release, stored))
    installed.change_and_end_running_jobs()


def without_deliberate_breaks(release: Release, stored: Mapping[str, Object]) -> dict[str, Object]:
    """The objects without the status fields that exceptions.yaml lists, which strict validation would reject."""

    def keeps(name: str, field: str) -> bool:
        return not is_deliberate(release, f"{name} status {field}")

    return {
        name: {**each, "status": {field: value for field, value in each["status"].items() if keeps(name, field)}}
        if "status" in each
        else each
        for name, each in stored.items()
    }


def every_stored_object_can_be_written_again(user: Kubectl, stored: Mapping[str, Object]) -> None:
    """Wholly, as it was before the upgrade: the server looks at each field."""
    for each in stored.values():
        meta = {name: each["metadata"][name] for name in ("name", "namespace")} | {"labels": {"upgraded": "yes"}}
        answer = user.run("replace", "--dry-run=server", "-f", "-", manifest={**each, "metadata": meta})
        assert (answer.code, answer.error) == (0, "")


# TrainJobs by what becomes of them.
KEPT, RESUMED, RESTARTED, LAUNCHED, PLACED = "kept", "resumed", "restarted", "launched", "placed"
TRAINJOB_SPECS: Mapping[str, Object] = {
    KEPT: {},
    RESUMED: {},
    RESTARTED: {},
    LAUNCHED: {"command": ["mpirun"]},
    PLACED: {"gang": {"enabled": True}},
}


@pytest.mark.parametrize("release", releases()[:1], ids=lambda release: release.version, indirect=True)
def test_nodes_of_a_trainjob_have_a_job_each_until_they_are_restarted(
    installed: Installation, release: Release, tmp_path: Path
) -> None:
    """The first release gave each node a Job and a Service of its own; now there is one of each for all nodes."""
    released = release.unpack_program(tmp_path / "released")
    controller, gang_scheduler = installed.controller(released), installed.gang_scheduler(released)
    trainjobs = installed.trainjobs
    for name, spec in TRAINJOB_SPECS.items():
        trainjobs.submit(trainjob(name, PODS, **{"command": ["torchrun"], **spec}))
    eventually(lambda: all(is_ready(trainjobs.status(name)) for name in TRAINJOB_SPECS), period=0.2)
    trainjobs.change({"spec": {"suspend": True}}, RESUMED)
    eventually(lambda: not installed.pods_of(RESUMED), period=0.2)
    before = {name: children_of(trainjobs, name) for name in TRAINJOB_SPECS}
    assert {name: counts(each) for name, each in before.items()} == dict.fromkeys(before, (PODS, PODS)) | {
        LAUNCHED: (PODS + 1, PODS)
    }

    installed.upgrade(controller, gang_scheduler)
    assert {name: children_of(trainjobs, name) for name in before} == before

    trainjobs.change({"spec": {"suspend": False}}, RESUMED)
    eventually(lambda: is_ready(trainjobs.status(RESUMED)), period=0.2)
    for name in (KEPT, RESUMED):
        installed.end(name)
        assert trainjobs.await_phase("Done", name).get("restarts", 0) == 0
    assert children_of(trainjobs, KEPT) == before[KEPT]
    # A suspended Job is replaced, and the one that replaces it is of all nodes.
    resumed = children_of(trainjobs, RESUMED)
    assert counts(resumed) == (1, 1)
    assert not set(resumed.values()) & set(before[RESUMED].values())
    for name in (RESTARTED, LAUNCHED, PLACED):
        (pod,) = [
            pod
            for pod, each in installed.pods_of(name).items()
            if (each["job_type"], each["task_index"]) == ("node", "1")
        ]
        set_pod_terminated(installed.cluster.api, trainjobs.namespace, pod, 137)
    for name in (RESTARTED, LAUNCHED, PLACED):
        eventually(lambda name=name: is_ready(trainjobs.status(name), restarts=1), period=0.2)  # type: ignore[misc] # now
        now = children_of(trainjobs, name)
        assert counts(now) == (2 if name == LAUNCHED else 1, 1), now
        assert not set(now.values()) & set(before[name].values())
        runtime_id = runtime_id_of(trainjobs.get(name)["metadata"]["uid"])
        assert now.keys() >= {f"jobs {name}-node-{runtime_id}", f"services {name}-{runtime_id}"}
        if name == LAUNCHED:
            hosts = [f"{name}-node-{runtime_id}-{index}.{name}-{runtime_id}" for index in range(PODS)]
            assert [line.split()[0] for line in hostfile(trainjobs, name).splitlines()] == hosts
        installed.end(name)
        assert trainjobs.await_phase("Done", name)["restarts"] == 1


def is_ready(status: Object, restarts: int = 0) -> bool:
    ready = {each["name"]: each["ready"] for each in status.get("jobsStatus", ())}
    return ready.pop("node", 0) == PODS and all(ready.values()) and status.get("restarts", 0) == restarts


def children_of(jobs: Jobs, name: str) -> dict[str, str]:
    """The UIDs of a TrainJob's Jobs and Services."""
    found = {
        f"{plural} {child}": each["metadata"]
        for plural in ("jobs", "services")
        for child, each in jobs.children(plural).items()
    }
    return {child: each["uid"] for child, each in found.items() if each["labels"].get("train_job_name") == name}


def counts(children: Mapping[str, str]) -> tuple[int, int]:
    """The numbers of Jobs and Services."""
    kinds = [each.partition(" ")[0] for each in children]
    return kinds.count("jobs"), kinds.count("services")


def hostfile(jobs: Jobs, name: str) -> str:
    """What the launcher reads."""
    (pod,) = [each for child, each in jobs.children("pods").items() if child.startswith(f"{name}-launcher-")]
    (volume,) = [each["configMap"]["name"] for each in pod["spec"]["volumes"] if each["name"] == "mpi-config"]
    return str(jobs.children("configmaps")[volume]["data"]["hostfile"])
