"""The instructions of docs/monitoring.md have the described effects."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from helpers.cluster import Cluster
from helpers.controllerprocess import controller_process
from helpers.docs import DOCS
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.monitoringfiles import RULES_FILE
from helpers.poll import eventually
from helpers.prometheusserver import running_prometheus, tools
from helpers.renderings import moved, named, of_kind, port_names, render, selects
from localcluster import ports
from localcluster.foreigncrds import install_monitoring_crds

pytestmark = pytest.mark.cluster

ROOT = DOCS.parent
PAGE = (DOCS / "monitoring.md").read_text()
YAML = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE)

Object = dict[str, Any]


@pytest.fixture(scope="module")
def rendered(administrator: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """The overlay that the page shows."""
    tree = tmp_path_factory.mktemp("docs") / "manifests"
    shutil.copytree(MANIFESTS, tree)
    mine = tree / "overlays" / "mine"
    mine.mkdir()
    (overlay,) = [text for text in YAML if "kind: Kustomization" in text]
    (mine / "kustomization.yaml").write_text(overlay)
    return render(administrator, mine)


@pytest.mark.parametrize("name", ["tfjob-controller", "gang-scheduler"])
def test_each_monitor_takes_the_pods_of_its_deployment_and_their_port(name: str, rendered: list[Object]) -> None:
    deployment, monitor = named(rendered, "Deployment", name), named(rendered, "PodMonitor", name)
    assert monitor["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    taken = [
        each["metadata"]["name"]
        for each in of_kind(rendered, "Deployment")
        if selects(monitor["spec"]["selector"], each)
    ]
    assert taken == [name]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in port_names(deployment)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels[monitor["spec"]["jobLabel"]] == name


def test_the_operator_s_own_kinds_take_what_is_made_for_it(
    control_plane: Cluster, kubectl: Kubectl, rendered: list[Object]
) -> None:
    install_monitoring_crds(control_plane.api)
    ours = moved(of_kind(rendered, "PodMonitor", "PrometheusRule"), kubectl.namespace)
    said = kubectl.must("apply", "--dry-run=server", "--validate=strict", "-f", "-", manifest=ours)
    assert len(said.splitlines()) == 3


def test_the_operator_and_grafana_find_what_is_theirs_by_its_labels(rendered: list[Object]) -> None:
    for each in of_kind(rendered, "PodMonitor", "PrometheusRule"):
        assert each["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    (config_map,) = [
        each for each in of_kind(rendered, "ConfigMap") if "grafana_dashboard" in each["metadata"].get("labels", {})
    ]
    assert {json.loads(text)["uid"] for text in config_map["data"].values()} == {"tfjob-controller", "gang-scheduler"}


def test_the_rules_are_the_same_with_and_without_the_operator(rendered: list[Object]) -> None:
    (rule,) = of_kind(rendered, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES_FILE.read_text())


def test_the_page_s_own_check_of_the_rules_is_content() -> None:
    (command,) = [line for line in COMMANDS if line.startswith("promtool ")]
    path = f"{tools().promtool.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        shlex.split(command), cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_controller_on_one_s_own_machine_is_scraped_as_the_page_says(
    control_plane: Cluster, administrator: Kubectl, namespace: str, tmp_path: Path
) -> None:
    run, curl = [line for line in COMMANDS if line.startswith(("tfjob-controller run", "curl"))]
    (text,) = [text for text in YAML if "scrape_configs" in text]
    with ports.reserve(1) as (port,):
        run, curl, text = (each.replace("8080", str(port)) for each in (run, curl, text))
        flags = [word for word in shlex.split(run) if word.startswith("--metrics")]
        with controller_process(control_plane.kubeconfig, namespace, tmp_path / "log", *flags):
            url = curl.split()[-1]
            eventually(lambda: b"tfjob_controller_build_info" in _got(url))
            shutil.copy(RULES_FILE, tmp_path)
            config = yaml.safe_load(text) | {"global": {"scrape_interval": "1s"}}
            with running_prometheus(config, tmp_path) as prometheus:
                eventually(lambda: prometheus.query('up{job="tfjob-controller"} == 1'))
                for query in queries():
                    prometheus.query(query)
                assert prometheus.query('informer_synced{job="tfjob-controller", name="tfjobs"}')


def queries() -> list[str]:
    """Those of the page's table."""
    cells = re.findall(r"^\| `((?:up|sum|tfjob|informer)[^`]*)` \|", PAGE, re.MULTILINE)
    assert len(cells) == 4
    return [cell.replace("\\|", "|") for cell in cells]


def _got(url: str) -> bytes:
    try:
        return urllib3.request("GET", url, timeout=5.0, retries=False).data
    except urllib3.exceptions.HTTPError:
        return b""
