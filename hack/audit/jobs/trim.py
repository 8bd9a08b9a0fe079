"""Reduces an object to the fields that the rules read, to limit memory. The data of Secrets is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.jobs.history import GANGS, JOBS, OWNERS, PODS, Object

_META = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "annotations",
    "ownerReferences",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
)
_BIG_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def trimmed(kind: str, obj: Mapping[str, Any]) -> Object:
    """Returns a copy with the fields that the rules read."""
    meta = {name: obj["metadata"][name] for name in _META if name in obj["metadata"]}
    if _BIG_ANNOTATION in (meta.get("annotations") or {}):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != _BIG_ANNOTATION}
    kept: Object = {"metadata": meta}
    if kind in OWNERS:
        kept["spec"] = _owner_spec(obj.get("spec") or {})
    if kind == JOBS:
        spec = obj.get("spec") or {}
        kept["spec"] = {"suspend": bool(spec.get("suspend")), "completions": int(spec.get("completions") or 1)}
    if kind == PODS:
        init = obj["spec"].get("initContainers") or ()
        sidecars = [container["name"] for container in init if container.get("restartPolicy") == "Always"]
        kept["spec"] = {"nodeName": obj["spec"].get("nodeName", ""), "sidecars": sidecars}
        kept["status"] = _pod_status(obj.get("status") or {})
    elif kind in (*OWNERS, JOBS, GANGS):
        kept["status"] = obj.get("status") or {}
    return kept


def _owner_spec(spec: Mapping[str, Any]) -> Object:
    """Returns the spec without templates."""
    kept = {name: value for name, value in spec.items() if name not in ("trainer", "podSpecOverrides")}
    if "replicaSpecs" in spec:
        kept["replicaSpecs"] = [
            {name: value for name, value in entry.items() if name != "template"} for entry in spec["replicaSpecs"]
        ]
    if "trainer" in spec:
        kept["trainer"] = {name: value for name, value in spec["trainer"].items() if name in ("numNodes", "command")}
    return kept


def _pod_status(status: Mapping[str, Any]) -> Object:
    kept: Object = {"phase": status.get("phase", "")}
    if conditions := status.get("conditions"):
        kept["conditions"] = [entry for entry in conditions if entry["type"] == "DisruptionTarget"]
    for name in ("containerStatuses", "initContainerStatuses"):
        if statuses := status.get(name):
            kept[name] = [_container(entry) for entry in statuses]
    return kept


def _container(status: Mapping[str, Any]) -> Object:
    wanted = ("name", "restartCount", "state", "lastState")
    return {name: status[name] for name in wanted if name in status}
