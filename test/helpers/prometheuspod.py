"""Starts a cluster with jobs in all states and a Prometheus in it, which scrapes the shipped Deployments.

Prometheus has the shipped configuration, rights, rules and alerts. The cluster stays until
`make cluster-down NAME=demo-monitoring`. Its pod discovers its targets through the API server, as the ServiceAccount
that the shipped `rbac.yaml` names. It needs no image of its own: nodes see this machine's files, so the program is
mounted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import urllib3
import yaml

from demo import autoscale
from demo.dashboard import create_jobs
from demo.kubectl import Kubectl
from demo.play import Scene
from demo.screen import Check
from demo.stage import ROOT, Object, Stage, end_command, has_condition, wait
from localcluster import binaries, images
from localcluster.controlplane import ControlPlane
from localcluster.images import BASE

CLUSTER = replace(
    autoscale.CLUSTER,
    name="demo-monitoring",
    images=(BASE, images.CONTROLLER, images.KUBE_SCHEDULER),
    tools=("kubectl", "prometheus"),
)
OVERLAY = "manifests/overlays/gang-scheduling"
COMPONENT = ROOT / "manifests" / "components" / "monitoring"
PROMETHEUS, PROMETHEUS_NAMESPACE = "prometheus", "monitoring"
PORT = 9090
POD_PATH = f"/api/v1/namespaces/{PROMETHEUS_NAMESPACE}/pods/{PROMETHEUS}"
# A user's Prometheus scrapes each half minute; nobody should wait for that here.
INTERVAL = "2s"
_CONFIG_FILE, _RULES_FILE = "prometheus.yaml", "rules.yaml"
_CONFIG, _PROGRAM = "/etc/prometheus", "/usr/local/bin/prometheus"
# "nobody": the program needs no rights on the machine.
_USER = 65534
_SYSTEM = "tfjob-system"
_DEPLOYMENTS = ("tfjob-controller", "gang-scheduler")
# Two replicas each.
_TARGETS = 4
_READY_SECONDS = 120


def fill(plane: ControlPlane, stage: Stage) -> None:
    """Installs this project's programs and Prometheus, and creates the jobs."""
    screen, program = stage.screen, stage.kubectl.binary
    system, observing = (Kubectl(program, plane.kubeconfig, name) for name in (_SYSTEM, PROMETHEUS_NAMESPACE))
    screen.step(f"kubectl apply -k {OVERLAY}")
    system.run("apply", "--server-side", "-k", str(ROOT / OVERLAY))
    screen.step("Prometheus in the namespace monitoring, with the shipped configuration and rights")
    replace(stage, kubectl=observing).apply(*objects(binaries.ensure("prometheus", screen.detail)))
    system.run("apply", "-f", str(COMPONENT / "prometheus" / "rbac.yaml"))
    for name in _DEPLOYMENTS:
        system.run("rollout", "status", f"deployment/{name}", "--timeout=50s")
    url = _await_ready(stage)
    # No event of a job is to be missed.
    what = f"all {_TARGETS} replicas to be scraped: curl -s {url}/api/v1/targets"
    wait(lambda: _count_of_targets(url) == _TARGETS, _READY_SECONDS, what)
    create_jobs(stage)


def _await_ready(stage: Stage) -> str:
    """Returns the address of Prometheus, once it is ready."""
    what = "Prometheus to be ready: kubectl -n monitoring describe pod prometheus"
    wait(lambda: has_condition(stage.api.get(POD_PATH), "Ready"), _READY_SECONDS, what)
    return f"http://{stage.api.get(POD_PATH)['status']['podIP']}:{PORT}"


def _count_of_targets(url: str) -> int:
    fields = {"query": "up == 1"}
    answer = urllib3.request("GET", f"{url}/api/v1/query", fields=fields, timeout=30.0, retries=False)
    return len(answer.json()["data"]["result"])


def run(stage: Stage) -> list[Check]:
    """Prints what can be read there."""
    url = _await_ready(stage)
    stage.screen.step("what Prometheus scrapes, and which alerts fire:")
    stage.screen.detail(f"curl -s {url}/api/v1/targets")
    stage.screen.detail(f"curl -s {url}/api/v1/alerts")
    stage.screen.detail(f"{end_command(stage.folder)}     # stops all of it")
    return []


def objects(program: Path) -> list[Object]:
    """Returns the namespace, the account, the configuration and the pod. `program` is a path on this machine."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROMETHEUS_NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(), "data": _files()},
        _pod(program),
    ]


def _metadata() -> Object:
    return {"name": PROMETHEUS, "namespace": PROMETHEUS_NAMESPACE}


def _files() -> dict[str, str]:
    """The shipped files; only the intervals are others."""
    shipped = COMPONENT / "prometheus"
    config = yaml.safe_load((shipped / _CONFIG_FILE).read_text(encoding="utf-8"))
    config["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), INTERVAL)
    return {_CONFIG_FILE: yaml.safe_dump(config), _RULES_FILE: (shipped / _RULES_FILE).read_text(encoding="utf-8")}


def _pod(program: Path) -> Object:
    volumes = [
        {"name": "config", "configMap": {"name": PROMETHEUS}},
        {"name": "data", "emptyDir": {}},
        {"name": "program", "hostPath": {"path": str(program), "type": "File"}},
    ]
    mounts = [
        {"name": "config", "mountPath": _CONFIG},
        {"name": "data", "mountPath": "/data"},
        {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
    ]
    container = {
        "name": PROMETHEUS,
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": [
            _PROGRAM,
            f"--config.file={_CONFIG}/{_CONFIG_FILE}",
            "--storage.tsdb.path=/data",
            f"--web.listen-address=:{PORT}",
        ],
        "ports": [{"name": "web", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "web"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {"runAsUser": _USER, "allowPrivilegeEscalation": False},
        "volumeMounts": mounts,
    }
    spec = {
        "serviceAccountName": PROMETHEUS,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": volumes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(), "spec": spec}


SCENE = Scene(target="demo-monitoring", description=__doc__ or "", cluster=CLUSTER, run=run, fill=fill)
