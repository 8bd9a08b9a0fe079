"""Other programs in the place of images that cannot be had: the API server puts them into new pods of a namespace.

Clients and manifests stay as they are: the jobs have upstream's images, and only pods have those of this project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.poll import eventually
from helpers.v1world import job_path, manifest_of
from localcluster import images
from localcluster.api import Api
from localcluster.binaries import ensure
from tfjob_controller.api.kubeflowv1.types import V1_KINDS

Object = dict[str, Any]

_MEETING = (Path(__file__).parents[1] / "e2e/sdk/meeting.py").read_text()
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_VERSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Program:
    """What a pod runs instead: Python code, or its own command if that is empty, in this image."""

    code: str = _MEETING
    image: str = images.BASE


def replace_programs(api: Api, namespace: str, programs: Mapping[str, Program]) -> None:
    """Lets new pods run these programs, by the image that they name. A pod with another image is refused.

    The init container that waits for the master's name gets an image without nslookup, and that for MPI the kubectl
    of this machine. Pods request nothing, and are for the default scheduler.
    """
    table = {image: {"image": f"{program.image}:latest", "code": program.code} for image, program in programs.items()}
    variables = {
        "program": f"{json.dumps(table)}[object.spec.containers[0].image]",
        "inits": "object.spec.?initContainers.orValue([])",
    }
    resources = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    _add_policy(api, f"programs-{namespace}", namespace, resources, variables, _patches())
    image, program = next(iter(programs.items()))
    pod = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "any", "image": image}]}}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    def is_replaced() -> bool:
        (container,) = api.create(path, pod)["spec"]["containers"]
        return bool(container["image"] == f"{program.image}:latest")

    eventually(lambda: api.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    eventually(is_replaced)


def shrink_jobs(api: Api, namespace: str) -> None:
    """Lets the replicas of new and changed jobs request little: those of upstream do not fit on a small machine."""
    patches = [
        f"(object.spec.?{field}.?{type_}.hasValue() ? "
        + _list(
            _add(
                f"/spec/{field}/{type_}/template/spec/containers/0/resources",
                '{"requests": {"cpu": "100m"}}',
            )
        )
        + " : [])"
        for field, types in ((kind.replicas_field, kind.types) for kind in V1_KINDS.values())
        for type_ in types
    ]
    resources = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [kind.plural for kind in V1_KINDS.values()],
    }
    _add_policy(api, f"requests-{namespace}", namespace, resources, {}, patches)
    path, job = f"{job_path(namespace, 'TFJob')}?dryRun=All", manifest_of("TFJob", {"Worker": 1}, "any")

    def is_shrunk() -> bool:
        worker = api.create(path, job)["spec"]["tfReplicaSpecs"]["Worker"]
        return "resources" in worker["template"]["spec"]["containers"][0]

    eventually(is_shrunk)


def _add_policy(
    api: Api, name: str, namespace: str, resources: Object, variables: Mapping[str, str], patches: list[str]
) -> None:
    """Creates a policy of one mutation, whose patches are expressions of lists; all see the object as it was sent."""
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [resources],
        },
        "variables": [{"name": key, "expression": expression} for key, expression in variables.items()],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}}],
    }
    policy = {"apiVersion": _VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    api.create(f"{_GROUP}/mutatingadmissionpolicies", policy)
    binding = {**policy, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}
    api.create(f"{_GROUP}/mutatingadmissionpolicybindings", binding)


def _patches() -> list[str]:
    main = _list(
        _add("/spec/containers/0/image", "variables.program.image"),
        _add("/spec/containers/0/imagePullPolicy", '"Never"'),
        _add("/spec/containers/0/resources", "{}"),
        _add("/spec/schedulerName", '"default-scheduler"'),
    )
    code = _list(
        _add("/spec/containers/0/command", '["python3", "-u", "-c"]'),
        _add("/spec/containers/0/args", "[variables.program.code]"),
    )
    init = _list(
        _add("/spec/initContainers/0/image", f'"{images.BASE}:latest"'),
        _add("/spec/initContainers/0/imagePullPolicy", '"Never"'),
    )
    resolve = _list(
        _add(
            "/spec/initContainers/0/command",
            '["sh", "-c", "nslookup() { getent hosts $1; }; " + variables.inits[0].command[2]]',
        )
    )
    kubectl = _list(
        _add("/spec/volumes/-", f'{{"name": dyn("kubectl"), "hostPath": dyn({{"path": "{ensure("kubectl")}"}})}}'),
        _add("/spec/initContainers/0/volumeMounts/-", '{"name": "kubectl", "mountPath": "/kubectl"}'),
        _add("/spec/initContainers/0/command", '["sh", "-c", "cp /kubectl $TARGET_DIR/kubectl"]'),
    )
    return [
        main,
        f'(variables.program.code == "" ? [] : {code})',
        f"(variables.inits.size() == 0 ? [] : {init})",
        f'(variables.inits.exists(init, init.name == "init-pytorch") ? {resolve} : [])',
        f'(variables.inits.exists(init, init.name == "kubectl-delivery") ? {kubectl} : [])',
    ]


def _add(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: "{path}", value: {value}}}'


def _list(*patches: str) -> str:
    return f"[{', '.join(patches)}]"
