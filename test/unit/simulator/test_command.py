"""`tfjob-controller simulate` as a shell sees it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tfjob_controller import cli
from tfjob_controller.simulator.model import OF_ONE_TENANT, OF_SEVERAL

SMALL = ("simulate", "--jobs=6", "--seeds=2", "--parallel=1", "--nodes=2")
HEADER = "arrival,ps,workers,min,max,work,gpus per worker"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Standard output and standard error of a command that must succeed."""
    code = cli.main(list(arguments))
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out, said.err


def test_the_table_names_every_policy_and_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, *SMALL)
    assert [name for name in OF_ONE_TENANT if f" {name} " not in out] == []
    assert "2x4-30s: 8 GPUs, 2 runs of each" in out
    assert "--plots=FOLDER" in err
    assert "docs/simulator.md" in err


def test_json_has_every_measure_and_what_differs_from_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = json.loads(run(capsys, *SMALL, "-o", "json", "--policies=default,gang")[0])
    assert (cell["name"], cell["nodes"], cell["gpusPerNode"]) == ("2x4-30s", 2, 4)
    assert list(cell["policies"]) == ["default", "gang"]
    gang = cell["policies"]["gang"]
    assert gang["completion_mean"]["mean"] > 0
    assert gang["completion_mean"]["ci95"] >= 0
    assert "waiting_p95" in gang["differenceFromDefault"]
    assert gang["changeFromDefault"]["makespan"]["mean"] > -1
    assert "deadlock" not in gang["changeFromDefault"], "there was none: nothing is a share of zero"
    assert "differenceFromDefault" not in cell["policies"]["default"]


def test_several_processes_say_what_one_says(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [each for each in SMALL if not each.startswith("--parallel")] + ["--output=json", "--policies=gang"]
    alone = run(capsys, *arguments, "--parallel=1")[0]
    assert run(capsys, *arguments, "--parallel=2")[0] == alone


def test_a_trace_says_every_decision_with_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "two.csv"
    trace.write_text(f"{HEADER}\n0,0,4,2,4,400,1\n10,0,2,2,2,100,1\n")
    flags = (
        "--nodes=1",
        "--doubling-factor=1",
        "--policies=gang+locality+autoscaling",
        "-o=json",
        "--pod-interval=1ms",
    )
    (cell,) = json.loads(run(capsys, "simulate", f"--trace={trace}", *flags)[0])
    decisions: list[dict[str, Any]] = cell["policies"]["gang+locality+autoscaling"]["decisions"]
    assert cell["name"] == "two"
    assert [(each["what"], each["job"], each["workers"]) for each in decisions[:3]] == [
        ("start", "job-00001", 4),
        ("resize", "job-00001", 2),
        ("start", "job-00002", 2),
    ]
    assert [each["seconds"] for each in decisions[:3]] == [0.0, 40.0, 40.0]
    assert decisions[0]["nodes"] == ["node-1"]
    assert decisions[1]["reason"]


def test_plots_are_png_and_svg_and_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = (*SMALL, "--policies=default,gang+locality+autoscaling")
    _, err = run(capsys, *flags, f"--plots={tmp_path / 'one'}")
    run(capsys, *flags, f"--plots={tmp_path / 'two'}")
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {f"2x4-30s-{what}.{kind}" for what in ("times", "utilisation", "gantt") for kind in ("png", "svg")}
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in names)
    assert "6 plots in" in err


def test_a_large_cluster_has_no_picture_of_every_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *SMALL[:-1], "--nodes=65", "--policies=gang", f"--plots={tmp_path}")
    assert {path.stem for path in tmp_path.iterdir()} == {"65x4-30s-times", "65x4-30s-utilisation"}


def test_the_grid_is_that_of_the_documented_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("simulate", "--grid", "--jobs=3", "--seeds=2", "--parallel=1", "--policies=default,gang")
    out, _ = run(capsys, *flags)
    cells = [f"{nodes}x4-{mean}s" for nodes in (2, 4, 8) for mean in (15, 30, 60, 120)]
    assert [name for name in cells if f"{name}: " not in out] == []
    assert "completion, mean: change from default" in out
    found = json.loads(run(capsys, *flags, "-o=json")[0])
    assert [cell["name"] for cell in found] == cells


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--policies=dragon"], "--policies must be all, shared, or some of default,", id="unknown policy"),
        pytest.param(["--spread-factor=1.5"], "--spread-factor must be a number above 0, and 1 at most", id="too fast"),
        pytest.param(["--parallel=0"], "--parallel must be auto or a whole number", id="no process"),
        pytest.param(["--grid", "--trace=x.csv"], "--grid and --trace cannot be combined", id="grid and trace"),
        pytest.param(["--trace=/nowhere.csv"], "cannot read the trace /nowhere.csv", id="no trace"),
        pytest.param(["--nodes=1", "--jobs=50"], "8 workers of 1 GPUs", id="job too large"),
        pytest.param(["--plots=/proc/nowhere"], "cannot create the folder /proc/nowhere", id="no folder"),
    ],
)
def test_what_cannot_be_simulated_is_one_line_and_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["simulate", "--parallel=1", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("tfjob-controller: ")
    assert error.count("\n") == 1


def test_the_sample_trace_in_the_docs_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "simulator.md").read_text()
    begin = page.index(HEADER)
    lines = page[begin : page.index("\n\n", begin)].splitlines()
    trace = tmp_path / "sample.csv"
    trace.write_text("\n".join(line.strip() for line in lines) + "\n")
    assert len(list(csv.reader(trace.open()))) > 2
    out, _ = run(capsys, "simulate", f"--trace={trace}")
    assert "sample: 16 GPUs, 1 run of each" in out


def test_on_a_shared_cluster_there_is_a_table_of_what_each_tenant_gets(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, *SMALL, "--jobs=20", "--shared", "--policies=shared")
    assert [name for name in OF_SEVERAL if out.count(f" {name} ") != 2] == []
    for words in ("flood: waiting mean", "team: waiting mean", "team, urgent: waiting mean", "preemptions", "wasted"):
        assert words in " ".join(out.split())
