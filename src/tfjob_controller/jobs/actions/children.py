"""Builds the bodies of children, ready for JSON. Each call builds new dicts that share parts of the template.

A child Job starts one pod. It gives up when this pod ends (`backoffLimit: 0`), and no pod takes its place before
it has ended (`podReplacementPolicy: Failed`). So the Job controller never decides about a restart: another pod needs
another Job, which only this controller creates (`state.replica_state` judges how a replica ended). The kubelet restarts
containers in place if the template has OnFailure and the server has container-level restart policies (Kubernetes 1.35
and later): after retryable errors for a replica whose permanent error ends the job, else after any error. The
restartPolicy of the pod is always Never, because the Job controller applies `backoffLimit` to restarts in place too.
Of the restart policies and rules that the template gives to the training container and to init containers, only Never
counts. Sidecars keep theirs, but none restarts another container.

An Indexed Job that runs all replicas of a role does the same for each index (`backoffLimitPerIndex: 0`): an index whose
pod has failed stays as it is, and the others go on until the controller has judged the failure.

For an elastic role the Job controller replaces each failed pod alone. The controller restarts all replicas if the first
one failed, or if one was lost with its node, since such a pod never ends; and it ends the job after a permanent error.
Nothing in the template depends on the number of replicas, so a resize changes `parallelism` and `completions` alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from tfjob_controller.api.common.cluster import ALWAYS
from tfjob_controller.api.common.core import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESTARTS_ANNOTATION,
    SECRETS,
    SERVICES,
    HorizontalPodAutoscaler,
)
from tfjob_controller.api.common.policies import BY_RESTART, NEVER, ON_FAILURE
from tfjob_controller.api.common.quantity import milli_of
from tfjob_controller.api.gang import COMPLETION_INDEX_LABEL
from tfjob_controller.jobs.gang.assignment import (
    MemberAssignment,
    apply_assignment,
    apply_to_indexed_job,
    indexed_job_labels,
)
from tfjob_controller.jobs.gang.podgroup import join_pod_group, pod_group_label
from tfjob_controller.jobs.naming import (
    INDEX_VARIABLE,
    REPLICA_RESTARTS,
    RESTART_ATTEMPT,
    replica_labels,
    replica_type_labels,
)
from tfjob_controller.jobs.plan.model import (
    GeneratedSecret,
    NewClaim,
    Plan,
    PlannedObject,
    PodCarrier,
    Replica,
    Role,
)
from tfjob_controller.jobs.state.podreasons import RETRYABLE_EXIT_CODES
from tfjob_controller.kube.meta import Object, Resource

Body = dict[str, Any]

# Variables of the training containers of a job with autoscaling.totalSteps: the total, and the share of this worker.
TOTAL_STEPS, STEPS = "TFJOB_TOTAL_STEPS", "TFJOB_STEPS"
# The fields of a metric's target that are quantities.
_QUANTITIES = ("averageValue", "value")
# The kubelet copies the end of the log into the pod's status. It shows why a program failed and how many steps it had
# completed, also when the log is gone.
_LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}
_INDEX_FIELD = f"metadata.labels['{COMPLETION_INDEX_LABEL}']"
_INDEX = {"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": _INDEX_FIELD}}}
_ONE_POD = {"backoffLimit": 0, "podReplacementPolicy": "Failed"}
# A Job with a limit for each index has none for their sum.
_ONE_POD_PER_INDEX = {"backoffLimitPerIndex": 0, "podReplacementPolicy": "Failed"}
# The maximum of batch/v1 (int32).
BACKOFF_LIMIT = 2**31 - 1
_REPLACED_ALONE = {
    "backoffLimit": BACKOFF_LIMIT,
    "backoffLimitPerIndex": BACKOFF_LIMIT,
    "podReplacementPolicy": "Failed",
}


def build_job(
    plan: Plan,
    replica: Replica,
    *,
    assignment: MemberAssignment | None = None,
    restarts: int = 0,
) -> Body:
    """Returns the batch/v1 Job that runs a replica; `assignment` is its member of a gang and its node.

    `restarts` is how often the replica was restarted before. For a role that one Indexed Job runs, the result is the
    same for all replicas.
    """
    if replica.role.job_name:
        return _indexed_job(plan, replica, assignment)
    has_attempt = replica.role.restarts_together or plan.scaling.resize == BY_RESTART
    attempt = {RESTART_ATTEMPT: str(plan.restart_attempt)} if has_attempt else {}
    labels = _labels(plan, replica) | attempt | (assignment.labels if assignment is not None else {})
    spec: Body = {
        "completions": 1,
        "parallelism": 1,
        **_ONE_POD,
        "template": _template(plan, replica, labels),
    }
    if replica.role.is_indexed:
        spec["completionMode"] = "Indexed"
    if assignment is not None:
        apply_assignment(spec["template"], assignment)
    if plan.scheduling.pod_group is not None:
        labels = labels | pod_group_label(plan.scheduling.pod_group)
        join_pod_group(spec["template"], plan.scheduling.pod_group)
    if restarts:
        labels = labels | {REPLICA_RESTARTS: str(restarts)}
    return {**_job_head(plan, replica.role, replica.name, labels), "spec": spec}


def build_pod(
    plan: Plan,
    carrier: PodCarrier,
    replica: Replica,
    *,
    assignment: MemberAssignment | None = None,
    restarts: int = 0,
) -> Body:
    """Returns the pod that carries a replica without a Job. Unless it belongs to a gang, it has upstream's labels."""
    template = {name: dict(value) for name, value in carrier.pod(replica).items()}
    if assignment is not None:
        template["metadata"]["labels"] = {**template["metadata"]["labels"], **assignment.labels}
        apply_assignment(template, assignment)
    if plan.scheduling.pod_group is not None:
        join_pod_group(template, plan.scheduling.pod_group)
    annotations = {**(template["metadata"].get("annotations") or {})}
    # The template may be that of a pod that has replaced another one.
    annotations.pop(RESTARTS_ANNOTATION, None)
    if restarts:
        annotations[RESTARTS_ANNOTATION] = str(restarts)
    head = _head(plan, PODS, replica.name, template["metadata"]["labels"], annotations)
    return {**head, "spec": template["spec"]}


