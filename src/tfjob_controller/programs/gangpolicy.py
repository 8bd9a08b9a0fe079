"""What the flags of `run` say of gangs."""

from __future__ import annotations

from tfjob_controller.options import RunOptions
from tfjob_controller.trainer.gang.terms import OFF, GangPolicy
from tfjob_controller.trainer.podgroup.backends import BACKENDS

# As manifests/base/extender calls it.
GANG_SCHEDULER = "gang-scheduler"


def gang_policy(options: RunOptions) -> GangPolicy:
    """Without a backend where no job is a gang, so that none of its kinds is watched."""
    backend = BACKENDS.get(options.gang_backend) if options.gang_scheduling != OFF else None
    own_name = backend.scheduler_name if backend is not None else GANG_SCHEDULER
    return GangPolicy(
        options.gang_scheduling,
        options.gang_scheduler_name or own_name,
        options.gang_mode == "affinity",
        options.autoscaling,
        backend,
    )
