"""The HorizontalPodAutoscaler of an elastic job with `elasticPolicy.metrics`, which resizes the job by its scale.

Theory of operation. The object has the job's name and exists while the job may run: it is deleted when the job is
suspended or has ended, and recreated if it is lost. Kubernetes' own controller reads it, and writes the job's `scale`
as `kubectl scale` does. A label has a hash of the metrics, because the API server stores quantities in another notation
than they were given in. The gang scheduler's resize requests are not followed for such a job, since the two would work
against each other.

The job trains without this object as well, so the controller's faults with it never end the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from tfjob_controller.api.common.core import HORIZONTAL_POD_AUTOSCALERS, HorizontalPodAutoscaler
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import ObservedState

Body = dict[str, Any]

METRICS_HASH = "kubeflow.org/metrics-hash"


def must_have_autoscaler(plan: Plan) -> bool:
    return bool(plan.scaling.metrics) and not plan.policy.suspend


def has_autoscaler(observed: ObservedState) -> bool:
    return observed.autoscaler is not None and observed.autoscaler.metadata.deletion_timestamp is None


def build_autoscaler(plan: Plan) -> Body:
    """Returns the object, ready for JSON."""
    resource, identity = HORIZONTAL_POD_AUTOSCALERS, plan.identity
    owner: Mapping[str, Any] = msgspec.to_builtins(identity.owner)
    target = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["name"]}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": identity.job_name,
            "namespace": identity.namespace,
            "labels": {**identity.added_labels, **identity.labels, METRICS_HASH: _hash(plan)},
            "ownerReferences": [owner],
        },
        "spec": {"scaleTargetRef": target, **_settings(plan)},
    }


def autoscaler_patch(plan: Plan, found: HorizontalPodAutoscaler) -> Body | None:
    """Returns the merge patch that updates bounds and metrics; None if they are up to date."""
    bounds = (found.spec.min_replicas, found.spec.max_replicas)
    if bounds == plan.scaling.worker_bounds and found.metadata.labels.get(METRICS_HASH) == _hash(plan):
        return None
    return {"metadata": {"labels": {METRICS_HASH: _hash(plan)}}, "spec": _settings(plan)}


def _settings(plan: Plan) -> Body:
    least, most = plan.scaling.worker_bounds or (1, 1)
    return {"minReplicas": least, "maxReplicas": most, "metrics": list(plan.scaling.metrics)}


def _hash(plan: Plan) -> str:
    content = msgspec.json.encode(plan.scaling.metrics, order="sorted")
    return hashlib.sha256(content).hexdigest()[:16]
