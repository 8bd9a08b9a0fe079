"""TensorFlow: `TF_CONFIG` with all nodes as workers, as MultiWorkerMirroredStrategy wants it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tfjob_controller.trainer.cluster import TF_CONFIG, Task, tf_config_environment
from tfjob_controller.trainer.frameworks.base import NUM_NODES, ByEnvironment, Setting, single_process_problem

PORT = 2222
# Linux starts no program with a longer variable, its name and a zero byte included (MAX_ARG_STRLEN).
MAX_VARIABLE_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class _Worker:
    """The role: TensorFlow calls the nodes so."""

    name: str = "worker"


@dataclass(frozen=True, slots=True)
class _Task:
    index: int
    role: _Worker = _Worker()


# Writes the addresses of all nodes once per job instead of once per node; a few jobs are compiled at a time.
@lru_cache(maxsize=16)
def _by_task(nodes: tuple[str, ...]) -> Callable[[Task], Mapping[str, str]]:
    return tf_config_environment({"worker": [f"{node}:{PORT}" for node in nodes]})


def _variables(setting: Setting, index: int) -> Mapping[str, str]:
    return _by_task(setting.nodes)(_Task(index))


def _problem(setting: Setting) -> str | None:
    return single_process_problem("tensorflow", setting) or _too_many_nodes(setting)


def _too_many_nodes(setting: Setting) -> str | None:
    longest = _variables(setting, setting.num_nodes - 1)[TF_CONFIG]
    size = len(f"{TF_CONFIG}={longest}".encode()) + 1
    if size <= MAX_VARIABLE_BYTES:
        return None
    return (
        f"{NUM_NODES}: must be less than {setting.num_nodes} with framework tensorflow: TF_CONFIG names every node, "
        f"and would have {size} bytes of the {MAX_VARIABLE_BYTES} that Linux allows a variable"
    )


FRAMEWORK = ByEnvironment(
    name="tensorflow",
    runtime="tensorflow-distributed",
    reserved=frozenset((TF_CONFIG,)),
    variables=_variables,
    check=_problem,
    port=PORT,
)
