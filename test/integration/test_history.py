"""The history of ended jobs, written by a controller on a real API server, and read by the plugin and the client."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_namespace, new_namespace, set_pod_running
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import container, master, parameter_servers, pod_template, workers
from helpers.playground import CONFIG, Playground, Script, Trial, ends
from helpers.plugin import Run
from helpers.poll import eventually
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.client.history import History

pytestmark = pytest.mark.cluster

STAMP = "2026-01-01T00:00:00.000000000Z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("history") / "kept"


@pytest.fixture(scope="module")
def recording(control_plane: Cluster, administrator: Kubectl, folder: Path) -> Iterator[Playground]:
    """A controller with a history, and a kubelet, in a namespace of their own."""
    namespace, script = new_namespace(control_plane.api, "history"), Script()
    with (
        FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace, behaviour=script),
        running_controller(control_plane.kubeconfig, namespace, config=CONFIG, history=str(folder)) as manager,
    ):
        yield Playground(manager, Jobs(control_plane.api, namespace), script)
    delete_namespace(control_plane.api, namespace)


@pytest.fixture
def job(recording: Playground) -> Iterator[Trial]:
    trial = recording.new_trial()
    yield trial
    trial.clear()


def recorded(history: History, trial: Trial) -> Any:
    """The record of a job once the controller has written it."""

    def find() -> Any:
        # Without the cache of listings.
        entries = [entry for entry in History.open(str(history)).jobs(trial.namespace) if entry.name == trial.name]
        return history.read(entries[0]) if entries else None

    return eventually(find)


def await_gone(trial: Trial) -> None:
    path = f"/apis/kubeflow.org/v1alpha1/namespaces/{trial.namespace}/tfjobs/{trial.name}"
    eventually(lambda: trial.jobs.api.find(path) is None)


@pytest.fixture
def history(folder: Path) -> History:
    return History.open(str(folder))


def test_a_job_that_ends_is_recorded_with_its_status_and_timeline(job: Trial, history: History, folder: Path) -> None:
    job.plays("master-0", ends(3, "no data"))
    submitted = job.submit(master(template=pod_template(container(), restartPolicy="Never")), workers(1))
    job.await_phase("Failed")
    record = eventually(lambda: (found := recorded(history, job)).phase == "Failed" and found)
    assert (record.state, record.reason) == ("Failed", "master-0 failed: exit code 3: no data")
    assert record.uid == submitted["metadata"]["uid"]
    assert record.manifest["spec"]["replicaSpecs"][0]["template"] == submitted["spec"]["replicaSpecs"][0]["template"]
    assert record.manifest["status"]["phase"] == "Failed"
    assert "managedFields" not in record.manifest["metadata"]
    texts = [entry.text for entry in record.timeline]
    assert any("tensorflow ended with exit code 3: no data" in text for text in texts), texts
    assert any(text.startswith("Failed is True") or "Job is in phase" in text for text in texts), texts
    assert [row.replica for row in record.description.replicas] == ["master-0", "worker-0"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()} == {0o700}


def test_a_job_whose_time_to_live_is_zero_is_recorded_before_it_is_deleted(job: Trial, history: History) -> None:
    job.plays("master-0", ends(0))
    job.submit(master(), ttlSecondsAfterFinished=0)
    await_gone(job)
    record = recorded(history, job)
    assert (record.state, record.phase) == ("Succeeded", "Done")
    assert record.manifest["spec"]["ttlSecondsAfterFinished"] == 0


def test_a_job_that_a_person_deletes_while_it_runs_is_recorded_as_deleted(job: Trial, history: History) -> None:
    job.submit(master(), workers(1))
    job.await_phase("Running")
    job.delete()
    record = recorded(history, job)
    assert (record.state, record.phase) == ("Deleted", "Running")
    assert [spec["tfReplicaType"] for spec in record.manifest["spec"]["replicaSpecs"]] == ["MASTER", "WORKER"]


def test_logs_are_read_before_the_clean_up_deletes_pods(
    job: Trial, history: History, folder: Path, logging_node: Kubelet, plugin: Run
) -> None:
    template = pod_template(container(), nodeName=logging_node.name)
    job.submit(master(template=template), parameter_servers(1, template=template), cleanPodPolicy="All")
    pods = {replica: job.await_pod(replica)["metadata"]["name"] for replica in ("master-0", "ps-0")}
    for pod in pods.values():
        set_pod_running(job.jobs.api, job.namespace, pod)
    logging_node.logs[pods["master-0"]] = f"{STAMP} loss=0.5\n{STAMP} done\n"
    logging_node.logs[pods["ps-0"]] = f"{STAMP} serving\n"
    job.end("master-0")
    eventually(lambda: all("deletionTimestamp" in pod["metadata"] for pod in job.children("pods").values()))
    record = recorded(history, job)
    assert [(log.replica, log.container) for log in record.logs] == [("master-0", "tensorflow"), ("ps-0", "tensorflow")]
    assert history.log(record) == f"{STAMP} loss=0.5\n{STAMP} done\n".encode()
    for pod in job.children("pods").values():
        job.remove_pod(pod)
    job.await_phase("Done")
    job.delete()
    await_gone(job)
    where = (f"--history={folder}", "-n", job.namespace)
    code, out, error = plugin("logs", job.name, *where)
    assert (code, out) == (0, "loss=0.5\ndone\n")
    assert error.startswith("from the history: ended ")
    assert plugin("logs", job.name, "--replica", "all", "--tail", "1", *where)[1] == "[master-0] done\n[ps-0] serving\n"
    code, out, error = plugin("describe", job.name, *where)
    assert (code, error.startswith("from the history: ended ")) == (0, True)
    assert "ps-0" in out
    assert json.loads(plugin("describe", job.name, "-o", "json", *where)[1])["state"] == "Succeeded"
    code, out, error = plugin("list", *where)
    assert (code, error) == (0, "")
    assert out.splitlines()[0].split() == ["KIND", "NAME", "STATE", "ENDED"]
    assert ["TFJob", job.name, "Succeeded"] in [line.split()[:3] for line in out.splitlines()]
    items = json.loads(plugin("list", "-o", "json", *where)[1])["items"]
    assert record.uid in {item["uid"] for item in items}


def test_a_trainjob_is_recorded_with_the_names_of_its_metrics(recording: Playground, history: History) -> None:
    train = recording.new_train_trial()
    train.plays("node-0", ends(0))
    train.train(1)
    train.await_phase("Done")
    record = eventually(lambda: (found := recorded(history, train)).phase == "Done" and found)
    assert (record.kind, record.state) == ("TrainJob", "Succeeded")
    assert "loss" in record.logged_metrics
    assert [row.replica for row in record.description.replicas] == ["node-0"]
    train.clear()
