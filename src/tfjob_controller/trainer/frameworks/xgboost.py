"""XGBoost: the address of the tracker, which the program starts on node 0, and the number of workers it waits for.

With GPUs a node runs one worker for each. The variables are set per node, so the program that starts the workers gives
each its own task id.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfjob_controller.trainer.frameworks.base import (
    AUTO,
    DEFAULT_PORT,
    GPU,
    NUM_PROC_PER_NODE,
    ByEnvironment,
    Setting,
    processes_problem,
)


def workers_per_node(setting: Setting) -> int:
    return setting.gpus or 1


def _variables(setting: Setting, index: int) -> Mapping[str, str]:
    return {
        "DMLC_TRACKER_URI": setting.nodes[0],
        "DMLC_TRACKER_PORT": str(DEFAULT_PORT),
        "DMLC_TASK_ID": str(index),
        "DMLC_NUM_WORKER": str(setting.num_nodes * workers_per_node(setting)),
    }


def _problem(setting: Setting) -> str | None:
    return processes_problem(setting) or _other_count(setting)


def _other_count(setting: Setting) -> str | None:
    workers = workers_per_node(setting)
    if setting.num_proc_per_node in ("", AUTO, GPU, str(workers)):
        return None
    return (
        f"{NUM_PROC_PER_NODE}: framework xgboost runs one worker per GPU, or one per node without GPUs: "
        f"{workers} here, not {setting.num_proc_per_node!r}: leave it out"
    )


FRAMEWORK = ByEnvironment(
    name="xgboost",
    runtime="xgboost-distributed",
    reserved=frozenset(_variables(Setting("", 1, ("",)), 0)),
    variables=_variables,
    check=_problem,
)
