"""ProvisioningRequest `autoscaling.x-k8s.io/v1` as data: a request to a node autoscaler for the nodes of some pods.

Only what the gang scheduler reads is decoded. The texts are written by the autoscaler and by whoever may write such
objects, so they are cut before they are shown.

Source: kubernetes/autoscaler cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go.
"""

from __future__ import annotations

import msgspec

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")

# Annotations of the pods that use the nodes: the autoscaler adds no others for them.
CONSUME_ANNOTATION = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_ANNOTATION = "autoscaling.x-k8s.io/provisioning-class-name"

# Types of conditions.
ACCEPTED, PROVISIONED, FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED = (
    "Accepted",
    "Provisioned",
    "Failed",
    "BookingExpired",
    "CapacityRevoked",
)


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here. Unknown fields are dropped on decoding."""


class PodTemplateReference(_Value, frozen=True):
    name: str = ""


class RequestedPods(_Value, frozen=True):
    """Equal pods, which a PodTemplate in the same namespace describes."""

    pod_template_ref: PodTemplateReference = PodTemplateReference()
    count: int = 0


class ProvisioningRequestSpec(_Value, frozen=True):
    provisioning_class_name: str = ""
    pod_sets: tuple[RequestedPods, ...] = ()


class ProvisioningCondition(_Value, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class ProvisioningRequestStatus(_Value, frozen=True):
    conditions: tuple[ProvisioningCondition, ...] = ()


class ProvisioningRequest(_Value, frozen=True):
    """One request."""

    metadata: ObjectMeta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()


class PodTemplate(_Value, frozen=True):
    """Only what identifies it."""

    metadata: ObjectMeta


decode_provisioning_request = decoder_for(ProvisioningRequest)
decode_pod_template = decoder_for(PodTemplate)
