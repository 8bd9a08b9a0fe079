"""The schemas of pod templates and parts of pods inside custom resources: open, but comparable by CEL.

All fields of a pod, also those of later versions of Kubernetes, must be accepted, so unknown fields are kept. CEL
compares unknown fields too when it compares their parent, with one exception: if one unknown field is removed and
another one added, it finds two objects of equal size and compares no further (`unstructuredMap.Equal` in
k8s.io/apiserver/pkg/cel/common). A field that is listed, even without a type, is compared in full. So all fields of
the kinds below are listed, as of this Kubernetes version; test/integration/test_crd.py checks with the API server
that none is missing.

Only fields that a rule reads have a type.
"""

from __future__ import annotations

from typing import Any

from tfjob_controller.api.tfjob.types import RESTART_POLICIES

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

_VOLUME_FIELDS = """
    awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir ephemeral fc flexVolume
    flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi name nfs persistentVolumeClaim
    photonPersistentDisk portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume
"""

POD_SPEC_FIELDS = tuple(_POD_SPEC_FIELDS.split())
CONTAINER_FIELDS = tuple(_CONTAINER_FIELDS.split())
VOLUME_FIELDS = tuple(_VOLUME_FIELDS.split())
ENV_VAR_FIELDS = ("name", "value", "valueFrom")
ENV_SOURCE_FIELDS = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
VOLUME_MOUNT_FIELDS = (
    "mountPath", "mountPropagation", "name", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr",
)  # fmt: skip
TOLERATION_FIELDS = ("effect", "key", "operator", "tolerationSeconds", "value")
AFFINITY_FIELDS = ("nodeAffinity", "podAffinity", "podAntiAffinity")
OBJECT_REFERENCE_FIELDS = ("name",)

_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def pod_template_schema() -> dict[str, Any]:
    """Returns the schema to merge with the description of a `template` field."""
    return {
        "type": "object",
        "properties": {
            "metadata": {
                "description": "Labels and annotations of the pods.",
                **open_object("ObjectMeta", ("labels", "annotations")),
            },
            "spec": {"description": "The pods' spec.", **open_object("PodSpec", POD_SPEC_FIELDS, _typed_in_pod_spec())},
        },
        **_OPEN,
    }


def runtime_template_schema(role: str) -> dict[str, Any]:
    """Returns the same for one role of a runtime, which may change at any time, so that no rule compares it."""
    containers = {
        "description": f"The pods' containers; one must be named {role}.",
        "type": "array",
        "items": open_object("Container", (), _typed_in_container()) | {"required": ["name"]},
    }
    return {
        "description": f"The pods of role {role}, a PodTemplateSpec.",
        "type": "object",
        "properties": {
            "metadata": {"description": "Labels and annotations of the pods.", **open_object("ObjectMeta", ())},
            "spec": {"description": "The pods' spec.", **open_object("PodSpec", (), {"containers": containers})},
        },
        **_OPEN,
    }


def _typed_in_pod_spec() -> dict[str, Any]:
    return {
        "containers": {
            "description": "The pod's containers; one must be named tensorflow.",
            "type": "array",
            "items": open_object("Container", CONTAINER_FIELDS, _typed_in_container()) | {"required": ["name"]},
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


def open_object(kind: str, names: tuple[str, ...], typed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns an object that keeps unknown fields and lists `names`: those in `typed` with a type, others without."""
    listed = {name: {"description": f"As {name} in {kind}.", **_OPEN} for name in names}
    properties = {"properties": dict(sorted((listed | (typed or {})).items()))} if listed or typed else {}
    return {"type": "object", **properties, **_OPEN}
