"""A cluster that only the auditor sees: its nodes, pods, gangs and quotas are events that a test sends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from audit.core import GANGS, NODES, PODS, QUOTAS, Audit, Limits

LIMITS = Limits(
    bind_deadline_seconds=10.0,
    fit_grace_seconds=2.0,
    starvation_timeout_seconds=30.0,
    race_seconds=1.0,
    in_flight_seconds=15.0,
)
OURS = "gang-scheduler"
PREFIX = "scheduling.kubeflow.org"


class Cluster:
    """A cluster of one node with 4 CPUs, and an auditor that receives every change."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.audit = Audit(limits)
        self.node("node-a")

    def node(self, name: str, at: float = 0.0, change: str = "ADDED", cpu: str = "4", **spec: Any) -> None:
        """Without `cpu` the node has not reported its status yet."""
        status = {"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        status = status if cpu else {}
        self._send(NODES, change, {"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}, at)

    def pod(
        self, name: str, at: float, change: str = "MODIFIED", *, gang: str = "", node: str = "", **more: Any
    ) -> None:
        """`more`: cpu, phase, attempt, scheduler, conditions, created, and member, by default the name of the pod."""
        member = more.get("member", name)
        labels = {f"{PREFIX}/gang": gang, f"{PREFIX}/member": member, f"{PREFIX}/attempt": more.get("attempt", "1")}
        spec = {
            "schedulerName": more.get("scheduler", OURS),
            "containers": [{"resources": {"requests": {"cpu": more.get("cpu", "1")}}}],
            **({"nodeName": node} if node else {}),
        }
        status = {"phase": more.get("phase", "Pending"), "conditions": more.get("conditions", [])}
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels if gang else {}}
        meta["creationTimestamp"] = datetime.fromtimestamp(more.get("created", at), UTC).isoformat()
        self._send(PODS, change, {"metadata": meta, "spec": spec, "status": status}, at)

    def gang(self, name: str, at: float, phase: str = "Waiting", *members: str, **more: Any) -> None:
        """Sends a gang of `count` workers with one CPU each; `members` are placed on node-a.

        `more`: attempt, since, not_before, status_fields, count, suspend, priority, uid, change.
        """
        status = {
            "phase": phase,
            "attempt": more.get("attempt", 1),
            "placement": [{"node": "node-a", "members": list(members)}] if members else [],
            "queuedTime": more.get("since", "1970-01-01T00:00:00Z"),
            **({"requeueTime": more["not_before"]} if "not_before" in more else {}),
            **more.get("status_fields", {}),
        }
        spec = {
            "members": [{"name": "worker", "count": more.get("count", 2), "resources": {"cpu": "1"}}],
            "suspend": more.get("suspend", False),
            "priority": more.get("priority", 0),
        }
        uid = more.get("uid", f"uid-{name}")
        meta = {"name": name, "namespace": "ns", "uid": uid, "creationTimestamp": "1970-01-01T00:00:00Z"}
        self._send(GANGS, more.get("change", "MODIFIED"), {"metadata": meta, "spec": spec, "status": status}, at)

    def quota(self, at: float, used: Mapping[str, str] | None = None, **hard: str) -> None:
        """Sets the ResourceQuota of the namespace; `used` is what its status says."""
        meta = {"name": "quota", "namespace": "ns", "uid": "uid-quota"}
        body = {"metadata": meta, "spec": {"hard": hard}, "status": {"hard": hard, "used": dict(used or {})}}
        self._send(QUOTAS, "MODIFIED", body, at)

    def rules(self, *ticks: float) -> list[str]:
        for now in ticks:
            self.audit.tick(now)
        return [violation.rule for violation in self.audit.violations]

    def _send(self, kind: str, change: str, obj: dict[str, Any], at: float) -> None:
        self.audit.event(kind, change, obj, at)
