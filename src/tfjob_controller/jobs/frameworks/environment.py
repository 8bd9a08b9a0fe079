"""The frameworks whose processes find each other by environment variables alone: all but MPI.

torchrun reads each of its options from a variable `PET_<OPTION>`; an option on the command line takes precedence. It
sets `MASTER_ADDR`, `MASTER_PORT`, `WORLD_SIZE` and `RANK` for its own processes, counted by process. A program that is
started without torchrun is one process per node, so the variables count nodes.

An elastic job needs torchrun, whose processes meet in a rendezvous that node 0 hosts (torch/distributed/run.py and
elastic/rendezvous of PyTorch). torchrun hosts it where the endpoint is the host name itself: it finds out without DNS,
which may not know the pod yet. A lost or removed node uses up one of `max_restarts` on all others, so there are many.
A node waits for the rendezvous as long as the controller waits for nodes, and a little longer: then the controller
restarts the set (`state.restarts`), and torchrun does not end with an error of its own. Each rendezvous with fewer
nodes than the maximum waits for more until the last call: long enough for agents to see a change, which takes older
ones 5 s, and shorter than the default of 30 s.

TensorFlow's `TF_CONFIG` has all nodes as workers, as MultiWorkerMirroredStrategy expects it. Linux starts no program
with a variable of 128 KiB or more (MAX_ARG_STRLEN, execve(2)), so that the names of the nodes limit their number.

JAX has the variables of `jax.distributed.initialize()`, and the same without `JAX_` for programs that pass them on.

XGBoost has the address of the tracker, which the program starts on node 0, and the number of workers that it waits for.
With GPUs a node runs one worker for each. The variables are set per node, so the program that starts the workers gives
each its own task id.

The nodes of a plain job run the command without any knowledge of each other. They need no Service.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

from tfjob_controller.jobs.frameworks.base import (
    AUTO,
    CPU,
    DEFAULT_PORT,
    GPU,
    NUM_NODES,
    NUM_PROC_PER_NODE,
    ByEnvironment,
    ElasticSetting,
    Setting,
    processes_problem,
    single_process_problem,
    whole_cpus,
)

# How long a set may have fewer nodes than its minimum before all of it is restarted, and what torchrun adds to that.
JOIN_SECONDS, _JOIN_SLACK_SECONDS = 600, 300
_LAST_CALL_SECONDS = 10
_MAX_RESTARTS = 100

# The suffix of resources that are whole GPUs of any vendor.
_WHOLE_GPU = "/gpu"

# A node by which a framework's variables are known before there is a job.
_SAMPLE = Setting("", 1, ("",))


def processes_per_node(setting: Setting) -> str:
    """Torchrun's number of processes per node: with `auto` and `gpu` it counts the GPUs that it sees.

    It sees whole GPUs only: one of several MIG instances, and no TPU or Neuron device. Without a GPU it would count the
    CPUs of the whole machine for `auto` and `cpu`. In these cases it gets the number of what the pod requests.
    """
    wanted = setting.num_proc_per_node or AUTO
    if wanted == CPU or (wanted == AUTO and not setting.gpus):
        return str(whole_cpus(setting))
    if wanted in (AUTO, GPU) and not all(name.endswith(_WHOLE_GPU) for name in setting.accelerators):
        return str(setting.gpus)
    return wanted


def _torch_variables(setting: Setting, index: str) -> Mapping[str, str]:
    if setting.elastic is not None:
        return _elastic_variables(setting, setting.elastic)
    first, nodes, port = setting.nodes[0], str(setting.num_nodes), str(DEFAULT_PORT)
    return {
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": processes_per_node(setting),
        "PET_NODE_RANK": index,
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": first,
        "MASTER_PORT": port,
        "WORLD_SIZE": nodes,
        "RANK": index,
    }


def _elastic_variables(setting: Setting, elastic: ElasticSetting) -> Mapping[str, str]:
    """Ranks and numbers of nodes come from the rendezvous."""
    patience = JOIN_SECONDS + _JOIN_SLACK_SECONDS
    return {
        "PET_NNODES": f"{elastic.min_nodes}:{elastic.max_nodes}",
        "PET_NPROC_PER_NODE": processes_per_node(setting),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{elastic.first_host}:{DEFAULT_PORT}",
        "PET_RDZV_ID": elastic.job_uid,
        "PET_RDZV_CONF": f"join_timeout={patience},last_call_timeout={_LAST_CALL_SECONDS},read_timeout={patience}",
        "PET_MAX_RESTARTS": str(_MAX_RESTARTS),
    }


TORCH = ByEnvironment(
    name="torch",
    runtime="torch-distributed",
    reserved=frozenset(_torch_variables(_SAMPLE, "")),
    variables=_torch_variables,
    check=processes_problem,
    commands=("torchrun", "torch.distributed.run"),
)

TF_CONFIG = "TF_CONFIG"
TENSORFLOW_PORT = 2222
_MAX_VARIABLE_BYTES = 128 * 1024


def tf_config_environment(cluster: Mapping[str, Sequence[str]]) -> Callable[[str, str], Mapping[str, str]]:
    """Returns the variables of a replica by its role and index, given the addresses (`host:port`) of all by role.

    Addresses are in the order of the indexes. Role names are in lower case. The part that all replicas share is
    formatted once: with N replicas each TF_CONFIG has N addresses.
    """
    shared = json.dumps(dict(sorted(cluster.items())), separators=(",", ":"))

    def environment(role: str, index: str) -> Mapping[str, str]:
        own = f'"task":{{"type":"{role}","index":{index}}}'
        return {TF_CONFIG: f'{{"cluster":{shared},{own},"environment":"cloud"}}'}

    return environment


# Formats the addresses of all nodes once per job instead of once per node. Few jobs are compiled at a time.
@lru_cache(maxsize=4)
def _of_workers(nodes: tuple[str, ...]) -> Callable[[str, str], Mapping[str, str]]:
    return tf_config_environment({"worker": [f"{node}:{TENSORFLOW_PORT}" for node in nodes]})


def _tensorflow_problem(setting: Setting) -> str | None:
    size = len(f"{TF_CONFIG}=") + len(_of_workers(setting.nodes)("worker", str(setting.num_nodes))[TF_CONFIG])
    if size < _MAX_VARIABLE_BYTES:
        return single_process_problem("tensorflow", setting)
    return (
        f"{NUM_NODES}: the addresses of {setting.num_nodes:,} nodes make {TF_CONFIG} {size:,} bytes long, and Linux "
        f"starts no program with a variable of {_MAX_VARIABLE_BYTES:,} bytes or more: use fewer, or a shorter job name"
    )


TENSORFLOW = ByEnvironment(
    name="tensorflow",
    runtime="tensorflow-distributed",
    reserved=frozenset((TF_CONFIG,)),
    variables=lambda setting, index: _of_workers(setting.nodes)("worker", index),
    check=_tensorflow_problem,
    port=TENSORFLOW_PORT,
)


def _jax_variables(setting: Setting, index: str) -> Mapping[str, str]:
    values = {
        "COORDINATOR_ADDRESS": f"{setting.nodes[0]}:{DEFAULT_PORT}",
        "NUM_PROCESSES": str(setting.num_nodes),
        "PROCESS_ID": index,
    }
    return {prefix + name: value for prefix in ("JAX_", "") for name, value in values.items()}


JAX = ByEnvironment(
    name="jax",
    runtime="jax-distributed",
    reserved=frozenset(_jax_variables(_SAMPLE, "")),
    variables=_jax_variables,
    check=partial(single_process_problem, "jax"),
)


def workers_per_node(setting: Setting) -> int:
    return setting.gpus or 1


def _xgboost_variables(setting: Setting, index: str) -> Mapping[str, str]:
    return {
        "DMLC_TRACKER_URI": setting.nodes[0],
        "DMLC_TRACKER_PORT": str(DEFAULT_PORT),
        "DMLC_TASK_ID": index,
        "DMLC_NUM_WORKER": str(setting.num_nodes * workers_per_node(setting)),
    }


def _xgboost_problem(setting: Setting) -> str | None:
    workers = workers_per_node(setting)
    problem = processes_problem(setting)
    if problem is not None or setting.num_proc_per_node in ("", AUTO, GPU, str(workers)):
        return problem
    return (
        f"{NUM_PROC_PER_NODE}: framework xgboost runs one worker per GPU, or one per node without GPUs: "
        f"{workers} here, not {setting.num_proc_per_node!r}: leave it out"
    )


XGBOOST = ByEnvironment(
    name="xgboost",
    runtime="xgboost-distributed",
    reserved=frozenset(_xgboost_variables(_SAMPLE, "")),
    variables=_xgboost_variables,
    check=_xgboost_problem,
)

PLAIN = ByEnvironment(
    name="plain",
    runtime="plain",
    reserved=frozenset(),
    variables=lambda setting, index: {},
    check=partial(single_process_problem, "plain"),
    port=0,
)