def _indexed_job(plan: Plan, replica: Replica, assignment: MemberAssignment | None) -> Body:
    role = replica.role
    labels = replica_type_labels(plan.identity.labels, role.replica_type)
    labels |= {RESTART_ATTEMPT: str(plan.restart_attempt)}
    if assignment is not None:
        labels |= indexed_job_labels(assignment, role.name)
    template = _template(plan, replica, labels)
    if role.service_name:
        template["spec"]["subdomain"] = role.service_name
    if assignment is not None:
        apply_to_indexed_job(template, assignment)
    if plan.scheduling.pod_group is not None:
        labels = labels | pod_group_label(plan.scheduling.pod_group)
        join_pod_group(template, plan.scheduling.pod_group)
    spec: Body = {
        "completionMode": "Indexed",
        "completions": role.replicas,
        "parallelism": role.replicas,
        # A failure restarts all replicas. A pod that replaced one alone would join peers that had started without it.
        **(_REPLACED_ALONE if role.is_elastic else _ONE_POD_PER_INDEX),
        "template": template,
    }
    return {**_job_head(plan, role, role.job_name, labels), "spec": spec}


def _job_head(plan: Plan, role: Role, name: str, labels: Mapping[str, str]) -> Body:
    return _head(plan, JOBS, name, {**role.job_labels, **labels}, role.job_annotations)


def build_service(plan: Plan, replica: Replica) -> Body:
    """Returns the headless Service that gives a replica its DNS name; the pods of an Indexed Job share one."""
    role = replica.role
    if plan.carrier is not None:
        spec = plan.carrier.service(replica)
        return {**_head(plan, SERVICES, replica.name, spec["selector"]), "spec": spec}
    if role.shares_service:
        return _service(plan, replica, role.service_name, plan.identity.labels)
    labels = replica_type_labels(plan.identity.labels, role.replica_type) if role.job_name else _labels(plan, replica)
    return _service(plan, replica, role.service_name or replica.name, labels)


def build_first_service(plan: Plan, replica: Replica) -> Body:
    """The headless Service of the first replica of an elastic role: it makes its host name known to all."""
    labels = replica_type_labels(plan.identity.labels, replica.role.replica_type)
    return _service(plan, replica, replica.name, {**labels, COMPLETION_INDEX_LABEL: str(replica.index)})


