"""A history on real nodes: the logs of real containers are read before the clean-up deletes their pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.manifests import master, parameter_servers, pod_template, tfjob
from helpers.plugin import Run, runner
from helpers.poll import eventually
from localcluster.crds import install_crds
from tfjob_controller.client.history import History
from tfjob_controller.client.history.record import MAX_LOG_BYTES

pytestmark = pytest.mark.nodes

# More than a history keeps, in lines of 100 bytes.
CHIEF = "for number in range(15000): print(number, 'x' * 90)\nprint('the last words of the chief', flush=True)"
SERVER = "import time\nprint('a server that runs until it is stopped', flush=True)\ntime.sleep(3600)"


def template(program: str) -> dict[str, object]:
    command = ["python3", "-c", program]
    container = {"name": "tensorflow", "image": "localhost/base", "imagePullPolicy": "IfNotPresent", "command": command}
    return pod_template(container, restartPolicy="Never", terminationGracePeriodSeconds=0)


@pytest.fixture
def plugin(nodes: Cluster, space: str, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd, nodes.kubeconfig, space)


def test_logs_outlive_the_pods_of_a_job_that_is_deleted_at_its_end(
    nodes: Cluster, space: str, plugin: Run, tmp_path: Path
) -> None:
    install_crds(nodes.api)
    history, jobs = tmp_path / "history", Jobs(nodes.api, space)
    manifest = tfjob(
        master(template=template(CHIEF)),
        parameter_servers(1, template=template(SERVER)),
        cleanPodPolicy="All",
        ttlSecondsAfterFinished=0,
    )
    with running_controller(nodes.kubeconfig, space, history=str(history)):
        path = f"/apis/kubeflow.org/v1alpha1/namespaces/{space}/tfjobs/{manifest['metadata']['name']}"
        jobs.submit(manifest)
        eventually(lambda: nodes.api.find(path) is None, timeout=180)
        eventually(lambda: not nodes.api.list(f"/api/v1/namespaces/{space}/pods"), timeout=60)
    record = History.open(str(history)).job("example-job", space)
    assert (record.state, record.phase, record.unread) == ("Succeeded", "Done", [])
    assert [(log.replica, log.is_cut) for log in record.logs] == [("master-0", True), ("ps-0", False)]
    assert MAX_LOG_BYTES // 2 < record.logs[0].size <= MAX_LOG_BYTES
    where = f"--history={history}"
    code, out, _ = plugin("logs", "example-job", "--tail", "1", where)
    assert (code, out) == (0, "the last words of the chief\n")
    assert plugin("logs", "example-job", "--replica", "ps-0", where)[1] == "a server that runs until it is stopped\n"
    assert "ended with exit code 0" in plugin("explain", "example-job", where)[1]
