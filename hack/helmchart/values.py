"""All values of the chart: values.yaml, its schema and the table in the chart's README come from this list."""

from __future__ import annotations

import functools
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

Schema = Mapping[str, Any]

BOOLEAN: Schema = {"type": "boolean"}
STRING: Schema = {"type": "string"}
STRINGS: Schema = {"type": "array", "items": STRING}
MAPPING: Schema = {"type": "object"}
STRING_MAPPING: Schema = {"type": "object", "additionalProperties": STRING}
OBJECTS: Schema = {"type": "array", "items": MAPPING}
REPLICAS: Schema = {"type": ["integer", "null"], "minimum": 0}
_QUANTITIES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
RESOURCES: Schema = {
    "type": "object",
    "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": OBJECTS},
    "additionalProperties": False,
}
# A DNS label, or nothing.
NAMESPACE: Schema = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": 63}
_wrap = functools.partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
GANG_BACKENDS = ("volcano", "coscheduling", "kubernetes", "kueue")


@dataclass(frozen=True, slots=True)
class Value:
    """`path` has dots, as with `helm --set`. Booleans and strings need no `schema`."""

    path: str
    default: Any
    description: str
    schema: Schema = field(default_factory=dict)

    @property
    def full_schema(self) -> Schema:
        return {
            "description": self.description,
            **(self.schema or (BOOLEAN if isinstance(self.default, bool) else STRING)),
        }


def values(config: Mapping[str, Any]) -> list[Value]:
    """Returns all values. `config` is the controller's config file in the overlays."""
    return [
        Value("image.repository", "", "Image of all programs. Required: no image is published."),
        Value("image.tag", "", "Its tag. Default: the appVersion of the chart."),
        Value("image.digest", "", "Such as sha256:…, which is used instead of the tag."),
        Value(
            "image.pullPolicy",
            "IfNotPresent",
            "When nodes pull the images.",
            {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]},
        ),
        Value("imagePullSecrets", [], "Such as [{name: registry}], for the pods of the release.", OBJECTS),
        Value(
            "watchNamespace",
            "",
            "The one namespace of the jobs, which must exist. Default: all namespaces. The controller then has a Role "
            "there instead of a ClusterRole.",
            NAMESPACE,
        ),
        *_crds(),
        *_controller(config),
        *_gangs(),
        *_switches(),
        *_dashboard(),
    ]


def _crds() -> Iterator[Value]:
    yield Value(
        "crds.install",
        True,
        "Install and upgrade the CRDs with this release. Set it to false in all releases of a cluster but one.",
    )
    yield Value(
        "crds.keep",
        True,
        "Keep the CRDs when the release is uninstalled. Warning: without it, helm uninstall deletes every job of the "
        "cluster.",
    )
    yield Value(
        "runtimes.install",
        False,
        "Install the built-in runtimes of TrainJobs. Requires the CRDs, so set it in an upgrade after the install.",
    )
    yield Value(
        "userRoles.install",
        None,
        "Add jobs to the roles view, edit and admin of the cluster. Default: true, and false with watchNamespace, "
        "since only one release of a cluster can have them.",
        {"type": ["boolean", "null"]},
    )
    yield Value(
        "admissionPolicies.enabled",
        True,
        "Restrict by ValidatingAdmissionPolicies which objects the programs may write; with kubeflowV1, also refuse "
        "invalid jobs.",
    )


def _controller(config: Mapping[str, Any]) -> Iterator[Value]:
    yield Value("controller.replicas", None, "Default: 2, and 3 with highAvailability.", REPLICAS)
    yield from _pod(
        "controller", _resources("100m", "128Mi", "512Mi"), "of tfjob-controller run: see docs/reference/flags.md"
    )
    yield Value("config.tfImage", config["tfImage"], "Image of parameter servers that have no template.")
    yield Value(
        "config.initializerImage",
        config["initializerImage"],
        "Image of the initializers and exporters of TrainJobs.",
    )
    yield Value(
        "config.accelerators",
        config["accelerators"],
        "Additions to containers that request a resource: see docs/install.md.",
        MAPPING,
    )


def _gangs() -> Iterator[Value]:
    yield Value("gangScheduler.enabled", False, "Run this project's gang scheduler.")
    yield Value(
        "gangScheduler.mode",
        "scheduler",
        "scheduler: with its own kube-scheduler. affinity: without one; pods are pinned to nodes.",
        {"type": "string", "enum": ["scheduler", "affinity"]},
    )
    yield Value("gangScheduler.replicas", None, "Default: 2, and 1 in the mode affinity.", REPLICAS)
    yield from _pod("gangScheduler", _resources("100m", "192Mi", "1Gi"), "of tfjob-controller extender")
    yield Value("gangScheduler.kubeScheduler.image.repository", "", "Its image. Required in the mode scheduler.")
    yield Value("gangScheduler.kubeScheduler.image.tag", "", "Default: the Kubernetes version of the cluster.")
    yield Value("gangScheduler.kubeScheduler.image.digest", "", "Is used instead of the tag.")
    yield Value(
        "gangScheduler.kubeScheduler.resources",
        _resources("100m", "128Mi", "2Gi"),
        "Resources of kube-scheduler.",
        RESOURCES,
    )
    yield Value(
        "gangScheduler.kubeScheduler.memoryLimit",
        "1600MiB",
        "GOMEMLIMIT of kube-scheduler, below the memory limit of its container.",
    )
    yield Value(
        "gangScheduler.nodeAutoscaler.enabled",
        False,
        "Let it request nodes from a node autoscaler. The class is a flag, in extraArgs: see docs/gang-scheduling.md.",
    )
    yield Value(
        "gangBackend",
        "",
        "The scheduler that runs gangs instead of this project's: see docs/interop.md.",
        {"type": "string", "enum": ["", *GANG_BACKENDS]},
    )