def _service(plan: Plan, replica: Replica, name: str, labels: Mapping[str, str]) -> Body:
    role = replica.role
    spec: Body = {
        "clusterIP": "None",
        # Programs resolve the names of their peers before any of them is ready.
        "publishNotReadyAddresses": True,
        "selector": dict(labels),
        "ports": [{"name": role.port_name, "port": role.port}],
    }
    return {**_head(plan, SERVICES, name, labels), "spec": spec}


def build_config_map(plan: Plan) -> Body:
    """Returns the ConfigMap with files that pods mount (`plan.mounts.config_map` is its name)."""
    return {**_head(plan, CONFIG_MAPS, plan.mounts.config_map, plan.identity.labels), "data": dict(plan.mounts.files)}


def build_secret(plan: Plan, secret: GeneratedSecret) -> Body:
    """Returns a Secret with newly generated data. It is called only when the Secret must be created."""
    data = {name: b64encode(value).decode() for name, value in secret.make().items()}
    return {
        **_head(plan, SECRETS, secret.name, plan.identity.labels),
        "immutable": True,
        "type": secret.type,
        "data": data,
    }


def build_claim(plan: Plan, claim: NewClaim) -> Body:
    """Returns a PersistentVolumeClaim of the job."""
    labels = {**claim.labels, **plan.identity.labels}
    head = _head(plan, PERSISTENT_VOLUME_CLAIMS, claim.name, labels, claim.annotations)
    return {**head, "spec": dict(claim.spec)}


def build_object(plan: Plan, planned: PlannedObject, running: Collection[str]) -> Body:
    """Returns an object of the job; `running` has the names of the pods that run."""
    head = _head(plan, planned.resource, planned.name, {**planned.labels, **plan.identity.labels})
    return {**head, **planned.content(running)}


def content_digest(content: Any) -> str:
    """Returns a short text that differs for different contents."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]


def build_autoscaler(plan: Plan) -> Body:
    """Returns the HorizontalPodAutoscaler of an elastic job, by which Kubernetes writes the job's `scale`."""
    identity, resource = plan.identity, HORIZONTAL_POD_AUTOSCALERS
    metadata = identity.metadata_of(identity.job_name, identity.labels)
    spec = _autoscaler_settings(plan)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def autoscaler_patch(plan: Plan, autoscaler: HorizontalPodAutoscaler) -> Body | None:
    """Returns the merge patch that updates target, bounds and metrics; None if they are up to date.

    `spec.behavior`, which no job has, stays as others set it.
    """
    settings, spec = _autoscaler_settings(plan), autoscaler.spec
    bounds = (spec.min_replicas, spec.max_replicas)
    if bounds == plan.scaling.worker_bounds and spec.digest == autoscaler_digest(settings):
        return None
    return {"spec": settings}


def autoscaler_digest(settings: Mapping[str, Any]) -> str:
    """Returns a digest of target and metrics which does not depend on the notation of quantities.

    The API server stores quantities in its own notation, and leaves out what is empty.
    """
    return content_digest([_canonical(settings.get(name)) for name in ("scaleTargetRef", "metrics")])


def _canonical(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        parts = {key: _canonical(part, key) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, "", {}, [])}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    if name in _QUANTITIES:
        # Autoscalers compare thousandths.
        with contextlib.suppress(ValueError):
            return milli_of(str(value))
    return value


