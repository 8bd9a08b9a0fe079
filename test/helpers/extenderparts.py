"""The environment of the extender's verbs in tests: placements as a table, an API that accepts Bindings, a client."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.answering import Answering, Request
from tfjob_controller.api.gang import ATTEMPT_LABEL, GANG_LABEL, MEMBER_LABEL
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.extender.verbs import NodeAssignment
from tfjob_controller.gangscheduler.extender.wire import WirePod


@dataclass
class Table:
    """Placements that a test sets. `nodes` has the node of (gang, attempt, member), or the reason why there is none."""

    nodes: dict[tuple[str, int, str], NodeAssignment] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    """Nodes without capacity for pods of no gang, with the reason."""
    synced: bool = True
    fault: Exception | None = None

    def is_synced(self) -> bool:
        return self.synced

    def place(self, gang: str, nodes: Mapping[str, str], attempt: int = 1) -> None:
        self.nodes |= {(gang, attempt, member): NodeAssignment(node) for member, node in nodes.items()}

    def member_of(self, pod: WirePod) -> GangMember | None:
        if self.fault is not None:
            raise self.fault
        labels, namespace = pod.metadata.labels, pod.metadata.namespace
        if GANG_LABEL not in labels:
            return None
        return GangMember(f"{namespace}/{labels[GANG_LABEL]}", int(labels[ATTEMPT_LABEL]), labels[MEMBER_LABEL])

    def node_for(self, gang_key: str, attempt: int, member: str) -> NodeAssignment:
        return self.nodes.get((gang_key, attempt, member), NodeAssignment(reason="unknown"))

    def allowed_nodes(self, pod: WirePod, names: Sequence[str]) -> tuple[Sequence[str], Mapping[str, str]]:
        refused = {name: self.closed[name] for name in names if name in self.closed}
        return [name for name in names if name not in refused], refused


class Bindings(Answering):
    """Accepts every Binding."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []

    def answer(self, request: Request) -> bytes:
        self.bodies.append(request.body)
        return b"{}"

    @property
    def bound(self) -> dict[str, str]:
        """Returns the node of each pod."""
        return {body["metadata"]["name"]: body["target"]["name"] for body in self.bodies}


@dataclass
class Listener:
    bound: list[str] = field(default_factory=list)
    rejected_attempts: list[tuple[str, int]] = field(default_factory=list)

    def enqueue(self, gang: str) -> None:
        self.bound.append(gang)

    def node_rejected(self, member: GangMember, node: str) -> None: ...

    def attempt_rejected(self, gang: str, attempt: int) -> None:
        self.rejected_attempts.append((gang, attempt))


def pod(member: str, gang: str = "gang", attempt: int = 1) -> dict[str, Any]:
    """Returns a member's pod as kube-scheduler sends it."""
    labels = {GANG_LABEL: gang, MEMBER_LABEL: member, ATTEMPT_LABEL: str(attempt)}
    return other_pod(f"{gang}-{member}") | {"metadata": metadata(f"{gang}-{member}") | {"labels": labels}}


def other_pod(name: str) -> dict[str, Any]:
    """Returns a pod of no gang."""
    return {"metadata": metadata(name), "spec": {"containers": [{"name": "c"}]}}


def metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}"}


def binding(of: Mapping[str, Any], node: str) -> dict[str, str]:
    meta = of["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


class Call:
    """One POST on a connection of its own, as kube-scheduler sends it; the response can be read later."""

    def __init__(self, port: int, path: str, body: bytes, tls: ssl.SSLContext | None = None) -> None:
        if tls is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20.0)
        else:
            self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20.0, context=tls)
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})

    def answer(self) -> tuple[int, bytes]:
        """Waits for the response, and closes the connection."""
        try:
            response = self._connection.getresponse()
            return response.status, response.read()
        finally:
            self.close()

    def error(self) -> str:
        """Returns the `Error` of a response, which must have status 200."""
        status, body = self.answer()
        assert status == 200, body
        return str(json.loads(body)["Error"])

    def close(self) -> None:
        self._connection.close()
