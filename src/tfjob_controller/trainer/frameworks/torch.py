"""PyTorch: the variables of `torchrun` (`PET_…`), and those of `torch.distributed` for programs without it.

torchrun reads each of its options from a variable `PET_<OPTION>`; an option on the command line takes precedence. It
sets `MASTER_ADDR`, `MASTER_PORT`, `WORLD_SIZE` and `RANK` for its own processes, counted by process. A program that is
started without torchrun is one process per node, so the variables count nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfjob_controller.trainer.frameworks.base import (
    AUTO,
    CPU,
    DEFAULT_PORT,
    ByEnvironment,
    Setting,
    processes_problem,
    whole_cpus,
)


def processes_per_node(setting: Setting) -> str:
    """Torchrun's number of processes per node: with `auto` and `gpu` it counts the GPUs that it sees.

    Without GPUs it would count the CPUs of the whole machine for `auto` and `cpu`, so it gets the number of the pod's.
    """
    wanted = setting.num_proc_per_node or AUTO
    if wanted == CPU or (wanted == AUTO and not setting.gpus):
        return str(whole_cpus(setting))
    return wanted


def _variables(setting: Setting, index: int) -> Mapping[str, str]:
    first, nodes, port = setting.nodes[0], str(setting.num_nodes), str(DEFAULT_PORT)
    return {
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": processes_per_node(setting),
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": first,
        "MASTER_PORT": port,
        "WORLD_SIZE": nodes,
        "RANK": str(index),
    }


FRAMEWORK = ByEnvironment(
    name="torch",
    runtime="torch-distributed",
    reserved=frozenset(_variables(Setting("", 1, ("",)), 0)),
    variables=_variables,
    check=processes_problem,
    commands=("torchrun", "torch.distributed.run"),
)
