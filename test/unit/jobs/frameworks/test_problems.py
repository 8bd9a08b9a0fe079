"""What a framework refuses, and in which words: each names the field and the remedy."""

from __future__ import annotations

import subprocess
from bisect import bisect_left

import pytest

from helpers.trainsettings import setting_of
from tfjob_controller.api.trainjob.types import MAX_NODES
from tfjob_controller.jobs.frameworks.base import NODE, Framework, Setting
from tfjob_controller.jobs.frameworks.registry import BUILT_IN, frameworks

SEVERAL = ("torch", "mpi")
SINGLE = ("tensorflow", "jax", "plain")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        *(("torch", wanted) for wanted in ("0", "01", "1025", "9" * 5000, "two", "٣", "2\n")),
        *(("mpi", "two"), ("xgboost", "two")),
    ],
)
def test_what_is_no_number_of_processes_is_refused(name: str, wanted: str) -> None:
    problem = frameworks()[name].problem(setting_of(num_proc_per_node=wanted, gpus=1))
    assert problem is not None
    assert problem.startswith("spec.trainer.numProcPerNode: must be auto, cpu, gpu or a number from 1 to 1024")
    assert len(problem) < 200


@pytest.mark.parametrize("name", [*SEVERAL, "xgboost"])
def test_the_most_processes_are_those_of_the_crd(name: str) -> None:
    problem = frameworks()[name].problem(setting_of(num_proc_per_node="1024", gpus=1024))
    assert problem is None


@pytest.mark.parametrize("name", [*SEVERAL, "xgboost"])
def test_gpu_needs_gpus(name: str) -> None:
    problem = frameworks()[name].problem(setting_of(num_proc_per_node="gpu"))
    assert problem == (
        "spec.trainer.numProcPerNode: is gpu, but a node requests no GPU: "
        "set GPUs in spec.trainer.resourcesPerNode.limits, or use auto, cpu or a number"
    )


@pytest.mark.parametrize(
    ("name", "wanted"), [*((name, "2") for name in SINGLE), *(("plain", wanted) for wanted in ("cpu", "zero"))]
)
def test_one_process_per_node_is_not_two(name: str, wanted: str) -> None:
    problem = frameworks()[name].problem(setting_of(num_proc_per_node=wanted, gpus=2))
    assert problem == (
        f"spec.trainer.numProcPerNode: framework {name} runs one process per node, not {wanted!r}: "
        "leave it out, and raise spec.numNodes for more"
    )


@pytest.mark.parametrize("name", ["mnist", "n" * 40])
def test_tensorflow_has_as_many_nodes_as_one_variable_can_list(name: str) -> None:
    tensorflow = frameworks()["tensorflow"]
    counts = range(1, MAX_NODES + 1)
    count = counts[bisect_left(counts, True, key=lambda count: bool(tensorflow.problem(setting_of(count, name))))]
    problem = tensorflow.problem(setting_of(count, name)) or ""
    assert problem.startswith(f"spec.numNodes: the addresses of {count:,} nodes make TF_CONFIG 131,")
    environments = [
        {**tensorflow.environment(setting_of(number, name), NODE, str(number - 1))} for number in (count - 1, count + 1)
    ]
    subprocess.run(["/bin/true"], env=environments[0], check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env=environments[1], check=True)


@pytest.mark.parametrize("wanted", ["3", "cpu"])
def test_xgboost_runs_a_worker_per_gpu(wanted: str) -> None:
    problem = frameworks()["xgboost"].problem(setting_of(num_proc_per_node=wanted, gpus=4))
    assert problem == (
        "spec.trainer.numProcPerNode: framework xgboost runs one worker per GPU, or one per node without GPUs: "
        f"4 here, not {wanted!r}: leave it out"
    )


@pytest.mark.parametrize("framework", BUILT_IN, ids=lambda each: each.name)
def test_what_says_one_process_is_nobodys_problem(framework: Framework) -> None:
    for wanted in ("", "auto", "1"):
        assert framework.problem(setting_of(2, num_proc_per_node=wanted)) is None
    # Neither is a job whose nodes have no names yet.
    assert framework.problem(Setting("mnist", 4, ())) is None
