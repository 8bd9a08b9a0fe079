"""Commands of `kubectl tfjob` that create jobs, change them, and wait for them, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from helpers.cluster import Cluster
from helpers.manifests import container, master, pod_template, workers
from helpers.playground import Playground, Trial, ends
from helpers.plugin import Run
from helpers.poll import eventually
from helpers.trainjobs import ends as all_end
from localcluster.api import Api

pytestmark = pytest.mark.cluster

IMAGE = "localhost/train"
# Only ends what hangs.
PATIENCE = ["--timeout", "2m"]
_POD_SECURITY = "pod-security.kubernetes.io/warn"


@pytest.fixture(params=["tfjob", "trainjob"])
def either(request: pytest.FixtureRequest, playground: Playground) -> Iterator[Trial]:
    """A job of each kind, with one replica; `kind_of` says which."""
    trial = playground.new_trial() if request.param == "tfjob" else playground.new_train_trial()
    yield trial
    trial.clear()


def kind_of(trial: Trial) -> str:
    return trial.jobs.resource.kind.lower()


def named(trial: Trial) -> str:
    return f"{kind_of(trial)}/{trial.name}"


def flags_of(trial: Trial) -> list[str]:
    """Of a job of its kind."""
    return [trial.name, "--image", IMAGE, *([] if trial.container else ["--nodes", "1"])]


def plays(trial: Trial, exit_code: int) -> None:
    """How its one replica ends."""
    if trial.container:
        trial.plays("master-0", ends(exit_code))
    else:
        trial.plays("node-0", all_end(exit_code))


def test_a_job_is_submitted_and_seen_to_its_end(plugin: Run, either: Trial) -> None:
    plays(either, 0)
    code, out, error = plugin("submit", *flags_of(either), "--wait", *PATIENCE, "--", "python", "train.py")
    assert (code, error) == (0, "")
    made, came = out.splitlines()
    assert made == f"{named(either)} created"
    assert came.startswith(f"{named(either)}: Done")
    assert either.get()["kind"].lower() == kind_of(either)


def test_what_is_printed_by_a_dry_run_is_what_the_server_takes(plugin: Run, trial: Trial) -> None:
    flags = ["--image", IMAGE, "--workers", "2", "--ps", "1", "--cpu", "500m", "--memory", "1Gi", "--gpus", "1"]
    flags += ["--env", "EPOCHS=3", "--gang", "--max-restarts", "4", "--suspend"]
    code, out, _ = plugin("submit", trial.name, *flags, "--dry-run", "client", "-o", "yaml", "--", "python", "-u", "x")
    manifest = yaml.safe_load(out)
    worker = manifest["spec"]["replicaSpecs"][0]
    assert (code, worker["tfReplicaType"], worker["replicas"]) == (0, "WORKER", 2)
    assert worker["template"]["spec"]["containers"][0]["command"] == ["python", "-u", "x"]
    assert plugin("submit", trial.name, *flags, "--dry-run", "server", "-o", "name", "--", "x")[:2] == (
        0,
        f"tfjob.kubeflow.org/{trial.name}\n",
    )
    assert trial.jobs.api.find(trial.jobs.resource.path(trial.namespace, trial.name)) is None
    made = trial.jobs.submit(manifest)
    assert made["spec"]["backoffLimit"] == 4


def test_what_admission_refuses_for_now_is_a_warning(plugin: Run, api: Api, namespace: str) -> None:
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {_POD_SECURITY: "restricted"}}})
    flags = ["train", "--image", IMAGE, "-n", namespace, "--dry-run=server"]
    code, out, error = plugin("submit", *flags, "--priority=nope", "--workers=1", "--master", "--ps=1")
    assert (code, out) == (0, "tfjob/train would be created\n")
    refused = (
        "Warning: Kubernetes would refuse the pods of master and worker: no PriorityClass with name nope was found"
    )
    assert refused in error.splitlines()
    assert error.count('Warning: would violate PodSecurity "restricted:latest": ') == 1


def test_a_dry_run_of_the_server_deletes_nothing(plugin: Run, either: Trial) -> None:
    assert plugin("submit", *flags_of(either), "--suspend", "--", "python", "train.py")[0] == 0
    uid = either.get()["metadata"]["uid"]
    expected = (0, f"{named(either)} deleted (server dry run)\n", "")
    assert plugin("delete", named(either), "--dry-run=server") == expected
    metadata = either.get()["metadata"]
    assert (metadata["uid"], metadata.get("deletionTimestamp")) == (uid, None)


def test_a_job_is_suspended_resumed_and_deleted(plugin: Run, either: Trial) -> None:
    assert plugin("submit", *flags_of(either))[0] == 0
    assert plugin("wait", either.name, "--for", "Running", *PATIENCE)[0] == 0
    assert plugin("resume", either.name) == (0, f"{named(either)} is not suspended\n", "")
    assert plugin("suspend", either.name) == (0, f"{named(either)} suspended\n", "")
    assert plugin("wait", either.name, "--for", "Suspended", *PATIENCE)[0] == 0
    assert plugin("suspend", either.name) == (0, f"{named(either)} is already suspended\n", "")
    assert either.get()["spec"]["suspend"] is True
    assert plugin("resume", named(either)) == (0, f"{named(either)} resumed\n", "")
    assert plugin("wait", either.name, "--for", "condition=Suspended=False", *PATIENCE)[0] == 0
    assert plugin("delete", either.name, "--wait", *PATIENCE) == (0, f"{named(either)} deleted\n", "")
    assert either.jobs.api.find(either.jobs.resource.path(either.namespace, either.name)) is None


def test_workers_come_and_go_with_scale(plugin: Run, trial: Trial) -> None:
    trial.submit(master(), workers(1), autoscaling={"maxWorkers": 3})
    trial.await_phase("Running")
    assert plugin("scale", trial.name, "--replicas=-1")[::2] == (
        1,
        f"kubectl tfjob: tfjob/{trial.name}: spec.workerReplicas: must be from 0 to 1000, is -1\n",
    )
    assert plugin("scale", trial.name, "--replicas=2") == (0, f"tfjob/{trial.name} scaled to 2 workers\n", "")
    eventually(lambda: trial.status().get("ready", {}).get("worker") == "2/2", 60.0)


def test_a_wait_for_what_does_not_come_is_exit_code_1_with_the_reason(plugin: Run, either: Trial) -> None:
    plays(either, 1)
    flags = ["--max-restarts", "0", "--wait", *PATIENCE]
    code, out, error = plugin("submit", *flags_of(either), *flags, "--", "python", "train.py")
    assert (code, out) == (1, f"{named(either)} created\n")
    assert f"{either.name} has failed: " in error
    assert error.count("\n") == 1


def test_top_shows_the_usage_of_each_job_and_the_free_capacity(plugin: Run, trial: Trial) -> None:
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}}
    template = pod_template(container(resources=resources))
    trial.submit(master(template=template), workers(2, template=template))
    trial.await_status(lambda status: status.get("ready") == {"master": "1/1", "worker": "2/2"})
    node = trial.await_running("master-0")["spec"]["nodeName"]
    _, out, error = plugin("top", "-o", "json")
    found = json.loads(out)
    held = [each for each in found["holdings"] if each["job"] == f"tfjob/{trial.name}"]
    assert sorted(replica for each in held for replica in each["replicas"]) == ["master-0", "worker-0", "worker-1"]
    assert {each["requests"]["cpu"] for each in held} <= {"250m", "500m", "750m"}
    assert error == ""
    room = next(each for each in found["nodes"] if each["node"] == node)
    assert set(room["free"]) >= {"cpu", "memory", "pods"}
    code, out, _ = plugin("top")
    assert code == 0
    assert out.split()[:4] == ["NODE", "JOB", "CPU", "MEMORY"]
    assert any(f"tfjob/{trial.name}" in line and "master-0" in line for line in out.splitlines())
    assert any(line.split()[:2] == [node, "(free)"] for line in out.splitlines())


GANGS = "/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{}/gangs"


def test_queue_shows_the_next_gang_and_the_missing_resources(
    plugin: Run, control_plane: Cluster, namespace: str
) -> None:
    """Gangs of nobody's, in the words of the gang scheduler."""
    api, path = control_plane.api, GANGS.format(namespace)
    for name, position in (("second", 2), ("first", 1)):
        head = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        api.create(path, {**head, "spec": {"members": [{"name": "worker", "count": 4}]}})
        missing = [{"resource": "cpu", "requested": "16", "available": "4"}]
        status = {"phase": "Waiting", "position": position, "missing": missing, "message": "needs 12 CPUs more"}
        api.patch(f"{path}/{name}/status", {"status": status})
    code, out, error = plugin("queue", "-n", namespace, "-o", "wide")
    assert code == 0
    waiting, shares, starts = out.split("\n\n")
    assert [line.split()[:2] for line in waiting.splitlines()[1:]] == [["1", "first"], ["2", "second"]]
    assert [line.split()[:3] for line in shares.splitlines()[2:]] == [[namespace, "0", "2"]]
    assert "12 cpu (4 of 16 usable)" in out
    assert "needs 12 CPUs more" in out
    assert [line.split()[0] for line in starts.splitlines()[2:]] == [f"{namespace}/first", f"{namespace}/second"]
    assert "No Lease and no pod shows that the gang scheduler runs" in error
    assert "\n0 gangs with capacity" in error
    assert [each["gang"] for each in json.loads(plugin("queue", "-n", namespace, "-o", "json")[1])["waiting"]] == [
        "first",
        "second",
    ]
