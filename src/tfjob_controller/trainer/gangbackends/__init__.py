"""Other schedulers that can run a job's pods as a gang, by the name that `--gang-backend` calls them."""

from __future__ import annotations

from collections.abc import Mapping

from tfjob_controller.trainer.gangbackends.backend import Backend
from tfjob_controller.trainer.gangbackends.coscheduling import Coscheduling
from tfjob_controller.trainer.gangbackends.kubernetes import Kubernetes
from tfjob_controller.trainer.gangbackends.kueue import Kueue
from tfjob_controller.trainer.gangbackends.volcano import Volcano

BACKENDS: Mapping[str, Backend] = {
    "volcano": Volcano(),
    "coscheduling": Coscheduling(),
    "kubernetes": Kubernetes(),
    "kueue": Kueue(),
}