def _switches() -> Iterator[Value]:
    yield Value("highAvailability.enabled", False, "Spread replicas over nodes and zones.")
    yield Value("priorityClass.enabled", False, "A priority above that of jobs.")
    yield Value("networkPolicies.enabled", False, "Restrict connections to and from the programs.")
    yield Value(
        "monitoring.enabled",
        False,
        "Alerts, dashboards and scraping, for the Prometheus operator, which must be installed.",
    )
    yield Value("progressServer.enabled", False, "Programs of TrainJobs report their progress to the controller.")
    yield Value(
        "history.claimName",
        "",
        "PersistentVolumeClaim, which you create, in which ended jobs are kept: see docs/history.md. S3 is a flag, in "
        "controller.extraArgs.",
    )
    yield Value(
        "kubeflowTrainer.enabled",
        False,
        "Run the TrainJobs of trainer.kubeflow.org. Requires their CRDs: see docs/kubeflow-trainer.md.",
    )
    yield Value(
        "kubeflowV1.enabled",
        False,
        "Run jobs of kubeflow.org/v1 in the place of training-operator 1.9. Its TFJob takes the place of that of "
        "v1alpha1.",
    )


def _dashboard() -> Iterator[Value]:
    yield Value("dashboard.enabled", False, "One dashboard for a team: see docs/dashboard.md.")
    yield Value("dashboard.hosts", [], "Names by which browsers reach it, such as dashboard.example.com.", STRINGS)
    yield Value("dashboard.tlsSecretName", "tfjob-dashboard-tls", "Secret with its certificate, which you create.")
    yield from _pod("dashboard", _resources("50m", "96Mi", "256Mi"), "of tfjob-controller dashboard")


def _resources(cpu: str, memory: str, memory_limit: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory_limit}}


def _pod(path: str, resources: Mapping[str, Any], flags: str) -> Iterator[Value]:
    yield Value(f"{path}.resources", resources, "Resources of its container.", RESOURCES)
    yield Value(f"{path}.extraArgs", [], f"More flags, {flags}. They have precedence.", STRINGS)
    yield Value(f"{path}.extraEnv", [], "More environment variables.", OBJECTS)
    yield Value(f"{path}.podAnnotations", {}, "Annotations of its pods.", STRING_MAPPING)
    yield Value(f"{path}.podLabels", {}, "Labels of its pods.", STRING_MAPPING)
    yield Value(f"{path}.nodeSelector", {}, "Nodes for its pods.", STRING_MAPPING)
    yield Value(f"{path}.tolerations", [], "Taints that its pods tolerate.", OBJECTS)
    yield Value(f"{path}.affinity", {}, "Replaces the affinity of its pods.", MAPPING)


def render_values(found: Sequence[Value]) -> str:
    """Returns values.yaml."""
    lines = [
        "# Generated from hack/helmchart by `make generate`. All values, and their defaults; docs/install.md describes",
        "# how to use them.",
    ]
    return "\n".join([*lines, *_yaml_lines(_nested(found), "")]) + "\n"


def _yaml_lines(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, each in tree.items():
        if isinstance(each, Value):
            yield from (f"{indent}# {line}" for line in _wrap(each.description, 118 - len(indent)))
            text = yaml.safe_dump({key: each.default}, sort_keys=False, default_flow_style=not each.default)
            # An empty default stays on the line of its key.
            plain = text.strip()[1:-1] if not each.default else text.rstrip()
            yield from (f"{indent}{line}" for line in plain.split("\n"))
        else:
            yield f"{indent}{key}:"
            yield from _yaml_lines(each, indent + "  ")


def _nested(found: Iterable[Value]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for each in found:
        *parents, last = each.path.split(".")
        place = tree
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = each
    return tree


def render_schema(found: Sequence[Value]) -> str:
    """Returns values.schema.json. Unknown values are errors, so that a misspelled one is not ignored."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_object(_nested(found))}
    # Helm passes this one to every chart.
    schema["properties"]["global"] = {"type": "object"}
    # The Secret of a release has this file as well, so it has lines but no indentation.
    return json.dumps(schema, indent=0, ensure_ascii=False) + "\n"


def _object(tree: Mapping[str, Any]) -> dict[str, Any]:
    properties = {key: each.full_schema if isinstance(each, Value) else _object(each) for key, each in tree.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def render_table(found: Sequence[Value]) -> str:
    """Returns a table in Markdown."""
    rows = (f"| `{each.path}` | {_shown(each.default)} | {each.description} |" for each in found)
    return "\n".join(["| value | default | |", "|---|---|---|", *rows])


def _shown(default: Any) -> str:
    if default in (None, ""):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{json.dumps(default)}`" if isinstance(default, dict | list) else f"`{default}`"
