"""Writes the worst Gangs that the CRD accepts into a gang scheduler while kube-scheduler calls it.

Each has 16 members; each of these has 64 node selector terms with 256 values and 64 tolerations, all different, so that
no cached evaluation can be reused. The last term and the last toleration match, after all others were evaluated. The
admission loop, its state and the extender are the shipped ones; the API server is a table in memory, and there are no
pods.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from bench.report import size
from tfjob_controller.api.common.cluster import decode_node
from tfjob_controller.api.gang import GANGS, MAX_KINDS, MAX_TERMS, Gang, decode_gang
from tfjob_controller.gangscheduler.admission.loop import AdmissionLoop
from tfjob_controller.gangscheduler.extender.verbs import ExtenderVerbs, GangPlacements
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.state.informers import GangHandler, NodeHandler
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status.writer import StatusWriter
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.flowcontrol import Priority
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.requester import JSON, LineStream
from tfjob_controller.programs.gangscheduler import SWITCH_SECONDS
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import AdmissionPolicy
from tfjob_controller.util.clock import RealClock

NODES = size(200, tiny=5)
# The number of waiting gangs, and how often the tenant replaces one.
_WAITING = 4
_WRITE_SECONDS = 0.1
_NAMESPACE = "hostile"
_CPUS = 8
_MARK = "MARK"


def node_name(number: int) -> str:
    return f"node-{number:05d}.example.internal"


def node(number: int) -> bytes:
    body = {
        "metadata": {"name": node_name(number), "labels": {"hostname": node_name(number), "pool": "training"}},
        "spec": {"taints": [{"key": "training", "value": "yes", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": str(_CPUS), "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.json.encode(body)


def worst_spec() -> bytes:
    """Returns a spec that takes the whole cluster, so that one gang is admitted and the others wait.

    `_MARK` must be replaced.
    """
    members = [_member(f"{_MARK}-{kind}", chr(ord("a") + kind)) for kind in range(MAX_KINDS)]
    return msgspec.json.encode({"members": members})


def _member(mark: str, name: str) -> dict[str, Any]:
    terms = [_term("hostname", [f"{mark}-{number}-{value}" for value in range(4)]) for number in range(MAX_TERMS - 1)]
    tolerations = [{"key": f"{mark}-{number}", "operator": "Exists"} for number in range(MAX_TERMS - 1)]
    return {
        "name": name,
        "count": NODES * _CPUS // MAX_KINDS,
        "resources": {"cpu": "1"},
        "tolerations": [*tolerations, {"key": "training", "operator": "Exists"}],
        "nodeAffinity": {"nodeSelectorTerms": [*terms, _term("pool", [mark, "training", "b", "c"])]},
    }


def _term(key: str, values: list[str]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}


class Table:
    """Replaces the API server: Gangs by path, and the response to each patch of a status."""

    def __init__(self) -> None:
        self.versions = itertools.count(1)
        self._gangs: dict[str, dict[str, Any]] = {}
        self._spec = worst_spec()

    def create(self, number: int) -> bytes:
        name = f"worst-{number}"
        metadata = {"name": name, "namespace": _NAMESPACE, "uid": name, "resourceVersion": str(next(self.versions))}
        spec = self._spec.replace(_MARK.encode(), b"%06d" % number)
        gang = self._gangs[GANGS.path(_NAMESPACE, name)] = {"metadata": metadata, "spec": msgspec.Raw(spec)}
        return msgspec.json.encode(gang)

    def delete(self, number: int) -> None:
        self._gangs.pop(GANGS.path(_NAMESPACE, f"worst-{number}"), None)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = 0.0,
        priority: Priority = Priority.NORMAL,
        retry: bool | None = None,
    ) -> bytes:
        if method != "PATCH" or body is None:
            return b"{}"
        gang = self._gangs.get(path.removesuffix("/status"))
        if gang is None:
            raise ApiError(404, "NotFound", path)
        gang["status"] = gang.get("status", {}) | msgspec.json.decode(body)["status"]
        gang["metadata"]["resourceVersion"] = str(next(self.versions))
        return msgspec.json.encode(gang)

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> LineStream:
        raise NotImplementedError("nothing is watched")


class HostileScheduler:
    """A gang scheduler, and a tenant who writes the worst Gangs."""

    def __init__(self) -> None:
        clock = RealClock()
        self._table = Table()
        self._gangs: Store[Gang] = Store()
        self._state = SharedState(self._gangs, clock)
        permit = Permit(
            lambda pods, on_result: None,
            self._state,
            clock,
            http_timeout_seconds=3600.0,
            bind_timeout_seconds=3600.0,
            admitted_timeout_seconds=3600.0,
        )
        handler = NodeHandler(self._state)
        for number in range(NODES):
            handler.on_add(decode_node(node(number)), True)
        client = ResourceClient(self._table, GANGS, decode_gang)
        recorder = EventRecorder(self._table, clock, "bench", "bench")
        self._writer = StatusWriter(
            self._gangs, client, None, lambda result, gang: None, recorder, self._state.wake, clock, threads=1
        )
        self._loop = AdmissionLoop(
            self._state,
            self._gangs,
            lambda namespace: (),
            self._writer,
            permit,
            clock,
            policy=AdmissionPolicy(),
            scale_policy=AutoscalingPolicy(),
        )
        placements = GangPlacements(self._gangs, self._state, lambda: True)
        self.verbs = ExtenderVerbs(placements, permit, self._state)

    def start(self) -> None:
        """Starts the parts as the program does."""
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.collect()
        gc.freeze()
        self._writer.start()
        self._loop.start()
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        handler = GangHandler(self._state)
        for number in itertools.count():
            gang = decode_gang(self._table.create(number))
            self._gangs.upsert(gang)
            handler.on_add(gang, False)
            old = self._gangs.get(f"{_NAMESPACE}/worst-{number - _WAITING}")
            if old is not None:
                self._table.delete(number - _WAITING)
                self._gangs.delete(key_of(old), next(self._table.versions), old)
                handler.on_delete(old, True)
            time.sleep(_WRITE_SECONDS)


def filter_body() -> dict[str, Any]:
    """Returns a request for another tenant's pod, which belongs to no gang."""
    containers = [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"metadata": {"name": "pod", "namespace": "other", "uid": "pod"}, "spec": {"containers": containers}}
    return cast("dict[str, Any]", {"Pod": pod, "Nodes": None, "NodeNames": [node_name(each) for each in range(NODES)]})
