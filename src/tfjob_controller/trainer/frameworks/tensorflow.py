"""TensorFlow: `TF_CONFIG` with all nodes as workers, as MultiWorkerMirroredStrategy expects it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from tfjob_controller.trainer.frameworks.base import ByEnvironment, Setting, single_process_problem
from tfjob_controller.trainer.tf_config import TF_CONFIG, Task, tf_config_environment

PORT = 2222


@dataclass(frozen=True, slots=True)
class _Worker:
    """The role: TensorFlow calls the nodes workers."""

    name: str = "worker"


@dataclass(frozen=True, slots=True)
class _Task:
    index: int
    role: _Worker = _Worker()


# Formats the addresses of all nodes once per job instead of once per node. Few jobs are compiled at a time.
@lru_cache(maxsize=16)
def _by_task(nodes: tuple[str, ...]) -> Callable[[Task], Mapping[str, str]]:
    return tf_config_environment({"worker": [f"{node}:{PORT}" for node in nodes]})


def _variables(setting: Setting, index: int) -> Mapping[str, str]:
    return _by_task(setting.nodes)(_Task(index))


FRAMEWORK = ByEnvironment(
    name="tensorflow",
    runtime="tensorflow-distributed",
    reserved=frozenset((TF_CONFIG,)),
    variables=_variables,
    check=partial(single_process_problem, "tensorflow"),
    port=PORT,
)
