"""The test environment of `make bench-scale`: a control plane with many nodes that logs changes of pods and TFJobs.

kwok simulates the pods; in the tiny size, which must not require building it, and with SCALE_KUBELET=fake it is
localcluster's FakeKubelet.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.auditlog import audit_log
from bench.kwok import Times, running_kwok
from bench.report import TINY, progress, size
from bench.scalelag import RULES
from bench.stage import in_parallel
from localcluster import podstatus, stack
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.fakekubelet import FakeKubelet
from localcluster.podstatus import Outcome
from localcluster.programs import Options

THREADS = 16
KUBELET = os.environ.get("SCALE_KUBELET") or ("fake" if TINY else "kwok")
_NODE = {"cpu": "32", "memory": "256Gi", "pods": "110"}
# Each new node would be tainted as not ready, and no controller here removes the taint.
_NO_TAINTS = "--disable-admission-plugins=TaintNodesByCondition"
# No controller creates endpoints of Services. (The flag adds to the list of the control plane.)
_ENDPOINTS = ("endpoints", "endpointslice", "endpointslice-mirroring")
WITHOUT_ENDPOINTS = ("--controllers=" + ",".join(f"-{name}-controller" for name in _ENDPOINTS),)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScaleStage:
    """`audit` is the API server's log, which `bench.scalelag` reads."""

    plane: ControlPlane
    api: Api
    audit: Path


def setting(name: str, full: int, tiny: int) -> int:
    """Returns a size that a variable may override. Raises ValueError that names the variable."""
    text = os.environ.get(name, "")
    if not text:
        return size(full, tiny)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name}={text}: must be a whole number, 1 or more")
    return int(text)


@contextlib.contextmanager
def open_stage(name: str, nodes: int, times: Times, flags_of_manager: tuple[str, ...] = ()) -> Iterator[ScaleStage]:
    """Runs a control plane where pods run for such `times`. Raises LocalClusterError."""
    with contextlib.ExitStack() as open_:
        audit, flags = open_.enter_context(audit_log(RULES))
        options = Options(
            apiserver_flags=(*flags, _NO_TAINTS),
            controller_manager_flags=flags_of_manager,
            unsafe_no_fsync=True,
        )
        plane = open_.enter_context(stack.throwaway(f"scale-{name}", options, progress))
        api = Api.from_kubeconfig(plane.kubeconfig, pool_size=THREADS + 4)
        install_crds(api)
        open_.enter_context(_kubelets(plane, times))
        _create_nodes(api, nodes)
        yield ScaleStage(plane, api, audit)


def node_name(number: int) -> str:
    return f"node-{number:05d}"


@contextlib.contextmanager
def _kubelets(plane: ControlPlane, times: Times) -> Iterator[None]:
    if KUBELET == "kwok":
        with running_kwok(plane, times):
            yield
        return
    names = [node_name(number) for number in range(setting("SCALE_NODES", 5000, tiny=3))]
    with FakeKubelet(Api.from_kubeconfig(plane.kubeconfig), nodes=names, resources=_NODE, behaviour=_behaviour):
        yield


def _behaviour(pod: Object, _: int) -> Outcome:
    """Returns how a pod ends; masters end last."""
    is_master = pod["metadata"].get("labels", {}).get("job_type") == "MASTER"
    return Outcome(after_seconds=1.0 if is_master else 0.3)


def _create_nodes(api: Api, count: int) -> None:
    begin = time.monotonic()
    in_parallel(lambda number: api.create_if_missing("/api/v1/nodes", _node(number)), range(count))
    progress(f"{count} nodes after {time.monotonic() - begin:.0f} s; their pods are {KUBELET}'s")


def _node(number: int) -> Object:
    """Returns a node as a kubelet registers it."""
    now, name = podstatus.now(), node_name(number)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    status = {"capacity": _NODE, "allocatable": _NODE, "conditions": [{**ready, "lastTransitionTime": now}]}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
