"""Plain: the nodes run the command without any knowledge of each other. They need no Service."""

from __future__ import annotations

from functools import partial

from tfjob_controller.trainer.frameworks.base import ByEnvironment, single_process_problem

FRAMEWORK = ByEnvironment(
    name="plain",
    runtime="plain",
    reserved=frozenset(),
    variables=lambda setting, index: {},
    check=partial(single_process_problem, "plain"),
    port=0,
)
