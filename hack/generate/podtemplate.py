"""The schema of a pod template inside a custom resource: as open as can be, and yet comparable.

Whatever a pod may have, now or in a later Kubernetes, must get through, so unknown fields are kept. CEL compares
unknown fields too when it compares their parent, but with one hole: where one unknown field is taken out and another
one put in, it sees two objects of equal size and looks no further (`unstructuredMap.Equal` in
k8s.io/apiserver/pkg/cel/common). A field that is listed, even without a type, is compared in full. So all fields of
PodSpec and Container of this Kubernetes version are listed here; test/integration/test_crd.py asks the API server
whether one is missing.

Only what a rule must look into has a type.
"""

from __future__ import annotations

from typing import Any

from tfjob_controller.api.tfjob import RESTART_POLICIES

# Kubernetes 1.36, core/v1.
_POD_SPEC_FIELDS = """
    activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks
    ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets
    initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates
    resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup
    securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
    terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes
"""

_CONTAINER_FIELDS = """
    args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy
    resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath
    terminationMessagePolicy tty volumeDevices volumeMounts workingDir
"""

POD_SPEC_FIELDS = tuple(_POD_SPEC_FIELDS.split())
CONTAINER_FIELDS = tuple(_CONTAINER_FIELDS.split())

_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def pod_template_schema() -> dict[str, Any]:
    """To be laid over the description of a `template` field."""
    return {
        "type": "object",
        "properties": {
            "metadata": {
                "description": "Labels and annotations of the pods.",
                **_open("ObjectMeta", ("labels", "annotations")),
            },
            "spec": {"description": "The pods' spec.", **_open("PodSpec", POD_SPEC_FIELDS, _typed_in_pod_spec())},
        },
        **_OPEN,
    }


def _typed_in_pod_spec() -> dict[str, Any]:
    return {
        "containers": {
            "description": "The pod's containers; one must be named tensorflow.",
            "type": "array",
            "items": _open("Container", CONTAINER_FIELDS, _typed_in_container()) | {"required": ["name"]},
        },
        "restartPolicy": {
            "description": "Who starts a failed container again: OnFailure the kubelet, in the same pod; Never the "
            "child Job, with a new pod. Default: OnFailure.",
            "type": "string",
            "enum": list(RESTART_POLICIES),
        },
    }


def _typed_in_container() -> dict[str, Any]:
    return {"name": {"description": "The container's name.", "type": "string"}}


def _open(kind: str, names: tuple[str, ...], typed: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object that keeps what it does not know, with `names` listed: those in `typed` so, the others without type."""
    listed = {name: {"description": f"As {name} in {kind}.", **_OPEN} for name in names}
    properties = {"properties": dict(sorted((listed | (typed or {})).items()))} if names else {}
    return {"type": "object", **properties, **_OPEN}
