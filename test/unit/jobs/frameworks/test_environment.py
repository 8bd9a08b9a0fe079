"""The variables of each framework, letter by letter: the table of the specification."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from helpers.trainsettings import setting_of
from tfjob_controller.jobs.frameworks import environment, mpi
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Setting
from tfjob_controller.jobs.frameworks.registry import BUILT_IN

# Cut to 40 characters; the first one is a digit, which no Service may begin with, and a dot is at the cut.
LONG_NAME = "2026.resnet-50-on-imagenet-with-batch-4.0.96-run-7"
LONG_NODE = "j2026-resnet-50-on-imagenet-with-batch-4-node-a6no-0.j2026-resnet-50-on-imagenet-with-batch-4-a6no"


def torch_variables(first: str, nodes: str, processes: str, rank: str) -> dict[str, str]:
    return {
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": processes,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": "29500",
        "MASTER_ADDR": first,
        "MASTER_PORT": "29500",
        "WORLD_SIZE": nodes,
        "RANK": rank,
    }


@pytest.mark.parametrize(
    ("setting", "index", "expected"),
    [
        pytest.param(
            setting_of(3), 2, torch_variables("mnist-node-a6no-0.mnist-a6no", "3", "1", "2"), id="last of 3 nodes"
        ),
        pytest.param(
            setting_of(12, LONG_NAME, gpus=8), 11, torch_variables(LONG_NODE, "12", "auto", "11"), id="long name, GPUs"
        ),
    ],
)
def test_torch(setting: Setting, index: int, expected: Mapping[str, str]) -> None:
    assert environment.TORCH.environment(setting, NODE, str(index)) == expected


@pytest.mark.parametrize(
    ("wanted", "gpus", "cpus", "processes"),
    [
        pytest.param("", 0, 0.0, "1", id="nobody says anything"),
        pytest.param("auto", 0, 4.0, "4", id="auto without GPUs is CPUs"),
        pytest.param("auto", 0, 0.25, "1", id="auto is at least 1"),
        pytest.param("auto", 2, 16.0, "auto", id="auto with GPUs is torchrun's own count"),
        pytest.param("cpu", 2, 16.0, "16", id="cpu is CPUs, GPUs or none"),
        pytest.param("gpu", 2, 16.0, "gpu", id="gpu is torchrun's own count"),
        pytest.param("3", 8, 2.0, "3", id="a number, whatever there is"),
    ],
)
def test_torchruns_processes_per_node(wanted: str, gpus: int, cpus: float, processes: str) -> None:
    setting = setting_of(2, num_proc_per_node=wanted, gpus=gpus, cpus=cpus)
    assert environment.TORCH.problem(setting) is None
    assert environment.TORCH.environment(setting, NODE, "1")["PET_NPROC_PER_NODE"] == processes


@pytest.mark.parametrize(
    ("accelerators", "processes"),
    [
        (("nvidia.com/gpu",), "auto"),
        (("amd.com/gpu",), "auto"),
        (("nvidia.com/mig-1g.5gb",), "2"),
        (("google.com/tpu",), "2"),
        (("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"), "2"),
    ],
)
def test_torchrun_gets_the_number_of_devices_that_it_does_not_see(
    accelerators: tuple[str, ...], processes: str
) -> None:
    for wanted in ("", "auto", "gpu"):
        setting = setting_of(num_proc_per_node=wanted, gpus=2, cpus=16.0, accelerators=accelerators)
        expected = "gpu" if (wanted, processes) == ("gpu", "auto") else processes
        assert environment.TORCH.environment(setting, NODE, "1")["PET_NPROC_PER_NODE"] == expected


@pytest.mark.parametrize(
    ("setting", "index", "workers"),
    [
        pytest.param(
            setting_of(3, gpus=2), 1, [f"mnist-node-a6no-{each}.mnist-a6no:2222" for each in range(3)], id="3 nodes"
        ),
        pytest.param(setting_of(1, LONG_NAME), 0, [f"{LONG_NODE}:2222"], id="long name"),
    ],
)
def test_tensorflow(setting: Setting, index: int, workers: list[str]) -> None:
    variables = environment.TENSORFLOW.environment(setting, NODE, str(index))
    assert list(variables) == ["TF_CONFIG"]
    config = json.loads(variables["TF_CONFIG"])
    assert config["cluster"] == {"worker": workers}
    assert config["task"] == {"type": "worker", "index": index}


@pytest.mark.parametrize(
    ("setting", "index", "address"),
    [
        pytest.param(setting_of(3, gpus=8), 2, "mnist-node-a6no-0.mnist-a6no:29500", id="3 nodes, GPUs"),
        pytest.param(setting_of(2, LONG_NAME, num_proc_per_node="auto"), 1, f"{LONG_NODE}:29500", id="long name"),
    ],
)
def test_jax(setting: Setting, index: int, address: str) -> None:
    nodes = str(setting.num_nodes)
    assert environment.JAX.environment(setting, NODE, str(index)) == {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": nodes,
        "JAX_PROCESS_ID": str(index),
        "COORDINATOR_ADDRESS": address,
        "NUM_PROCESSES": nodes,
        "PROCESS_ID": str(index),
    }


@pytest.mark.parametrize(
    ("setting", "index", "first", "workers"),
    [
        pytest.param(setting_of(3, cpus=7.5), 2, "mnist-node-a6no-0.mnist-a6no", "3", id="3 nodes: a worker each"),
        pytest.param(setting_of(3, LONG_NAME, gpus=4), 1, LONG_NODE, "12", id="GPUs: a worker for each"),
        pytest.param(
            setting_of(2, gpus=4, num_proc_per_node="gpu"),
            1,
            "mnist-node-a6no-0.mnist-a6no",
            "8",
            id="gpu says the same",
        ),
    ],
)
def test_xgboost(setting: Setting, index: int, first: str, workers: str) -> None:
    assert environment.XGBOOST.problem(setting) is None
    assert environment.XGBOOST.environment(setting, NODE, str(index)) == {
        "DMLC_TRACKER_URI": first,
        "DMLC_TRACKER_PORT": "29500",
        "DMLC_TASK_ID": str(index),
        "DMLC_NUM_WORKER": workers,
    }


@pytest.mark.parametrize(
    ("wanted", "gpus", "cpus", "slots"),
    [
        pytest.param("", 0, 8.0, "1", id="nobody says anything: 1"),
        pytest.param("", 4, 8.0, "4", id="nobody says a number: GPUs"),
        pytest.param("auto", 0, 8.0, "1", id="auto without GPUs"),
        pytest.param("auto", 2, 8.0, "2", id="auto with GPUs"),
        pytest.param("gpu", 2, 8.0, "2", id="gpu"),
        pytest.param("cpu", 2, 7.5, "8", id="cpu, rounded up"),
        pytest.param("3", 2, 8.0, "3", id="a number"),
    ],
)
def test_mpi(wanted: str, gpus: int, cpus: float, slots: str) -> None:
    setting = setting_of(2, num_proc_per_node=wanted, gpus=gpus, cpus=cpus)
    assert mpi.FRAMEWORK.problem(setting) is None
    assert mpi.FRAMEWORK.environment(setting, LAUNCHER, "0") == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": slots,
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    assert mpi.FRAMEWORK.environment(setting, NODE, "0") == {}
    assert mpi.FRAMEWORK.files(setting)["hostfile"] == (
        f"mnist-node-a6no-0.mnist-a6no slots={slots}\nmnist-node-a6no-1.mnist-a6no slots={slots}\n"
    )


def test_the_framework_plain_sets_no_variables() -> None:
    assert environment.PLAIN.environment(setting_of(3, gpus=1), NODE, "2") == {}


def test_without_a_launcher_only_nodes_get_variables() -> None:
    pod_spec = {"containers": [{"name": "node"}]}
    setting = setting_of(2)
    for framework in (each for each in BUILT_IN if not each.has_launcher):
        assert framework.environment(setting, LAUNCHER, "0") == {}
        assert framework.files(setting) == {}
        assert framework.secret(setting) is None
        assert framework.equip(setting, NODE, pod_spec, config_map="c", secret="s") == pod_spec


def test_the_ports_are_those_that_addresses_name() -> None:
    assert {each.name: each.port for each in BUILT_IN} == {
        "torch": 29500,
        "tensorflow": 2222,
        "jax": 29500,
        "xgboost": 29500,
        "mpi": 2222,
        "plain": 0,
    }
