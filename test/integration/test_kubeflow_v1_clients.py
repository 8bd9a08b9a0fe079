"""What other clients read in jobs of `kubeflow.org/v1` in each state: Katib, Argo CD, and `kubectl wait`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane, set_pod_terminated
from helpers.controller import running_controller
from helpers.jobchecks import found_by_gjson, health_by_lua
from helpers.kubectl import Kubectl
from helpers.poll import until
from helpers.v1manifests import v1_replicas
from helpers.v1policies import install_own_crds
from helpers.v1world import job_path, manifest_of
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from localcluster.programs import Options

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

KIND = "PyTorchJob"
# As they are in Katib's examples.
SUCCESS = 'status.conditions.#(type=="Succeeded")#|#(status=="True")#'
FAILURE = 'status.conditions.#(type=="Failed")#|#(status=="True")#'
# Health checks as users of Argo CD write them: one looks for conditions, the other one reads the last.
BY_TYPE = """
local health = {status = "Progressing", message = "waiting for the job"}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.status == "True" then
      if condition.type == "Failed" then
        return {status = "Degraded", message = condition.message}
      elseif condition.type == "Succeeded" then
        return {status = "Healthy", message = condition.message}
      elseif condition.type == "Suspended" then
        return {status = "Suspended", message = condition.message}
      elseif condition.type == "Running" then
        health = {status = "Healthy", message = condition.message}
      end
    end
  end
end
return health
"""
BY_LAST = """
local health = {Succeeded = "Healthy", Running = "Healthy", Failed = "Degraded", Suspended = "Suspended"}
local conditions = obj.status.conditions
local last = conditions[#conditions]
return {status = health[last.type] or "Progressing", message = last.message}
"""
HEALTH = {
    "created": "Progressing",
    "running": "Healthy",
    "restarting": "Progressing",
    "suspended": "Suspended",
    "resumed": "Healthy",
    "succeeded": "Healthy",
    "failed": "Degraded",
}
STATES = {name: "Running" if name == "resumed" else name.capitalize() for name in HEALTH}


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs that are named after their states."""

    cluster: Cluster
    namespace: str

    @property
    def api(self) -> Api:
        return self.cluster.api

    def submit(self, name: str, *, restart_policy: str = "Never", pod: Object | None = None, **run_policy: Any) -> None:
        worker = v1_replicas(KIND, 1, restartPolicy=restart_policy)
        worker["template"]["spec"] |= pod or {}
        manifest = manifest_of(KIND, {"Worker": worker}, name, runPolicy=run_policy)
        self.api.create(job_path(self.namespace, KIND), manifest)

    def suspend(self, name: str, is_suspended: bool) -> None:
        self.api.patch(job_path(self.namespace, KIND, name), {"spec": {"runPolicy": {"suspend": is_suspended}}})

    def end(self, name: str, exit_code: int) -> None:
        self.awaited(name, "Running")
        set_pod_terminated(self.api, self.namespace, f"{name}-worker-0", exit_code, container="pytorch")

    def awaited(self, name: str, state: str) -> Object:
        """Returns the job as soon as this is the type of its last condition."""
        path = job_path(self.namespace, KIND, name)

        def is_right(job: Object) -> bool:
            conditions = job.get("status", {}).get("conditions")
            return bool(conditions) and conditions[-1]["type"] == state and conditions[-1]["status"] == "True"

        return until(lambda: self.api.get(path), is_right)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    with own_plane("v1clients", Options()) as cluster, FakeKubelet(Api.from_kubeconfig(cluster.own.kubeconfig)):
        install_own_crds(cluster.api)
        namespace = new_namespace(cluster.api)
        options: Object = {"kubeflow_v1_api": ("TFJob", KIND), "trainjobs": False, "gang_scheduling": "off"}
        with running_controller(cluster.kubeconfig, namespace, **options):
            yield Jobs(cluster, namespace)


@pytest.fixture(scope="module")
def by_state(jobs: Jobs) -> Mapping[str, Object]:
    """A job of each state, as it was read then."""
    jobs.submit("created", pod={"nodeSelector": {"no": "node"}})
    jobs.submit("running")
    jobs.submit("suspended", suspend=True)
    for name in ("resumed", "succeeded", "failed"):
        jobs.submit(name)
    jobs.submit("restarting", restart_policy="ExitCode")
    jobs.awaited("resumed", "Running")
    jobs.suspend("resumed", is_suspended=True)
    jobs.end("succeeded", 0)
    jobs.end("failed", 1)
    jobs.awaited("resumed", "Suspended")
    jobs.suspend("resumed", is_suspended=False)
    # The pod that replaces the first one runs at once, and the next one after a while.
    jobs.end("restarting", 137)
    jobs.awaited("restarting", "Restarting")
    jobs.end("restarting", 137)
    return {name: jobs.awaited(name, state) for name, state in STATES.items()}


@pytest.mark.parametrize("name", STATES)
def test_the_conditions_of_katibs_trials_find_exactly_the_ends(by_state: Mapping[str, Object], name: str) -> None:
    found = (found_by_gjson(by_state[name], SUCCESS), found_by_gjson(by_state[name], FAILURE))
    assert found == (name == "succeeded", name == "failed")


@pytest.mark.parametrize("script", [pytest.param(BY_TYPE, id="by type"), pytest.param(BY_LAST, id="the last one")])
@pytest.mark.parametrize("name", STATES)
def test_health_checks_of_argo_cd_see_the_state(by_state: Mapping[str, Object], name: str, script: str) -> None:
    status, message = health_by_lua(by_state[name], script)
    assert status == HEALTH[name]
    assert message == by_state[name]["status"]["conditions"][-1]["message"] or name in ("created", "restarting")


def test_kubectl_waits_for_conditions(jobs: Jobs, by_state: Mapping[str, Object], tmp_path: Path) -> None:
    assert by_state
    kubectl = Kubectl(jobs.cluster.kubeconfig, tmp_path / "cache", jobs.namespace)
    for name in ("running", "suspended", "resumed", "succeeded", "failed"):
        met = f"pytorchjob.kubeflow.org/{name} condition met\n"
        assert kubectl.must("wait", f"--for=condition={STATES[name]}", f"pytorchjob/{name}", "--timeout=0") == met
    for name in ("created", "running", "suspended", "failed"):
        assert kubectl.run("wait", "--for=condition=Succeeded", f"pytorchjob/{name}", "--timeout=0").code == 1
    jobs.end("running", 0)
    kubectl.must("wait", "--for=condition=Succeeded", "pytorchjob/running", "--timeout=60s")
