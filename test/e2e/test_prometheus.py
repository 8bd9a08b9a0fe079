"""A real Prometheus in a pod discovers the shipped Deployments' pods, evaluates the shipped rules, and fires alerts.

It has the shipped configuration (with a shorter interval) and no rights but those of docs/monitoring.md.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.dashboard import FOREVER
from helpers import deployed
from helpers.cluster import Cluster
from helpers.deployed import SYSTEM
from helpers.docs import DOCS
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.monitoringfiles import RULES
from helpers.monitoringqueries import await_every_panel, await_every_series
from helpers.poll import eventually
from helpers.prometheuspod import POD_PATH, PORT, PROMETHEUS_NAMESPACE, objects
from helpers.prometheusserver import Prometheus
from helpers.trainmanifests import trainjob
from localcluster import binaries, images

# An alert fires after its own five minutes.
pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(1500)]

DEPLOYMENTS = ("gang-scheduler", "tfjob-controller")
PORTS = {"gang-scheduler": 8090, "tfjob-controller": 8080}
# Members of gangs take one each, so that a gang waits on a machine of any size.
SLOT = "example.com/slot"
SLOTS_PER_NODE = 2
# Nothing is reserved once all of a gang is bound, which takes less than a second, and no job saves checkpoints.
MAY_BE_EMPTY = {"gang_reserved_amount", "tfjob_checkpoint_timestamp_seconds"}
RIGHTS = next(
    re.finditer(r"^    (kubectl apply -f \S*rbac\.yaml)$", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
)[1]

Object = dict[str, Any]


@pytest.fixture
def installed(own_nodes: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    """`kubectl apply -k manifests/overlays/gang-scheduling` with autoscaling off; away afterwards."""
    set_slots(own_nodes, str(SLOTS_PER_NODE))
    with deployed.installed(own_nodes, "gang-scheduling", tmp_path / "installed") as kubectl:
        for name in DEPLOYMENTS:
            deployed.await_rollout(kubectl, name)
        kubectl.must("apply", "--server-side", "-k", str(MANIFESTS / "base" / "runtimes"))
        yield kubectl
    set_slots(own_nodes, None)


@pytest.fixture
def prometheus(installed: Kubectl, own_nodes: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    """Ready, and without the right to discover anything."""
    kubectl = Kubectl(own_nodes.kubeconfig, tmp_path / "monitoring", PROMETHEUS_NAMESPACE)
    kubectl.must("apply", "-f", "-", manifest=yaml.safe_dump_all(objects(binaries.ensure("prometheus"))))
    try:
        yield Prometheus(f"http://{eventually(lambda: ready_address(own_nodes), 120)}:{PORT}")
    finally:
        kubectl.must("delete", "namespace", PROMETHEUS_NAMESPACE, "--wait=false")


def set_slots(cluster: Cluster, amount: str | None) -> None:
    """Adds the extended resource to the nodes, or removes it."""
    for node in cluster.api.list("/api/v1/nodes"):
        status = {"status": {"capacity": {SLOT: amount}, "allocatable": {SLOT: amount}}}
        cluster.api.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", status)


def ready_address(cluster: Cluster) -> str:
    """The pod's address, once it is ready."""
    status = cluster.api.get(POD_PATH)["status"]
    is_ready = {"type": "Ready", "status": "True"}.items()
    return status["podIP"] if any(is_ready <= each.items() for each in status.get("conditions", ())) else ""


def test_prometheus_in_the_cluster_finds_both_programs_and_alerts_when_they_are_gone(
    installed: Kubectl, prometheus: Prometheus, own_nodes: Cluster, space: str, tmp_path: Path
) -> None:
    assert prometheus.targets() == []
    grant_rights_as_the_page_says(own_nodes)
    eventually(lambda: healthy_targets(prometheus) == pods_of_programs(own_nodes), 120)
    assert sorted(rule["name"] for rule in prometheus.rules()) == sorted(rule["alert"] for rule in RULES)

    work(own_nodes, Kubectl(own_nodes.kubeconfig, tmp_path / "user", space))
    await_every_series(prometheus, MAY_BE_EMPTY)
    await_every_panel(prometheus, MAY_BE_EMPTY)
    assert faulty_rules(prometheus) == []
    assert alerts(prometheus, "firing") == set()

    replicas = {name: replicas_of(installed, name) for name in DEPLOYMENTS}
    installed.must("scale", "deployment/gang-scheduler", "--replicas=0")
    eventually(lambda: alerts(prometheus, "pending") == {"GangSchedulerDown"}, 120)
    # It is the controller that knows of gangs, so without one only the other alert is left.
    installed.must("scale", "deployment/tfjob-controller", "--replicas=0")
    eventually(lambda: alerts(prometheus, "pending") == {"TFJobControllerDown"}, 120)
    eventually(lambda: prometheus.targets() == [], 120)
    eventually(lambda: alerts(prometheus, "firing") == {"TFJobControllerDown"}, 420, 1.0)

    for name in DEPLOYMENTS:
        installed.must("scale", f"deployment/{name}", f"--replicas={replicas[name]}")
    eventually(lambda: alerts(prometheus, "firing") == set(), 180)
    eventually(lambda: healthy_targets(prometheus) == pods_of_programs(own_nodes), 120)


