"""The kinds of jobs: for each a folder with all in which it differs, and one line in `registry`.

A folder has the plan of a job (`plan`), its pods (`podtemplate`), its status on the wire (`status`), and its informers
and adapter (`kind`). Start reading with `registry.py`, then
`kindcontroller.py`, which is what the program runs for each. What clients know of a kind is its `clientkind`;
`names` lists these kinds.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfjob_controller.kube.meta import Object, Resource


def job_resources() -> Sequence[Resource[Object]]:
    """Returns the resources of the kinds whose children clients count: `RESOURCES` of their folders.

    Those of `kubeflow.org/v1` are none of them. No adapter is imported, so that commands start quickly.
    """
    folders = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return [resource for folder in folders for resource in getattr(folder, "RESOURCES", ())]
