"""From this tree back to a release: docs/upgrade.md says what such a way keeps, and this is what it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.fleet import fleet_kubelet
from helpers.installation import (
    PODS,
    RELEASED_CRDS,
    RELEASED_CRDS_SINCE,
    Installation,
    essence,
    install,
    is_deliberate,
    lost,
    runs_forever,
)
from helpers.manifests import master, tfjob, workers
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from release.records import Release, releases

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(400),
    pytest.mark.kubernetes(RELEASED_CRDS_SINCE, RELEASED_CRDS),
]

# Jobs that are created after the upgrade.
NEW_TFJOB, NEW_GANG, NEW_TRAINJOB, NEW_ELASTIC = "new-tfjob", "new-gang", "new-trainjob", "new-elastic"
ELASTIC = {"minNodes": 1, "maxNodes": 3}
LAST = releases()[-1]
# How often the programs of a release restart a TrainJob of this tree. The recorded 0.1.0 has a Job for each node.
RESTARTS = {"0.1.0": 1}


@pytest.fixture
def installed(own_control_plane: Cluster, tmp_path: Path) -> Iterator[Installation]:
    installation = install(own_control_plane, LAST, tmp_path)
    with fleet_kubelet(Api.from_kubeconfig(own_control_plane.kubeconfig), installation.user.namespace):
        yield installation


def submit_newer_jobs(installed: Installation) -> None:
    forever = runs_forever()
    for name, spec in ((NEW_TFJOB, {}), (NEW_GANG, {"gang": {"enabled": True}})):
        installed.tfjobs.submit(tfjob(master(template=forever), workers(1, template=forever), name=name, **spec))
    installed.trainjobs.submit(trainjob(NEW_TRAINJOB, PODS, ["torchrun"]))
    installed.trainjobs.submit(trainjob(NEW_ELASTIC, PODS, ["torchrun"], elasticPolicy=ELASTIC))
    for name in (NEW_TFJOB, NEW_GANG):
        eventually(lambda name=name: is_whole(installed.tfjobs.status(name)), period=0.2)  # type: ignore[misc] # now
    await_nodes(installed, 0)


def is_whole(status: dict[str, Any]) -> bool:
    return bool(status.get("ready") == {"master": "1/1", "worker": "1/1"})


def await_nodes(installed: Installation, restarts: int) -> None:
    """Waits until all nodes of the newer TrainJobs are ready, after so many restarts."""

    def is_ready(name: str) -> bool:
        status = installed.trainjobs.status(name)
        ready = [each["ready"] for each in status.get("jobsStatus", ())]
        return (ready, status.get("phase"), status.get("restarts", 0)) == ([PODS], "Running", restarts)

    for name in (NEW_TRAINJOB, NEW_ELASTIC):
        eventually(lambda name=name: is_ready(name), period=0.2)  # type: ignore[misc] # now


def lost_of(before: dict[str, Any], now: dict[str, Any], release: Release) -> list[str]:
    return [path for path in lost(before, now) if not is_deliberate(release, path)]


def kept(children: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: children.get(name) for name in names}


def test_back_to_the_release_jobs_go_on_and_only_what_the_page_names_is_lost(
    installed: Installation, tmp_path: Path
) -> None:
    released = LAST.unpack_program(tmp_path / "released")
    programs = installed.controller(released), installed.gang_scheduler(released)
    installed.submit()
    eventually(installed.has_settled, period=0.2)
    essential, children = essence(installed.stored()), installed.children()

    programs = installed.upgrade(*programs)
    submit_newer_jobs(installed)
    of_newer_tfjobs = {
        name: each
        for name, each in installed.children().items()
        if name.split()[1].startswith((f"{NEW_TFJOB}-", f"{NEW_GANG}-"))
    }
    assert len(of_newer_tfjobs) == 2 * 2 * 3

    # The programs go back first: a controller of this tree needs its CRDs.
    installed.go_back(LAST, released, programs)
    assert lost_of(essential, essence(installed.stored()), LAST) == []
    assert kept(installed.children(), children) == children
    assert kept(installed.children(), of_newer_tfjobs) == of_newer_tfjobs
    await_nodes(installed, RESTARTS.get(LAST.version, 0))
    elastic = installed.trainjobs.get(NEW_ELASTIC)
    assert elastic["spec"]["elasticPolicy"] == ELASTIC

    # Without the release's CRDs nothing that is stored is lost; with them, what they do not know.
    there = installed.children()
    installed.restore_crds(LAST)
    installed.do_something_new("later")
    assert lost_of(essential, essence(installed.stored()), LAST) == []
    assert kept(installed.children(), there) == there
    assert "elasticPolicy" not in installed.trainjobs.get(NEW_ELASTIC)["spec"]

    installed.change_and_end_running_jobs()
    for jobs, name in (
        (installed.tfjobs, NEW_TFJOB),
        (installed.tfjobs, NEW_GANG),
        (installed.trainjobs, NEW_TRAINJOB),
        (installed.trainjobs, NEW_ELASTIC),
    ):
        installed.end(name)
        jobs.await_phase("Done", name)
