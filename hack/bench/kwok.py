"""Uses kwok instead of kubelets: it reports thousands of pods as Running and then as ended with little CPU.

Nodes are not managed and send no heartbeats, which no program here needs. Masters run for a random time within
`Times.master`, all other replicas within `Times.worker`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import urllib3

from localcluster import binaries, ports, process
from localcluster.controlplane import READY_TIMEOUT_SECONDS, ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.programs import LOOPBACK

_POLL_SECONDS = 0.1

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Times:
    """Minimum and maximum seconds that pods run."""

    worker: tuple[int, int] = (5, 15)
    master: tuple[int, int] = (20, 30)


_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
podIP: 10.0.0.1
podIPs:
- ip: 10.0.0.1
conditions:
{{ range $type := (list "Initialized" "Ready" "ContainersReady") }}
- type: {{ $type | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"""
_SUCCEEDED = """
{{ $now := Now }}
phase: Succeeded
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""


def stages(times: Times) -> list[Object]:
    """Returns the kwok stages of pods (kwok.x-k8s.io/v1alpha1)."""
    exists: Object = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    running = [exists, {"key": ".status.phase", "operator": "In", "values": ["Running"]}]
    return [
        # kwok manages pods only on nodes of a kind with a stage; this stage never applies.
        _stage("node-never", {"statusTemplate": ""}, [{**exists, "operator": "Exists"}, exists], kind="Node"),
        _stage("pod-ready", {"statusTemplate": _RUNNING}, [exists, _phase("Pending")]),
        _ends("worker-ends", [*running, _job_type("NotIn")], *times.worker),
        _ends("master-ends", [*running, _job_type("In")], *times.master),
        _stage("pod-delete", {"delete": True}, [{**exists, "operator": "Exists"}]),
    ]


def _phase(phase: str) -> Object:
    return {"key": ".status.phase", "operator": "In", "values": [phase]}


def _job_type(operator: str) -> Object:
    return {"key": '.metadata.labels["job_type"]', "operator": operator, "values": ["MASTER"]}


def _ends(name: str, expressions: list[Object], least: int, most: int) -> Object:
    delay = {"durationMilliseconds": 1000 * least, "jitterDurationMilliseconds": 1000 * most}
    return _stage(name, {"statusTemplate": _SUCCEEDED}, expressions, delay=delay)


def _stage(name: str, next_: Object, expressions: list[Object], *, kind: str = "Pod", **spec: Any) -> Object:
    resource, selector = {"apiGroup": "v1", "kind": kind}, {"matchExpressions": expressions}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {"resourceRef": resource, "selector": selector, "next": next_, **spec},
    }


@contextlib.contextmanager
def running_kwok(plane: ControlPlane, times: Times) -> Iterator[process.Identity]:
    """Runs kwok, which is built first if necessary. Raises LocalClusterError."""
    program, config = binaries.ensure("kwok"), plane.folder / "kwok.yaml"
    config.write_text("\n---\n".join(json.dumps(stage) for stage in stages(times)))
    with ports.reserve(1, LOOPBACK) as (port,):
        argv = [str(program), f"--kubeconfig={plane.kubeconfig}", f"--config={config}", "--manage-all-nodes"]
        argv += ["--node-lease-duration-seconds=0", f"--server-address={LOOPBACK}:{port}"]
        identity = process.spawn(argv, log=plane.logs / "kwok.log", mark=plane.folder)
        try:
            _wait_ready(identity, port, plane)
            yield identity
        finally:
            process.end([identity])


def _wait_ready(identity: process.Identity, port: int, plane: ControlPlane) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while not _is_healthy(port):
        if not process.is_alive(identity) or time.monotonic() > deadline:
            raise LocalClusterError(f"kwok did not become ready: see {plane.logs / 'kwok.log'}")
        time.sleep(_POLL_SECONDS)


def _is_healthy(port: int) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"http://{LOOPBACK}:{port}/healthz", retries=False, timeout=1.0).status == 200
    return False