def grant_rights_as_the_page_says(cluster: Cluster) -> None:
    kubectl = binaries.ensure("kubectl")
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
    }
    subprocess.run(shlex.split(RIGHTS), cwd=DOCS.parent, env=environment, check=True, timeout=300)


def healthy_targets(prometheus: Prometheus) -> set[tuple[str, str, str]]:
    """The job, the pod and the address of each target; empty if one is not up."""
    targets = prometheus.targets()
    if {each["health"] for each in targets} != {"up"}:
        return set()
    return {(each["labels"]["job"], each["labels"]["pod"], each["scrapeUrl"]) for each in targets}


def pods_of_programs(cluster: Cluster) -> set[tuple[str, str, str]]:
    """What should be discovered, of all pods of the namespace."""
    pods = cluster.api.list(f"/api/v1/namespaces/{SYSTEM}/pods")
    jobs = {pod["metadata"]["name"]: pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods}
    assert set(jobs.values()) == set(DEPLOYMENTS)
    return {
        (job, pod["metadata"]["name"], f"http://{pod['status'].get('podIP')}:{PORTS[job]}/metrics")
        for pod in pods
        for job in [jobs[pod["metadata"]["name"]]]
    }


def replicas_of(kubectl: Kubectl, name: str) -> str:
    return kubectl.must("get", f"deployment/{name}", "-o", "jsonpath={.spec.replicas}")


def alerts(prometheus: Prometheus, state: str) -> set[str]:
    found = prometheus.get("alerts")["alerts"]
    return {each["labels"]["alertname"] for each in found if each["state"] == state}


def faulty_rules(prometheus: Prometheus) -> list[tuple[str, str]]:
    return [(rule["name"], rule.get("lastError", "")) for rule in prometheus.rules() if rule["health"] != "ok"]


def work(cluster: Cluster, user: Kubectl) -> None:
    """Jobs that end, a TrainJob that trains and reports metrics, a gang that runs, and one that waits for it."""
    deployed.run_to_end(user, cluster, deployed.brief_job("ends", gang=True))
    for name, steps in (("trains", 5), ("trains-on", 1_000_000)):
        program = FOREVER.replace("1000000", str(steps))
        trainer = {"image": images.BASE, "command": ["python3", "-c", program]}
        user.must("create", "-f", "-", manifest=trainjob(name, 1, framework="plain", trainer=trainer))
    user.must("create", "-f", "-", manifest=gang("holder"))
    deployed.await_phase(user, cluster, "holder", "Running")
    user.must("create", "-f", "-", manifest=gang("waits"))
    path = f"/apis/kubeflow.org/v2alpha1/namespaces/{user.namespace}/trainjobs"
    eventually(lambda: cluster.api.get(f"{path}/trains").get("status", {}).get("phase") == "Done", 120)
    eventually(lambda: cluster.api.get(f"{path}/trains-on").get("status", {}).get("metrics"), 120)


def gang(name: str) -> Object:
    """A TFJob of three members, of which only one such fits into four slots; it runs until it is deleted."""
    template = pod_template(
        container(
            image=images.BASE,
            command=["sleep", "100000"],
            imagePullPolicy="Never",
            resources={"requests": {"cpu": "10m"}, "limits": {SLOT: "1"}},
        ),
        terminationGracePeriodSeconds=0,
    )
    body = tfjob(master(template=template), workers(2, template=template), name=name)
    body["spec"]["gang"] = {"enabled": True}
    return body
