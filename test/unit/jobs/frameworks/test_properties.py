"""What holds for every framework and every job that it takes: its nodes agree who they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.trainsettings import setting_of
from tfjob_controller.jobs.frameworks.base import LAUNCHER, NODE, Framework, Setting
from tfjob_controller.jobs.frameworks.registry import BUILT_IN

every_framework = pytest.mark.parametrize("framework", BUILT_IN, ids=lambda each: each.name)

SETTINGS = st.builds(
    setting_of,
    num_nodes=st.integers(1, 40),
    job_name=st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", fullmatch=True),
    num_proc_per_node=st.sampled_from(["", "auto", "cpu", "gpu", "1", "2", "17"]),
    gpus=st.integers(0, 16),
    cpus=st.floats(0, 512),
)

Environment = Mapping[str, str]


def environments(framework: Framework, setting: Setting) -> list[Environment]:
    return [framework.environment(setting, NODE, str(index)) for index in range(setting.num_nodes)]


def roles(framework: Framework) -> tuple[str, ...]:
    return (NODE, LAUNCHER) if framework.has_launcher else (NODE,)


@every_framework
@given(setting=SETTINGS)
def test_every_job_is_refused_in_one_line_or_described_as_text(framework: Framework, setting: Setting) -> None:
    problem = framework.problem(setting)
    if problem is not None:
        assert problem.startswith("spec.")
        assert "\n" not in problem
        return
    for role in roles(framework):
        environment = framework.environment(setting, role, "0")
        assert set(environment) <= framework.reserved
        assert all(isinstance(value, str) and value for value in environment.values())


def test_everything_reserved_is_set_by_somebody() -> None:
    for framework in BUILT_IN:
        variables = {name for role in roles(framework) for name in framework.environment(setting_of(2), role, "0")}
        assert variables == framework.reserved


def tf_task(environment: Environment) -> str:
    return str(json.loads(environment["TF_CONFIG"])["task"]["index"])


RANKS: list[tuple[str, Callable[[Environment], str]]] = [
    ("torch", lambda environment: environment["PET_NODE_RANK"]),
    ("tensorflow", tf_task),
    ("jax", lambda environment: environment["JAX_PROCESS_ID"]),
    ("xgboost", lambda environment: environment["DMLC_TASK_ID"]),
]
BY_NAME = {each.name: each for each in BUILT_IN}


@pytest.mark.parametrize(("name", "rank"), RANKS)
@given(setting=SETTINGS)
def test_ranks_are_the_numbers_from_zero_each_once(
    name: str, rank: Callable[[Environment], str], setting: Setting
) -> None:
    ranks = [int(rank(environment)) for environment in environments(BY_NAME[name], setting)]
    assert ranks == list(range(setting.num_nodes))


# What differs between two nodes of a job.
OWN = {
    "torch": {"PET_NODE_RANK", "RANK"},
    "jax": {"JAX_PROCESS_ID", "PROCESS_ID"},
    "xgboost": {"DMLC_TASK_ID"},
}


@pytest.mark.parametrize("name", OWN)
@given(setting=SETTINGS)
def test_all_nodes_see_one_cluster(name: str, setting: Setting) -> None:
    seen = [
        {variable: value for variable, value in environment.items() if variable not in OWN[name]}
        for environment in environments(BY_NAME[name], setting)
    ]
    assert all(each == seen[0] for each in seen)
    assert any(setting.nodes[0] in value for value in seen[0].values())


@given(setting=SETTINGS)
def test_all_nodes_see_one_tensorflow_cluster(setting: Setting) -> None:
    seen = [json.loads(each["TF_CONFIG"])["cluster"] for each in environments(BY_NAME["tensorflow"], setting)]
    assert all(each == {"worker": [f"{node}:2222" for node in setting.nodes]} for each in seen)


@given(setting=SETTINGS)
def test_the_hostfile_names_every_node_once_with_its_slots(setting: Setting) -> None:
    mpi = BY_NAME["mpi"]
    slots = mpi.environment(setting, LAUNCHER, "0")["OMPI_MCA_orte_set_default_slots"]
    assert mpi.files(setting)["hostfile"].splitlines() == [f"{node} slots={slots}" for node in setting.nodes]
