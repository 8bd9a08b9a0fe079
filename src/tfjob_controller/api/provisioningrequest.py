"""ProvisioningRequest `autoscaling.x-k8s.io/v1` as data: a request to a node autoscaler for the nodes of some pods.

Only the fields that the gang scheduler reads are decoded. The autoscaler and users with the right to write such objects
write the texts, so they are shortened before they are shown.

Source: kubernetes/autoscaler cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tfjob_controller.api.gang import GANGS
from tfjob_controller.kube.kept import kept_decoder
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference, Resource

# Annotations of the pods that use the nodes: the autoscaler adds no others for them.
CONSUME_ANNOTATION = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_ANNOTATION = "autoscaling.x-k8s.io/provisioning-class-name"

# The number of a request for its gang.
NUMBER_LABEL = "scheduling.kubeflow.org/provisioning-number"

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


MAX_LISTED = 64
# A message is cut again where it is shown.
_MAX_MESSAGE = 1024


def _is_gang(owner: OwnerReference) -> bool:
    return owner.kind == GANGS.kind and owner.api_version == GANGS.api_version


_decode = kept_decoder(ProvisioningRequest, (NUMBER_LABEL,), is_kept=_is_gang)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", kept_decoder(PodTemplate))


def decode_provisioning_request(raw: bytes | msgspec.Raw) -> ProvisioningRequest:
    """Decodes a request, with its Gang as the only owner and lists within bounds. Raises msgspec.DecodeError."""
    request = _decode(raw)
    spec = replace(
        request.spec,
        provisioning_class_name=request.spec.provisioning_class_name[:_MAX_MESSAGE],
        pod_sets=tuple(
            replace(pod_set, pod_template_ref=PodTemplateReference(pod_set.pod_template_ref.name[:_MAX_MESSAGE]))
            for pod_set in request.spec.pod_sets[:MAX_LISTED]
        ),
    )
    conditions = tuple(
        replace(condition, message=condition.message[:_MAX_MESSAGE])
        for condition in request.status.conditions[:MAX_LISTED]
    )
    return replace(request, spec=spec, status=ProvisioningRequestStatus(conditions))


PROVISIONING_REQUESTS = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", decode_provisioning_request
)
