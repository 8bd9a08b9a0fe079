"""Reads what one version of an object says: of a job, of a child, and of the containers of a pod. Pure.

The sources are the contracts of TFJob and TrainJob (docs/tfjob.md, docs/trainjob.md) and of batch/v1 Job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.jobs.history import KIND_NAMES, OWNERS, Object
from tfjob_controller.api.gang import index_of
from tfjob_controller.jobs.naming import replica_id_of

EXPECTS = "chaos.kubeflow.org/expects"
SUCCEEDED, FAILED = "Succeeded", "Failed"
RESTART_ATTEMPT = "kubeflow.org/generation"
_FINISHED_PHASES = ("Done", "Failed")
_KIND_OF_OWNER = {KIND_NAMES[kind]: kind for kind in OWNERS}
_STATES = {"SUCCESS": SUCCEEDED, "FAILED": FAILED, "RUNNING": "Running"}


# Owners and labels


def controller_of(obj: Object) -> Object | None:
    owners: list[Object] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def labels_of(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def kind_of_owner(reference: Object) -> str:
    """Returns the kind of job that an owner reference names; empty for other owners."""
    kind = _KIND_OF_OWNER.get(str(reference.get("kind", "")), "")
    return kind if str(reference.get("apiVersion", "kubeflow.org/")).startswith("kubeflow.org/") else ""


def is_ours(obj: Object) -> bool:
    """Reports whether the product created the object, or the Job of the pod."""
    owner = controller_of(obj)
    return "runtime_id" in labels_of(obj) or (owner is not None and bool(kind_of_owner(owner)))


def replica_of(obj: Object) -> str:
    """Returns the replica whose child this is, such as `worker-3`; empty for a child of the job or of a role."""
    replica = replica_id_of(labels_of(obj))
    return replica if index_of(replica) is not None else ""


def role_of(obj: Object) -> str:
    """Returns the role of a Job or Service that all its replicas share; empty for the child of one replica."""
    role = replica_id_of(labels_of(obj))
    return role if index_of(role) is None else ""


def restart_attempt_of(obj: Object) -> int:
    text = labels_of(obj).get(RESTART_ATTEMPT, "")
    return int(text) if text.isdigit() else 0


# Jobs of both kinds


def spec_of(obj: Object) -> Object:
    spec: Object = obj.get("spec") or {}
    return spec


def status_of(obj: Object) -> Object:
    status: Object = obj.get("status") or {}
    return status


def phase_of(obj: Object) -> str:
    return str(status_of(obj).get("phase", ""))


def state_of(obj: Object) -> str:
    """Returns the state of a job of either kind, as a TFJob names it."""
    state = str(status_of(obj).get("state", ""))
    return _STATES.get(state, state)


def restarts_of(obj: Object) -> int:
    return int(status_of(obj).get("restarts", 0))


def succeeded_replicas(obj: Object) -> Sequence[str]:
    """Returns the replicas that the status lists as succeeded."""
    return status_of(obj).get("succeededIndexes") or ()


def is_finished(obj: Object) -> bool:
    return phase_of(obj) in _FINISHED_PHASES


def conditions_of(obj: Object) -> list[Object]:
    conditions: list[Object] = status_of(obj).get("conditions") or []
    return conditions


def true_conditions(obj: Object) -> dict[str, str]:
    """Returns the conditions that are True with their reasons, with Succeeded for a TrainJob's Complete."""
    true = [condition for condition in conditions_of(obj) if condition["status"] == "True"]
    return {
        SUCCEEDED if condition["type"] == "Complete" else str(condition["type"]): str(condition.get("reason", ""))
        for condition in true
    }


def expected_of(obj: Object) -> str:
    """Returns the expected result, Succeeded or Failed; empty for any."""
    return _STATES.get((obj["metadata"].get("annotations") or {}).get(EXPECTS, ""), "")


def is_managed(obj: Object) -> bool:
    """Reports whether the product's controller manages the job."""
    manager = str(spec_of(obj).get("managedBy") or "")
    return not manager or manager.startswith("kubeflow.org/")


def is_suspended(job: Object) -> bool:
    """Reports whether a job, or a child Job, is to have no pods."""
    return bool(spec_of(job).get("suspend"))


def is_elastic(job: Object) -> bool:
    """Reports whether the nodes of a TrainJob come and go one by one."""
    return bool(spec_of(job).get("elasticPolicy"))


def chief_of(spec: Object) -> str:
    """Returns the chief of a TFJob."""
    chief = (spec.get("terminationPolicy") or {}).get("chief") or {}
    types = [entry.get("tfReplicaType", "MASTER") for entry in spec.get("replicaSpecs") or ()]
    default = "MASTER" if "MASTER" in types else "WORKER"
    return f"{str(chief.get('replicaName') or default).lower()}-{int(chief.get('replicaIndex') or 0)}"


# Child Jobs


def job_outcome(job: Object) -> str:
    """Returns the outcome of a batch/v1 Job: Succeeded, Failed or empty."""
    outcomes = {"Succeeded": SUCCEEDED, "SuccessCriteriaMet": SUCCEEDED, "Failed": FAILED}
    return next((outcomes[each] for each in true_conditions(job) if each in outcomes), "")


def completed_indexes(job: Object) -> list[int]:
    """Returns the completed indexes of an Indexed Job, which its status has in a form such as `0-2,5`."""
    indexes: list[int] = []
    for part in filter(None, str(status_of(job).get("completedIndexes", "")).split(",")):
        first, _, last = part.partition("-")
        indexes += range(int(first), int(last or first) + 1)
    return indexes


# Pods and their containers


def training_statuses(pod: Object) -> Sequence[Object]:
    """Returns the statuses of the containers that train; the first one if none has a known name."""
    statuses = status_of(pod).get("containerStatuses") or ()
    names = {"tensorflow", labels_of(pod).get("job_type", "").lower()}
    return [status for status in statuses if status["name"] in names] or statuses[:1]


def deciding_statuses(pod: Object) -> Sequence[Object]:
    """Returns the statuses of the containers whose errors end the replica: those that train, and init containers."""
    containers = spec_of(pod).get("initContainers") or ()
    sidecars = [container["name"] for container in containers if container.get("restartPolicy") == "Always"]
    init = status_of(pod).get("initContainerStatuses") or ()
    return [*(status for status in init if status["name"] not in sidecars), *training_statuses(pod)]


def all_statuses(pod: Object) -> list[Object]:
    """Returns the statuses of all containers: init containers, those that train, and those beside them."""
    status = status_of(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def terminations(statuses: Sequence[Object], *states: str) -> list[Object]:
    """Returns how containers ended, in the given states of their statuses: `state`, `lastState` or both."""
    ends = ((status.get(state) or {}).get("terminated") for status in statuses for state in states)
    return [ended for ended in ends if ended is not None]


def is_running(status: Object) -> bool:
    """Reports whether a container runs."""
    return (status.get("state") or {}).get("running") is not None


def is_disrupted(pod: Object) -> bool:
    return "DisruptionTarget" in true_conditions(pod)


def is_bound(pod: Object) -> bool:
    return bool(spec_of(pod).get("nodeName"))


def has_ended(pod: Object) -> bool:
    return phase_of(pod) in (SUCCEEDED, FAILED)
