"""A controller on a machine whose clock is wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.fleet import fleet_kubelet, runs
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob, workers
from localcluster.api import Api
from tfjob_controller.util.clock import RealClock
from tfjob_controller.util.timestamps import parse_time

pytestmark = pytest.mark.cluster


class WrongClock(RealClock):
    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead


@pytest.mark.parametrize("hours", [2, -2])
def test_a_controller_with_a_wrong_clock_judges_and_writes_by_the_api_servers_time(
    hours: int, control_plane: Cluster, api: Api, kubectl: Kubectl, namespace: str
) -> None:
    """Two hours ahead, it told at once of pods that are missing for 30 s."""
    jobs, ahead = Jobs(api, namespace), timedelta(hours=hours)
    with (
        fleet_kubelet(api, namespace),
        running_controller(control_plane.kubeconfig, namespace, clock=WrongClock(ahead)),
    ):
        jobs.submit(tfjob(master(template=runs(1)), workers(1, template=runs(1)), name="job"))
        jobs.await_phase("Done", "job")
    job = jobs.get("job")
    moments = [job["status"][name] for name in ("startTime", "completionTime")]
    moments += [condition["lastTransitionTime"] for condition in job["status"]["conditions"]]
    created = parse_time(job["metadata"]["creationTimestamp"])
    assert all(abs(parse_time(moment) - created) < abs(ahead) / 2 for moment in moments), job
    events = api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    assert not [event for event in events if "no pod after" in event["message"]]
