"""When the jobs of a cluster end: jobs of all kinds by what identifies their pods, with their limits and estimates.

Little of each job is decoded, because a cluster may have thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias

import msgspec

from tfjob_controller.jobs.naming import name_value, runtime_id_of
from tfjob_controller.kinds import job_resources
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta, ObjectT, Resource
from tfjob_controller.kube.requester import Requester

PATIENCE: dict[str, Any] = {"timeout_seconds": 30.0, "retry": False}
# Namespace, `KIND/NAME`, and the runtime id, or the UID of a job that owns its pods: the job of a pod.
JobKey: TypeAlias = tuple[str, str, str]


class JobTimes(msgspec.Struct, frozen=True):
    """When a job started, and when it ends; times are RFC 3339, or empty.

    `limit_seconds` is the time that the job may run (`activeDeadlineSeconds`); its controller ends it then.
    `estimated_seconds` is what its program expected to need from `estimated` on, by the program's clock.
    """

    name: str
    started: str = ""
    limit_seconds: int | None = None
    estimated: str = ""
    estimated_seconds: int | None = None


class _RunPolicy(msgspec.Struct, frozen=True, rename="camel"):
    active_deadline_seconds: int | None = None


class _JobSpec(_RunPolicy, frozen=True, rename="camel"):
    """The limit is in `runPolicy` in jobs of `kubeflow.org/v1`."""

    runtime_id: str = msgspec.field(name="RuntimeId", default="")
    run_policy: _RunPolicy | None = None


class _Estimate(msgspec.Struct, frozen=True, rename="camel"):
    estimated_remaining_seconds: int | None = None
    last_updated_time: str = ""


class _JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    start_time: str | None = None
    trainer_status: _Estimate | None = None


class _KnownJob(msgspec.Struct, frozen=True):
    """What identifies the children of a job of any kind, and when it ends."""

    metadata: ObjectMeta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


_decode_job = decoder_for(_KnownJob)


def _key_of(job: _KnownJob, word: str) -> JobKey:
    meta = job.metadata
    return meta.namespace, f"{word}/{name_value(meta.name)}", job.spec.runtime_id or runtime_id_of(meta.uid)


def _key_of_owner(job: _KnownJob, word: str) -> JobKey:
    return job.metadata.namespace, f"{word}/{job.metadata.name}", job.metadata.uid


def _times_of(job: _KnownJob) -> JobTimes:
    policy, estimate = job.spec.run_policy or job.spec, job.status.trainer_status or _Estimate()
    return JobTimes(
        job.metadata.name,
        job.status.start_time or "",
        policy.active_deadline_seconds,
        estimate.last_updated_time,
        estimate.estimated_remaining_seconds,
    )


def read_jobs(
    requester: Requester, scopes: Sequence[str], kinds: Sequence[ClientKind]
) -> tuple[Mapping[JobKey, JobTimes], Set[str]]:
    """The jobs of the first of these namespaces ("" is all) that the user may list, kind by kind.

    The second value are the words of which all jobs there are known: the user may list all kinds whose pods they name.
    """
    of_v1 = [kind.resource for kind in kinds if kind.owns_pods]
    resources = [*job_resources(), *of_v1]
    times: dict[JobKey, JobTimes] = {}
    known = {resource.kind.lower() for resource in resources}
    for resource in resources:
        word = resource.kind.lower()
        jobs = listed(requester, resource.with_decoder(_decode_job), scopes)
        if jobs is None:
            known.discard(word)
            continue
        key_of = _key_of_owner if resource in of_v1 else _key_of
        times.update((key_of(job, word), _times_of(job)) for job in jobs)
    return times, known


def listed(requester: Requester, resource: Resource[ObjectT], scopes: Sequence[str]) -> Sequence[ObjectT] | None:
    """The objects of the first scope that the user may list; None if there is none, and nothing without that kind."""
    client = ResourceClient(requester, resource, **PATIENCE)
    for scope in scopes:
        try:
            return client.list(scope)
        except ApiError as error:
            if error.is_not_found:
                return ()
            if not error.is_forbidden:
                raise
    return None
