"""What the simulator proves is what runs: the rules that it goes by are those of `scheduling`, and it has no others."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from helpers.simulations import a_job, simulated
from tfjob_controller import simulator
from tfjob_controller.scheduling import decisions, placement
from tfjob_controller.scheduling.autoscaling import autoscaler

SOURCES = sorted(Path(str(simulator.__file__)).parent.glob("*.py"))
JOBS = [a_job("a", 0, 4, 400, servers=1, least=2, most=4), a_job("b", 10, 2, 100)]

# Code of the live program that must have run, by policy.
ADMISSION = {decisions.queue_order.__code__, decisions.AdmissionDecider.decide.__code__, placement.place.__code__}
SCALING = {autoscaler.plan_resizes.__code__, placement.find_member_node.__code__}


@contextmanager
def seen_running() -> Iterator[set[object]]:
    """The code of all functions that are called meanwhile."""
    seen: set[object] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("gang+locality", ADMISSION, id="queue and placement"),
        pytest.param("gang+locality+autoscaling", ADMISSION | SCALING, id="scaling too"),
    ],
)
def test_the_live_rules_decide(policy: str, expected: set[object]) -> None:
    with seen_running() as seen:
        simulated(JOBS, 1, 4, policy)
    assert expected <= seen


def test_without_autoscaling_its_rules_are_not_called() -> None:
    with seen_running() as seen:
        simulated(JOBS, 1, 4, "gang+locality")
    assert not SCALING & seen


def test_gangs_are_started_and_resized_by_nothing_but_the_answers_of_the_rules() -> None:
    """Nothing in the simulator reads node infos or chooses between nodes, except the baseline's function for that."""
    choosing = {
        (path.name, name)
        for path in SOURCES
        for name, part in parts_of(path)
        if names_in(part) & {"candidates", "free", "capacity", "node_infos"}
    }
    assert choosing == {("podscheduling.py", "select_node")}


def parts_of(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """The classes and functions of a module, by name, and each other statement of it."""
    for part in ast.parse(path.read_text()).body:
        yield part.name if isinstance(part, ast.ClassDef | ast.FunctionDef) else "", part


def names_in(part: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)}