def _autoscaler_settings(plan: Plan) -> Body:
    owner, (least, most) = plan.identity.owner, plan.scaling.worker_bounds or (1, 1)
    return {
        "scaleTargetRef": {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": list(plan.scaling.metrics),
    }


def _labels(plan: Plan, replica: Replica) -> dict[str, str]:
    return replica_labels(plan.identity.labels, replica.role.replica_type, replica.index)


def _head(
    plan: Plan,
    resource: Resource[Object],
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Body:
    metadata = plan.identity.metadata_of(name, labels, {**plan.identity.added_annotations, **(annotations or {})})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _template(plan: Plan, replica: Replica, labels: Mapping[str, str]) -> Body:
    template = replica.template
    metadata = template.get("metadata") or {}
    spec = {**template["spec"], "restartPolicy": NEVER}
    if spec.get("terminationGracePeriodSeconds") == 0:
        # The API server would remove a deleted pod at once, and the next one would start while its programs still run.
        spec["terminationGracePeriodSeconds"] = 1
    spec["containers"] = [_container(plan, replica, container) for container in spec["containers"]]
    if spec.get("initContainers"):
        spec["initContainers"] = [_init_container(plan, replica, container) for container in spec["initContainers"]]
    if plan.scheduling.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = plan.scheduling.scheduler_name
    if plan.scheduling.priority_class_name and not spec.get("priorityClassName"):
        spec["priorityClassName"] = plan.scheduling.priority_class_name
    # Misspelled fields beside these two are for the API server to refuse.
    return {**template, "metadata": _pod_metadata(plan, metadata, labels), "spec": spec}


def _pod_metadata(plan: Plan, metadata: Mapping[str, Any], labels: Mapping[str, str]) -> Body:
    annotations = {**plan.identity.added_annotations, **(metadata.get("annotations") or {})}
    return {
        **metadata,
        "labels": {**plan.identity.added_labels, **(metadata.get("labels") or {}), **labels},
        **({"annotations": annotations} if annotations else {}),
    }


def _container(plan: Plan, replica: Replica, container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the container as the pod runs it. Only the training container gets the variables of the framework."""
    if container.get("name") != replica.role.container:
        return _sidecar(replica, container)
    env = [*_steps(plan, replica), *_env(container, plan.environment(replica), shares=plan.progress.shares is not None)]
    if replica.role.job_name:
        # First, since a variable can only refer to earlier ones, and the Job controller would append it at the end.
        env = [
            _INDEX,
            *(variable for variable in env if not isinstance(variable, dict) or variable.get("name") != INDEX_VARIABLE),
        ]
    return {**_LAST_WORDS, **_with_restart_policy(container, _restart_policy(replica)), "env": env}


def _init_container(plan: Plan, replica: Replica, container: Mapping[str, Any]) -> Body:
    """Returns the init container as the pod runs it. One that transfers data is tried again after any error."""
    if container.get("restartPolicy") == ALWAYS:
        return {**_LAST_WORDS, **_sidecar(replica, container)}
    transfers = replica.restarts_in_place and container.get("name") in plan.mounts.data_containers
    policy = {"restartPolicy": ON_FAILURE} if transfers else _restart_policy(replica)
    return {**_LAST_WORDS, **_with_restart_policy(container, policy)}


def _sidecar(replica: Replica, container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a container whose exit codes do not count. It restarts alone, not with what has succeeded beside it."""
    policy = {"restartPolicy": ON_FAILURE} if replica.restarts_in_place else {}
    rules = [
        {**rule, "action": "Restart"} if rule.get("action") == "RestartAllContainers" else rule
        for rule in container.get("restartPolicyRules") or ()
    ]
    return {**policy, **container, **({"restartPolicyRules": rules} if rules else {})}


def _with_restart_policy(container: Mapping[str, Any], policy: Mapping[str, Any]) -> Body:
    """Returns a container whose exit codes count, with a policy that agrees with how `state.replica_state` judges them.

    Of the template's own only Never counts.
    """
    kept = {name: value for name, value in container.items() if name not in ("restartPolicy", "restartPolicyRules")}
    return kept if container.get("restartPolicy") == NEVER else {**kept, **policy}


def _steps(plan: Plan, replica: Replica) -> list[Any]:
    """Returns the variables with the steps, which come first, since a variable can only refer to earlier ones."""
    if plan.progress.shares is None:
        return []
    values = {TOTAL_STEPS: plan.progress.shares.total}
    if replica.role.name == plan.scaling.role:
        values[STEPS] = plan.progress.shares.by_index.get(replica.index, 0)
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _env(container: Mapping[str, Any], added: Mapping[str, str], *, shares: bool) -> list[Any]:
    """Returns the user's variables, then the controller's, which replace the user's of the same name."""
    ours = {*added, TOTAL_STEPS, STEPS} if shares else added
    own = [
        variable
        for variable in container.get("env") or ()
        if not isinstance(variable, dict) or variable.get("name") not in ours
    ]
    return own + [{"name": name, "value": value} for name, value in added.items()]


def _restart_policy(replica: Replica) -> Body:
    """Returns when the kubelet restarts a container whose exit codes count; empty for never."""
    if not replica.restarts_in_place:
        return {}
    if not replica.decides:
        return {"restartPolicy": ON_FAILURE}
    codes = {"operator": "In", "values": list(RETRYABLE_EXIT_CODES)}
    return {"restartPolicy": NEVER, "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}]}
