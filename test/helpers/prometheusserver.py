"""A Prometheus of a test's own on loopback, started with a configuration, and queried through its HTTP API.

Tests that need it or promtool are skipped without them.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from helpers.poll import eventually
from localcluster import ports, prometheus
from localcluster.errors import LocalClusterError

LOOPBACK = "127.0.0.1"

Object = dict[str, Any]


@functools.cache
def tools() -> prometheus.Tools:
    """Returns both programs. Skips the test if they cannot be installed; CI does not accept such a skip."""
    try:
        return prometheus.ensure()
    except LocalClusterError as error:
        pytest.skip(str(error))


class QueryError(Exception):
    """Prometheus refuses a query; the message is its reason."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def get(self, path: str, **fields: str | Sequence[str]) -> Any:
        """Returns the `data` of a response. Raises QueryError."""
        lists = {key: [value] if isinstance(value, str) else value for key, value in fields.items()}
        pairs = [(key, value) for key, values in lists.items() for value in values]
        answer = urllib3.request("GET", f"{self.url}/api/v1/{path}", fields=pairs, timeout=30.0, retries=False)
        body = answer.json()
        if body["status"] != "success":
            raise QueryError(body["error"])
        return body["data"]

    def query(self, expr: str) -> list[Object]:
        """Returns the series that a query selects now."""
        result: list[Object] = self.get("query", query=expr)["result"]
        return result

    def series(self, selector: str) -> list[Object]:
        """Returns the labels of all series that a selector matches."""
        series: list[Object] = self.get("series", **{"match[]": selector})
        return series

    def targets(self) -> list[Object]:
        targets: list[Object] = self.get("targets")["activeTargets"]
        return targets

    def rules(self) -> list[Object]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


@contextlib.contextmanager
def running_prometheus(config: Mapping[str, Any], folder: Path) -> Iterator[Prometheus]:
    """Starts a Prometheus and waits until it is ready; kills it at the end.

    Paths in `config` are relative to `folder`, where all its files are.
    """
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(dict(config)))
    with ports.reserve(1) as (port,), (folder / "prometheus.log").open("wb") as log:
        argv = [
            str(tools().prometheus),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
        try:
            eventually(lambda: process.poll() is not None or _is_ready(port))
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            yield Prometheus(f"http://{LOOPBACK}:{port}")
        finally:
            process.kill()
            process.wait(10)


def _is_ready(port: int) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"http://{LOOPBACK}:{port}/-/ready", timeout=5.0, retries=False).status == 200
    return False


def discovered(deployment: Object, pod: str, address: str) -> Iterator[Object]:
    """Returns the targets that `kubernetes_sd_configs` discovers for a Deployment's pod, one for each container port.

    The port `metrics` is at `address`; nothing listens at the others.
    """
    template = deployment["spec"]["template"]
    labels = {_label("pod_label", key): value for key, value in template["metadata"]["labels"].items()}
    of_pod = {
        _label("namespace"): deployment["metadata"]["namespace"],
        _label("pod_name"): pod,
        _label("pod_phase"): "Running",
        **labels,
    }
    for container in template["spec"]["containers"]:
        for port in container["ports"]:
            of_port = {_label("pod_container_name"): container["name"], _label("pod_container_port_name"): port["name"]}
            target = address if port["name"] == "metrics" else f"{LOOPBACK}:1"
            yield {"targets": [target], "labels": {**of_pod, **of_port}}


def _label(*parts: str) -> str:
    """Replaces characters that labels must not contain, as Prometheus does."""
    return "__meta_kubernetes_" + "_".join("".join(c if c.isalnum() else "_" for c in part) for part in parts)


@contextlib.contextmanager
def prometheus_with(samples: str, folder: Path) -> Iterator[Prometheus]:
    """Starts a Prometheus that has stored these samples, in the text of OpenMetrics, and scrapes nothing."""
    (folder / "samples.om").write_text(samples)
    command = [str(tools().promtool), "tsdb", "create-blocks-from", "openmetrics", "samples.om", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with running_prometheus({"global": {}}, folder) as prometheus:
        yield prometheus
