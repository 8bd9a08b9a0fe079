"""The chart on a cluster, with the real helm: install, upgrade, rollback, uninstall. Jobs run on, and CRDs stay."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster, new_namespace, new_token, own_plane, write_kubeconfig
from helpers.controller import Jobs
from helpers.controllerprocess import WORKING, ControllerProcess, controller_process
from helpers.docs import commands
from helpers.fleet import fleet_kubelet, runs
from helpers.helm import CHART, IMAGES, Helm, Values, merged
from helpers.kubectl import CRDS, MANIFESTS, Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.poll import eventually
from helpers.renderings import SYSTEM
from localcluster import stack
from localcluster.api import Api
from localcluster.programs import Options

pytestmark = pytest.mark.cluster

PAGE = "docs/install.md"
# That of the page: CRDs that were kept belong to a release of the same name.
RELEASE = "tfjob-controller"
OF_RELEASE = f"app.kubernetes.io/instance={RELEASE}"
CRD = "tfjobs.kubeflow.org"
# Of one release Secret, whose limit is 1 MiB. All components but monitoring need 136,000.
MAX_STORED_BYTES = 250_000
EVERYTHING: Values = {
    "gangScheduler": {"enabled": True},
    "dashboard": {"enabled": True},
    "kubeflowTrainer": {"enabled": True},
    "progressServer": {"enabled": True},
    **{each: {"enabled": True} for each in ("highAvailability", "priorityClass", "networkPolicies")},
}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster without a release, maybe with the CRDs of an earlier one; `user` is in the namespace of the jobs."""

    cluster: Cluster
    helm: Helm
    system: Kubectl
    user: Kubectl
    jobs: Jobs
    folder: Path
    processes: contextlib.ExitStack

    def get(self, *what: str) -> Object:
        found: Object = json.loads(self.system.must("get", *what, "-o", "json"))
        return found

    def controller(self, name: str) -> ControllerProcess:
        """Starts this tree's program as the installed Deployment does: its flags, its config file, its rights."""
        (container,) = self.get("deployment", "tfjob-controller")["spec"]["template"]["spec"]["containers"]
        config = self.folder / "controller-config.yaml"
        config.write_text(self.get("configmap", "tfjob-controller-config")["data"][config.name])
        flags = [each.replace("/etc/tfjob-controller", str(self.folder)) for each in container["args"]]
        token = new_token(self.cluster.api, SYSTEM, "tfjob-controller")
        kubeconfig = write_kubeconfig(self.cluster, token, self.folder / f"{name}.kubeconfig")
        own = (
            f"--leader-elect-lease-namespace={SYSTEM}",
            "--leader-elect-retry-period=500ms",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        )
        started = controller_process(kubeconfig, "", self.folder / f"{name}.log", *flags, *own)
        process = self.processes.enter_context(started)
        process.await_log(WORKING)
        return process

    def uids(self) -> dict[str, str]:
        """The jobs and their children, which no step may replace."""
        found = json.loads(self.user.must("get", "tfjobs,jobs,pods,services", "-o", "json"))["items"]
        return {f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["uid"] for each in found}

    def spec_fields(self) -> set[str]:
        schema = self.get("crd", CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(schema["properties"]["spec"]["properties"])

    def replicas(self) -> int:
        return int(self.get("deployment", "tfjob-controller")["spec"]["replicas"])


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    if stack.existing_kubeconfig() is not None:
        pytest.skip("installs and deletes CRDs, so it needs a control plane of its own: unset KUBECONFIG")
    with own_plane("helm", Options()) as cluster:
        yield cluster


@pytest.fixture
def stage(plane: Cluster, tmp_path: Path) -> Iterator[Stage]:
    namespace = new_namespace(plane.api)
    system, user = (Kubectl(plane.kubeconfig, tmp_path / "cache", each) for each in (SYSTEM, namespace))
    helm = Helm(tmp_path / "helm", SYSTEM, plane.kubeconfig)
    with fleet_kubelet(Api.from_kubeconfig(plane.kubeconfig), namespace), contextlib.ExitStack() as processes:
        yield Stage(plane, helm, system, user, Jobs(plane.api, namespace), tmp_path, processes)
    for each in json.loads(helm.must("list", "--all-namespaces", "--output", "json")):
        Helm(helm.home, each["namespace"], plane.kubeconfig).must("uninstall", each["name"])


def next_version(folder: Path) -> Path:
    """A chart of the next version, whose CRD of TFJob has a new field."""
    chart = Path(shutil.copytree(CHART, folder / "next"))
    metadata = chart / "Chart.yaml"
    metadata.write_text(re.sub(r"^(version|appVersion): .*", r"\1: 9.9.9", metadata.read_text(), flags=re.MULTILINE))
    crd = chart / "files" / "crds" / "kubeflow.org_tfjobs.yaml"
    first, spec, rest = crd.read_text().partition("\n          spec:\n")
    before, properties, after = rest.partition("\n            properties:\n")
    field = "              newField:\n                description: A new field.\n                type: string\n"
    crd.write_text(first + spec + before + properties + field + after)
    return chart


@pytest.mark.long
def test_jobs_and_crds_outlive_every_step_of_a_release(stage: Stage, tmp_path: Path) -> None:
    chart = next_version(tmp_path)
    said = stage.helm.must("install", RELEASE, str(CHART), "--create-namespace", values=IMAGES)
    assert "rollout status deployment/tfjob-controller" in said
    first = stage.controller("first")
    stage.user.must("get", "tfjobs")
    template = {**runs(0), "metadata": {}}  # runs until the test ends it
    stage.jobs.submit(tfjob(master(template=template), workers(1, template=template)))
    stage.jobs.await_phase("Running")
    uids = stage.uids()

    stage.helm.must("upgrade", RELEASE, str(chart), "--reset-then-reuse-values", "--set", "controller.replicas=5")
    assert (stage.replicas(), "newField" in stage.spec_fields()) == (5, True)
    eventually(lambda: patch_new_field(stage))  # the API server takes a moment for a new schema
    assert stage.jobs.get()["spec"]["newField"] == "kept"
    assert stage.uids() == uids

    stage.helm.must("rollback", RELEASE, "1")
    assert (stage.replicas(), "newField" in stage.spec_fields()) == (2, False)
    assert stage.uids() == uids

    said = stage.helm.must("uninstall", RELEASE)
    assert said.count("[CustomResourceDefinition]") == 5
    assert stage.system.must("get", "deployments,roles,rolebindings,serviceaccounts", "-l", OF_RELEASE) == ""
    assert stage.system.must("get", "clusterroles,validatingadmissionpolicies", "-l", OF_RELEASE) == ""
    assert stage.uids() == uids
    first.terminate()
    assert first.wait(60) is not None
    # Without its rights, the program could not release the Lease, and the next one would wait for 15 s.
    stage.system.must("delete", "lease", "tfjob-controller")

    stage.helm.must("install", RELEASE, str(chart), values=IMAGES)
    stage.controller("second")
    stage.jobs.end_replica("master")
    stage.jobs.await_phase("Done")


def patch_new_field(stage: Stage) -> bool:
    patch = '{"spec": {"newField": "kept"}}'
    return stage.user.run("patch", "tfjob", "example-job", "--type=merge", "--patch", patch).error == ""


def test_the_commands_of_the_page_in_their_order(stage: Stage) -> None:
    found = [each.text.replace("\\\n", " ") for each in commands(PAGE) if each.text.startswith("helm ")]
    assert [each.split()[1] for each in found] == ["install", "upgrade", "rollback", "uninstall"]
    for each in found:
        stage.helm.must(*shlex.split(each)[1:])
        if "upgrade" in each:
            assert "torch-distributed" in stage.system.must("get", "clustertrainingruntimes", "-o", "name")
    # Both stay, whatever is uninstalled.
    assert "torch-distributed" in stage.system.must("get", "clustertrainingruntimes", "-o", "name")


def test_a_release_with_everything_is_far_below_the_limit_of_its_secret(stage: Stage) -> None:
    stage.helm.must("install", RELEASE, str(CHART), "--create-namespace", values=merged(IMAGES, EVERYTHING))
    (secret,) = stage.get("secrets", "-l", f"owner=helm,name={RELEASE}")["items"]
    assert len(base64.b64decode(secret["data"]["release"])) < MAX_STORED_BYTES
    # Nothing is applied by the client, whose annotation has a limit of 256 KiB.
    assert "kubectl.kubernetes.io/last-applied-configuration" not in stage.get("crd", CRD)["metadata"]["annotations"]


def test_releases_for_one_namespace_each_do_not_clash(stage: Stage) -> None:
    for team in ("red", "blue"):
        stage.system.must("create", "namespace", team)
        helm = Helm(stage.helm.home, f"{team}-system", stage.helm.kubeconfig)
        settings: Values = merged(IMAGES, {"watchNamespace": team, "crds": {"install": False}})
        helm.must("install", RELEASE, str(CHART), "--create-namespace", values=settings)
    names = stage.system.must("get", "clusterroles", "-l", OF_RELEASE, "-o", "name").split()
    assert [each.partition("/")[2] for each in names] == [
        f"tfjob-controller-runtimes-{team}-system" for team in ("blue", "red")
    ]


@pytest.mark.long
def test_what_kubectl_installed_can_be_taken_over(stage: Stage) -> None:
    stage.system.must("delete", "-k", str(CRDS), "--ignore-not-found")
    stage.system.must("apply", "--server-side", "-k", str(CRDS))
    stage.system.must("apply", "-k", str(MANIFESTS / "overlays" / "standalone"))
    refused = stage.helm.run("install", RELEASE, str(CHART), values=IMAGES)
    assert (refused.code, "invalid ownership metadata" in refused.error) == (1, True)
    stage.helm.must("install", RELEASE, str(CHART), "--take-ownership", "--force-conflicts", values=IMAGES)
    assert stage.get("crd", CRD)["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE
    (container,) = stage.get("deployment", "tfjob-controller")["spec"]["template"]["spec"]["containers"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert container["image"] == f"localhost/tfjob-controller:{version}"
    stage.helm.must("uninstall", RELEASE)
    assert stage.system.run("get", "deployment", "tfjob-controller").code == 1
