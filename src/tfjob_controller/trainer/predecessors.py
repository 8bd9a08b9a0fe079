"""A replica never has two pods that run: its next Job is made once the pods of the one before have ended or gone.

Theory of operation. A Job that is deleted in the foreground stays as long as its pods do, and its name is taken for as
long. One that somebody deletes otherwise is gone at once, and the garbage collector comes to its pods some time later:
they are waited for by themselves. A pod that is lost with its node is not among them (`generations.without_lost`), for
nobody will ever say that it has ended.

A pod that its Job left behind (`kubectl delete job --cascade=orphan`) is nobody's: it is neither counted nor deleted.
But it runs under the replica's name, and so it is waited for, too, as a StatefulSet waits for a pod of that name.
"""

from __future__ import annotations

from itertools import chain

from tfjob_controller.api.core import Pod
from tfjob_controller.trainer import replicas
from tfjob_controller.trainer.observed import Observed
from tfjob_controller.trainer.pods import is_finished
from tfjob_controller.trainer.replicas import View


def is_vacant(observed: Observed, name: str) -> bool:
    """May a Job be made under that name? `observed` is without lost pods."""
    return name not in observed.jobs and _in_the_way(observed, name) is None


def _in_the_way(observed: Observed, name: str) -> Pod | None:
    pods = chain(observed.pods.get(name, ()), observed.orphans.get(name, ()))
    return next((pod for pod in pods if not is_finished(pod)), None)


def why_not_made(observed: Observed, view: View) -> str:
    """What a replica without a Job waits for, in words; empty if there is no such pod."""
    name = view.replica.name
    pod = _in_the_way(observed, name) if name not in observed.jobs and view.state != replicas.SUCCEEDED else None
    if pod is None:
        return ""
    if pod in observed.orphans.get(name, ()):
        return f"waits for pod {pod.metadata.name}, which no Job controls any more, to end; or delete it"
    return f"waits for pod {pod.metadata.name} of its deleted Job to go"
