"""The policies for all jobs that follow from the flags of the controller."""

from __future__ import annotations

from tfjob_controller.api.kubeflowv1.types import PYTORCH_JOB
from tfjob_controller.api.masterwait import MasterWait, default_wait, read_wait
from tfjob_controller.jobs.plan import gangterms as terms
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.options import RunOptions
from tfjob_controller.util.fairness import most_of_namespace

# The default schedulerName of gangs' pods, as in manifests/base/extender.
GANG_SCHEDULER = "gang-scheduler"


def workers_of_namespace(options: RunOptions) -> int | None:
    """Returns how many jobs of one namespace are reconciled at a time: some workers are left to the others.

    Large jobs are slow to write, and a namespace can have many. A controller for one namespace has no limit.
    """
    return None if options.namespace else most_of_namespace(options.workers)


def gang_policy(options: RunOptions) -> terms.GangPolicy:
    """Returns the gang policy of the flags. Without gangs it has no backend, and no kind of a backend is watched."""
    backend = BACKENDS.get(options.gang_backend) if options.gang_scheduling != terms.OFF else None
    own_name = backend.scheduler_name if backend is not None else GANG_SCHEDULER
    return terms.GangPolicy(
        options.gang_scheduling,
        options.gang_scheduler_name or own_name,
        options.gang_mode == "affinity",
        options.autoscaling,
        backend,
    )


def master_wait_of(options: RunOptions) -> MasterWait:
    """Returns how workers of PyTorchJobs wait for their master. Raises ConfigError for a template of no use."""
    if PYTORCH_JOB not in options.kubeflow_v1_api:
        return default_wait()
    return read_wait(
        options.pytorch_init_container_template_file,
        options.pytorch_init_container_image,
        options.pytorch_init_container_max_tries,
    )
