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
from tfjob_controller.kubectl.arguments import EXIT_TIMEOUT

pytestmark = pytest.mark.cluster

IMAGE = "localhost/train"
# Only ends what hangs.
PATIENCE = ["--timeout", "2m"]


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


def test_a_job_that_fails_is_exit_code_1_with_its_reason(plugin: Run, either: Trial) -> None:
    plays(either, 1)
    flags = ["--max-restarts", "0", "--wait", *PATIENCE]
    code, out, error = plugin("submit", *flags_of(either), *flags, "--", "python", "train.py")
    assert (code, out) == (1, f"{named(either)} created\n")
    assert f"{either.name} has failed: " in error
    assert error.count("\n") == 1


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


def test_a_job_that_exists_is_not_submitted_again(plugin: Run, either: Trial) -> None:
    flags = [*flags_of(either), "--suspend"]
    assert plugin("submit", *flags)[0] == 0
    code, out, error = plugin("submit", *flags)
    assert (code, out) == (1, "")
    assert f'"{either.name}" already exists' in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param([], "the job needs an image: --image", id="no image"),
        pytest.param(["--image", "i", "--workers", "1", "--nodes", "2"], "--workers makes a TFJob", id="two kinds"),
        pytest.param(["--image", "i", "--workers", "5000"], "replicas", id="too many"),
        pytest.param(["--image", "i", "--nodes", "2", "--framework", "Torch!"], "framework", id="framework"),
        pytest.param(["--image", "i", "--env", "9=x"], "--env: must be NAME=VALUE", id="variable"),
    ],
)
def test_a_job_that_cannot_be_is_one_line_and_code_2(plugin: Run, flags: list[str], words: str) -> None:
    code, out, error = plugin("submit", "new", *flags)
    assert (code, out) == (2, "")
    assert words in error
    assert error.count("\n") == 1


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


def test_a_wrong_name_among_others_changes_none_of_them(plugin: Run, trial: Trial) -> None:
    trial.submit(master(), suspend=True)
    assert plugin("delete", trial.name, "nobody")[0] == 1
    assert plugin("resume", trial.name, "nobody")[0] == 1
    assert trial.get()["spec"]["suspend"] is True


def test_workers_come_and_go_with_scale(plugin: Run, trial: Trial) -> None:
    trial.submit(master(), workers(1), autoscaling={"maxWorkers": 3})
    trial.await_phase("Running")
    assert plugin("scale", trial.name, "--replicas=-1")[::2] == (
        2,
        "kubectl tfjob: argument --replicas: must be 0 or more (see `kubectl tfjob scale --help`)\n",
    )
    assert plugin("scale", trial.name, "--replicas=2") == (0, f"tfjob/{trial.name} scaled to 2 workers\n", "")
    eventually(lambda: trial.status().get("ready", {}).get("worker") == "2/2", 60.0)


def test_a_train_job_that_has_started_keeps_its_nodes(plugin: Run, train: Trial) -> None:
    train.train(1)
    train.await_phase("Running")
    code, out, error = plugin("scale", train.name, "2")
    assert (code, out) == (1, "")
    assert "numNodes" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("until", "code"),
    [("condition=Failed", EXIT_TIMEOUT), ("running", 0)],
)
def test_a_time_that_is_over_is_code_124_and_0_seconds_look_once(
    plugin: Run, trial: Trial, until: str, code: int
) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    found, out, error = plugin("wait", trial.name, "--for", until, "--timeout", "0")
    assert found == code
    assert bool(out) is (code == 0)
    if code:
        assert error.startswith("kubectl tfjob: timed out after 0s waiting for ")
        assert f": tfjob/{trial.name} is Running" in error
        assert error.endswith(stays(trial))
    else:
        assert error == ""


def stays(trial: Trial) -> str:
    """How the line ends that says that the time is over."""
    name = f"{named(trial)} -n {trial.namespace}"
    return f"The job stays: `kubectl tfjob wait {name}` waits again, `kubectl tfjob delete {name}` deletes it\n"


def test_a_followed_job_that_does_not_end_in_time_is_code_124_and_stays(plugin: Run, either: Trial) -> None:
    """The one replica runs until somebody ends it."""
    code, out, error = plugin("submit", *flags_of(either), "-f", "--timeout", "3s", "--", "sleep", "600")
    assert (code, out.splitlines()[0]) == (EXIT_TIMEOUT, f"{named(either)} created")
    last = error.splitlines(keepends=True)[-1]
    assert last.startswith("kubectl tfjob: timed out after 3s waiting for Succeeded: ")
    assert last.endswith(stays(either))
    assert not either.get()["metadata"].get("deletionTimestamp")


def test_a_job_that_has_ended_is_neither_suspended_nor_resumed(plugin: Run, either: Trial) -> None:
    plays(either, 0)
    assert plugin("submit", *flags_of(either), "--wait", *PATIENCE)[0] == 0
    for command in ("suspend", "resume"):
        words = f"{named(either)} has succeeded: a job that has ended cannot be {command.rstrip('e')}ed"
        assert plugin(command, either.name) == (1, "", f"kubectl tfjob: {words}\n")
    assert not either.get()["spec"].get("suspend")


@pytest.mark.parametrize(
    ("exit_code", "until", "code"),
    [
        pytest.param(1, "failed", 0, id="it fails"),
        pytest.param(1, "succeeded", 1, id="it fails instead"),
        pytest.param(0, "condition=Suspended", 1, id="it ends before"),
    ],
)
def test_wait_says_whether_it_came(plugin: Run, trial: Trial, exit_code: int, until: str, code: int) -> None:
    trial.plays("master-0", ends(exit_code))
    trial.submit(master(), backoffLimit=0)
    found, _, error = plugin("wait", trial.name, "--for", until, *PATIENCE)
    assert found == code
    assert error.count("\n") == code


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
    waiting, shares = out.split("\n\n")
    assert [line.split()[:2] for line in waiting.splitlines()[1:]] == [["1", "first"], ["2", "second"]]
    assert [line.split()[:3] for line in shares.splitlines()[2:]] == [[namespace, "0", "2"]]
    assert "cpu 4 of 16" in out
    assert "needs 12 CPUs more" in out
    assert error.startswith("0 gangs with capacity")
    assert [each["gang"] for each in json.loads(plugin("queue", "-n", namespace, "-o", "json")[1])["waiting"]] == [
        "first",
        "second",
    ]


def test_queue_says_that_no_gang_scheduler_has_looked_and_counts_from_the_creation(
    plugin: Run, control_plane: Cluster, namespace: str
) -> None:
    api, path = control_plane.api, GANGS.format(namespace)
    head = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": "first"}}
    made = api.create(path, {**head, "spec": {"members": [{"name": "worker", "count": 4}]}})
    code, out, error = plugin("queue", "-n", namespace)
    assert code == 0
    assert "no gang scheduler has seen it yet" in out
    assert error.startswith("no gang scheduler has seen any gang; check that one runs: kubectl get pods -A -l ")
    assert "docs/gang-scheduling.md says how it is installed" in error
    later = {"phase": "Waiting", "position": 1, "queuedTime": "2099-01-01T00:00:00Z"}
    api.patch(f"{path}/first/status", {"status": later})
    (row,) = json.loads(plugin("queue", "-n", namespace, "-o", "json")[1])["waiting"]
    assert row["since"] == made["metadata"]["creationTimestamp"]
