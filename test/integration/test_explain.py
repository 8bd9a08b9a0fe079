"""`kubectl tfjob explain` on a real API server: the timeline of a real job, with the rights of a viewer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import plugin as plugins
from helpers.cluster import Cluster, new_token, set_pod_waiting, write_kubeconfig
from helpers.kubectl import Kubectl
from helpers.logkubelet import Kubelet
from helpers.manifests import master, workers
from helpers.playground import FOREVER, Playground, Trial, alone, ends
from helpers.poll import eventually
from helpers.rights import RBAC, Right, await_rights
from tfjob_controller.kubectl import cli

pytestmark = pytest.mark.cluster


Object = dict[str, Any]
# Code, standard output, standard error.
Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """The controller's log would mix with what the plugin prints: here they share a process."""
    with plugins.quiet():
        yield


@pytest.fixture(scope="module")
def viewer(
    control_plane: Cluster,
    administrator: Kubectl,
    playground: Playground,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """The kubeconfig of somebody who has `view` in the playground, and nothing else anywhere."""
    namespace, api = playground.jobs.namespace, control_plane.api
    administrator.must("apply", "--server-side", "--force-conflicts", "-f", str(RBAC / "user-roles.yaml"))
    administrator.must("create", "serviceaccount", "explainer", "-n", namespace)
    account = f"--serviceaccount={namespace}:explainer"
    administrator.must("create", "rolebinding", "explainer", "--clusterrole=view", account, "-n", namespace)
    token = new_token(api, namespace, "explainer")
    await_rights(api, token, namespace, Right("kubeflow.org", "tfjobs", "get"))
    yield write_kubeconfig(control_plane, token, tmp_path_factory.mktemp("viewer") / "kubeconfig")
    administrator.must("delete", "rolebinding,serviceaccount", "explainer", "-n", namespace)


@pytest.fixture
def explain(viewer: Path, trial: Trial, capfd: pytest.CaptureFixture[str]) -> Explain:
    """Runs it for the test's job, as the viewer."""

    def run(*arguments: str, kubeconfig: Path = viewer) -> tuple[int, str, str]:
        capfd.readouterr()
        name = f"{trial.jobs.resource.kind.lower()}/{trial.name}"
        code = cli.main(["explain", name, *arguments, "-n", trial.namespace, "--kubeconfig", str(kubeconfig)])
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return run


def told(explain: Explain) -> Object:
    """Its answer for programs."""
    code, out, error = explain("-o", "json")
    assert (code, error) == (0, "")
    found: Object = json.loads(out)
    return found


def test_it_shows_a_jobs_life_in_order_of_time(explain: Explain, trial: Trial) -> None:
    trial.plays("worker-0", ends(3, "no GPU here"), FOREVER)
    trial.submit(master(), workers(1))
    trial.await_status(lambda status: status.get("restarts", 0) >= 1)
    eventually(lambda: trial.status().get("ready", {}).get("worker") == "1/1", 20.0)
    eventually(lambda: any("SuccessfulCreate" in each["text"] for each in told(explain)["timeline"]))
    found = told(explain)
    assert (found["kind"], found["name"], found["unread"]) == ("TFJob", trial.name, [])
    times = [each["time"][:19] for each in found["timeline"]]
    assert times == sorted(times)
    said = [(each["replica"], each["text"]) for each in found["timeline"]]
    order = [
        ("", "created"),
        ("worker-0", "tensorflow ended with exit code 3: no GPU here"),
        ("worker-0", "tensorflow started (restart 1)"),
    ]
    places = [next(place for place, line in enumerate(said) if line == wanted) for wanted in order]
    assert places == sorted(places)
    assert found["timeline"][places[1]]["isWarning"]
    assert any(text.startswith("scheduled to ") for _, text in said)
    assert any(text.startswith("Running is True") for _, text in said)
    own = next(each for each in found["timeline"] if "SuccessfulCreate [tfjob-controller]" in each["text"])
    assert len(own["reconcileId"]) == 32
    # A viewer may not read the controller's Lease.
    assert re.fullmatch(r"it runs: .* \(reported by the controller \d+s ago\)", found["now"])
    assert "restarts so far: 1" in found["next"]


def test_it_says_why_a_job_does_not_run_and_what_would_change_that(explain: Explain, trial: Trial) -> None:
    trial.submit(master(template=alone()), workers(1, template=alone()))
    pod = trial.await_pod("worker-0")["metadata"]["name"]
    message = "no such image: localhost/typo"
    set_pod_waiting(trial.jobs.api, trial.namespace, pod, "ErrImagePull", message)
    # A pod may be there before the first status is.
    eventually(lambda: f"now: worker-0 waits: ErrImagePull: {message}" in explain()[1].splitlines())
    code, out, _ = explain()
    assert code == 0
    assert "correct the image name" in out.splitlines()[-1]


def test_the_controllers_log_is_merged_or_reported_as_unreadable_in_one_line(
    explain: Explain, trial: Trial, control_plane: Cluster, logging_node: Kubelet
) -> None:
    trial.submit(master())
    trial.await_phase("Running")
    labels = {"app": "tfjob-controller"}
    spec = {"nodeName": logging_node.name, "containers": [{"name": "manager", "image": "localhost/none"}]}
    name = f"controller-{trial.name}"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    key, reconcile_id = f"{trial.namespace}/{trial.name}", "0123456789abcdef0123456789abcdef"
    line = {"event": "wrote", "created": 1, "level": "info", "timestamp": "2031-01-01T00:00:00.5Z"}
    lines = [{**line, "key": key, "reconcile_id": reconcile_id}, {**line, "key": f"{key}-other"}]
    logging_node.logs[name] = "".join(f"{json.dumps(each)}\n" for each in lines) + f"no JSON, but of {key}\n"
    trial.jobs.api.create(f"/api/v1/namespaces/{trial.namespace}/pods", pod)
    _, out, error = explain("--controller-logs", "--controller-namespace", trial.namespace)
    merged = [each.split() for each in out.splitlines() if f"pod/{name}" in each]
    assert merged == [["2031-01-01T00:00:00Z", "-", f"pod/{name}", reconcile_id, "wrote", "created=1"]]
    assert error == ""
    code, out, error = explain("--controller-logs")
    assert code == 0
    assert "now: it runs" in out
    assert error.startswith("not read: the controller's logs: pods is forbidden: ")
    assert error.count("\n") == 1
