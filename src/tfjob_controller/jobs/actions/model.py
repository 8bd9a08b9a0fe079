"""The writes that a job requires, as data; the reconciler sends them. `planner` states their contract."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tfjob_controller.api.common.core import JOBS, PODS
from tfjob_controller.jobs.actions.children import Body
from tfjob_controller.jobs.plan.model import Plan
from tfjob_controller.jobs.state.observed import ObservedState
from tfjob_controller.kube.meta import Object, Resource


@dataclass(frozen=True, slots=True)
class Create:
    """POST `body` to `resource`. `name` for messages and for adoption on AlreadyExists."""

    resource: Resource[Object]
    name: str
    body: Body


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE by name with precondition `uid`, and `version` if it has one. NotFound and Conflict are success.

    `foreground`: the object stays until all that it owns is gone. Otherwise that is deleted some time after it.
    `resumes`: a suspended Job is replaced by one that runs.
    """

    resource: Resource[Object]
    name: str
    uid: str
    foreground: bool = False
    version: str = ""
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class SetSuspend:
    """Merge-PATCH `{"spec": {"suspend": suspend}}` on child Job `name`. NotFound is success."""

    name: str
    suspend: bool


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-PATCH `body` on a child. NotFound is success."""

    resource: Resource[Object]
    name: str
    body: Body


@dataclass(frozen=True, slots=True)
class Actions:
    """Writes of one sync, the most urgent first."""

    creates: tuple[Create, ...] = ()
    deletes: tuple[Delete, ...] = ()
    suspends: tuple[SetSuspend, ...] = ()
    patches: tuple[Patch, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.deletes or self.suspends or self.patches)


NO_ACTIONS = Actions()


def merge(*parts: Actions) -> Actions:
    return Actions(
        creates=tuple(create for part in parts for create in part.creates),
        deletes=tuple(delete for part in parts for delete in part.deletes),
        suspends=tuple(suspend for part in parts for suspend in part.suspends),
        patches=tuple(patch for part in parts for patch in part.patches),
    )


def combined(plan: Plan, observed: ObservedState, actions: Actions) -> Actions:
    """Returns the actions with writes of what carries the replicas.

    That is one write for each Indexed Job instead of one for each of its replicas, and the deletion of a pod instead of
    that, or of the suspension, of the Job that it stands for.
    """
    if plan.carrier is not None:
        return _pod_deletes(observed, actions)
    names = observed.indexed_jobs
    if not names:
        return actions
    deletes = (
        replace(delete, name=names.get(delete.name, delete.name)) if delete.resource == JOBS else delete
        for delete in actions.deletes
    )
    suspends = (replace(suspend, name=names.get(suspend.name, suspend.name)) for suspend in actions.suspends)
    return replace(actions, deletes=tuple(dict.fromkeys(deletes)), suspends=tuple(dict.fromkeys(suspends)))


def _pod_deletes(observed: ObservedState, actions: Actions) -> Actions:
    others = [delete for delete in actions.deletes if delete.resource != JOBS]
    names = {delete.name for delete in actions.deletes if delete.resource == JOBS}
    names |= {suspend.name for suspend in actions.suspends if suspend.suspend}
    pods = (pod for name in sorted(names) for pod in observed.pods.get(name, ()))
    left = [build_delete(PODS, pod) for pod in pods if pod.metadata.deletion_timestamp is None]
    return replace(actions, deletes=tuple(dict.fromkeys((*others, *left))), suspends=())


def build_delete(resource: Resource[Object], obj: Object, *, foreground: bool = False, resumes: bool = False) -> Delete:
    """Returns the deletion of an object. A child Job is deleted only in the version that was seen.

    A cache that is behind may not show yet that its replica has succeeded. A Job that is being deleted already is
    deleted without a version: if the request removes its last finalizer, the API server compares the version with that
    of an empty object, and the conflict would never end (apiserver 1.36, registry/store.go).
    """
    is_being_deleted = obj.metadata.deletion_timestamp is not None
    version = obj.metadata.resource_version if resource == JOBS and not is_being_deleted else ""
    return Delete(resource, obj.metadata.name, obj.metadata.uid, foreground, version, resumes)
