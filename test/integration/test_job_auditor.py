"""The auditor of jobs on a real API server: ordinary jobs are no violation, and planted violations are found.

The tests plant them with direct writes to the API server, as a defective controller would make them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.auditor import AuditorProcess, job_auditor
from helpers.cluster import Cluster, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.playground import Script, ends
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

COUNTS = ("duplicates", "orphans", "wrong_states", "reruns", "late_starts", "stuck")
PATIENCE_SECONDS = 600.0
EXPECTS = "chaos.kubeflow.org/expects"


@dataclass(frozen=True, slots=True)
class Scene:
    """A namespace with a controller, a kubelet that plays a script, and the auditor."""

    api: Api
    script: Script
    auditor: AuditorProcess
    tfjobs: Jobs
    trainjobs: Jobs

    def run(self, manifest: Object, expects: str = "", **replicas: int) -> Object:
        """A job whose replicas end with these codes (`master_0=1`); the job once it is over."""
        jobs = self.tfjobs if manifest["kind"] == "TFJob" else self.trainjobs
        name = manifest["metadata"]["name"]
        for replica, code in replicas.items():
            self.script.plays(name, replica.replace("_", "-"), ends(code))
        if expects:
            manifest["metadata"]["annotations"] = {EXPECTS: expects}
        jobs.submit(manifest)
        eventually(lambda: jobs.phase(name) in ("Done", "Failed"), PATIENCE_SECONDS)
        return jobs.get(name)


@pytest.fixture
def scene(control_plane: Cluster, administrator: Kubectl, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """With the auditor's flags, if the test has some."""
    if control_plane.plane is None:
        pytest.skip("plays the kubelet, and an existing cluster has real ones: unset KUBECONFIG")
    api, script = control_plane.api, Script()
    namespace = new_namespace(api, "audited")
    with (
        job_auditor(control_plane.kubeconfig, namespace, *getattr(request, "param", ())) as auditor,
        FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace, behaviour=script),
        running_controller(control_plane.kubeconfig, namespace),
    ):
        yield Scene(api, script, auditor, Jobs(api, namespace), Jobs(api, namespace, TRAINJOBS))
    delete_namespace(api, namespace)


def path(scene: Scene, plural: str, name: str = "") -> str:
    group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
    return f"{group}/namespaces/{scene.tfjobs.namespace}/{plural}" + (f"/{name}" if name else "")


def child(scene: Scene, plural: str, replica: str) -> Object:
    """A copy of a child as it would be created: under its name, with labels, owner and spec."""
    label = replica.rpartition("-")
    selector = f"job_type={label[0].upper()},task_index={label[2]}"
    found = scene.api.list(path(scene, plural), selector)[0]
    meta = {
        name: found["metadata"][name] for name in ("name", "labels", "ownerReferences") if name in found["metadata"]
    }
    spec = {
        name: found["spec"][name] for name in ("template", "ports", "selector", "clusterIP") if name in found["spec"]
    }
    return {"metadata": meta, "spec": spec}


def test_ordinary_jobs_are_no_violation(scene: Scene) -> None:
    scene.run(tfjob(master(), workers(2), name="done"), "SUCCESS", master_0=0, worker_0=0)
    scene.run(tfjob(master(), name="failed"), "FAILED", master_0=3)
    scene.auditor.report_outage()
    scene.run(trainjob("trained", 2), "SUCCESS", node_0=0, node_1=0)
    found = scene.auditor.report()
    assert found["violations"] == []
    assert {name: found[name] for name in COUNTS} == dict.fromkeys(COUNTS, 0)
    assert found["jobs"] == 3


@pytest.mark.parametrize("scene", [("--reaction-seconds=5",)], indirect=True)
def test_what_is_planted_is_found(scene: Scene) -> None:
    """As a product would that makes children twice, loses owners, runs again what was done, and changes its mind."""
    job = scene.run(tfjob(master(), name="planted"), "SUCCESS", master_0=0)

    orphan = child(scene, "services", "master-0")
    orphan["metadata"]["name"] = "orphan"
    orphan["metadata"]["labels"] |= {"task_index": "7"}
    orphan["metadata"]["ownerReferences"] = []
    scene.api.create(path(scene, "services"), orphan)

    second = child(scene, "services", "master-0")
    second["metadata"]["name"] += "-again"
    scene.api.create(path(scene, "services"), second)

    owner = scene.api.list(path(scene, "jobs"), "job_type=MASTER")[0]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner["metadata"]["name"]}
    again = {
        "metadata": {
            "name": "again",
            "labels": scene.api.list(path(scene, "pods"), "job_type=MASTER")[0]["metadata"]["labels"]
            | {"controller-uid": "none", "batch.kubernetes.io/controller-uid": "none"},
            "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"], "controller": True}],
        },
        "spec": {"containers": [{"name": "tensorflow", "image": "none"}], "nodeName": "fake-1"},
    }
    scene.api.create(path(scene, "pods"), again)

    status = {"state": "Failed", "restarts": 3}
    scene.api.patch(f"{scene.tfjobs.path}/{job['metadata']['name']}/status", {"status": status})

    found = scene.auditor.report()
    for category, words in {
        "duplicates": "for one replica at once",
        "orphans": "has no controller",
        "reruns": "after master-0 of",
        "wrong_states": "was expected to end as Succeeded, and ended as Failed",
    }.items():
        assert any(each.startswith(category) and words in each for each in found["violations"]), found
        assert found[category] >= 1
