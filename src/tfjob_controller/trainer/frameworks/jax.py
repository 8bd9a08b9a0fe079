"""JAX: the variables of `jax.distributed.initialize()`, and the same without `JAX_` for programs that pass them on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tfjob_controller.trainer.frameworks.base import DEFAULT_PORT, ByEnvironment, Setting, single_process_problem

_PREFIXES = ("JAX_", "")


def _variables(setting: Setting, index: int) -> Mapping[str, str]:
    values = {
        "COORDINATOR_ADDRESS": f"{setting.nodes[0]}:{DEFAULT_PORT}",
        "NUM_PROCESSES": str(setting.num_nodes),
        "PROCESS_ID": str(index),
    }
    return {prefix + name: value for prefix in _PREFIXES for name, value in values.items()}


FRAMEWORK = ByEnvironment(
    name="jax",
    runtime="jax-distributed",
    reserved=frozenset(_variables(Setting("", 1, ("",)), 0)),
    variables=_variables,
    check=partial(single_process_problem, "jax"),
)
