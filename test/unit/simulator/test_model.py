"""The rules of jobs: how fast they work, and how random ones are made."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from tfjob_controller.simulator.cluster import gang_of
from tfjob_controller.simulator.model import (
    TRAINJOB,
    RandomWorkload,
    SimJob,
    SimulationError,
    SpeedModel,
    parse_trace,
    read_trace,
)


@pytest.mark.parametrize(
    ("workers", "nodes", "speed"),
    [
        pytest.param(1, 1, 1.0, id="one worker is the unit"),
        pytest.param(2, 1, 1.8, id="two keep 90 % of their worth"),
        pytest.param(8, 2, 0.75 * 8 * 0.729, id="on several nodes three quarters of that"),
        pytest.param(3, 1, 3 * 0.9**1.584962500721156, id="between powers of two"),
        pytest.param(0, 1, 0.0, id="nobody does nothing"),
    ],
)
def test_speed_is_that_of_the_documented_model(workers: int, nodes: int, speed: float) -> None:
    assert SpeedModel().speed(workers, nodes) == pytest.approx(speed)


def test_a_seed_says_everything() -> None:
    assert RandomWorkload().generate(7) == RandomWorkload().generate(7)
    assert RandomWorkload().generate(7) != RandomWorkload().generate(8)


def test_random_jobs_have_the_requested_shape() -> None:
    workload = RandomWorkload(jobs=4000, mean_arrival_seconds=30.0, work_median=120.0, work_sigma=0.8)
    jobs = workload.generate(1)
    assert [job.name for job in jobs] == sorted({job.name for job in jobs})
    arrivals = [job.arrival_ms for job in jobs]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] / 1000 / len(jobs) == pytest.approx(30.0, rel=0.1)
    assert statistics.median(job.work / job.workers for job in jobs) == pytest.approx(120.0, rel=0.1)
    assert {(job.workers, job.min_workers, job.max_workers) for job in jobs} == {
        (1, 1, 2),
        (2, 1, 4),
        (4, 2, 8),
        (8, 4, 16),
    }
    assert {(job.servers, job.gpus) for job in jobs} == {(1, 1)}


def test_random_trainjobs_are_the_same_jobs_without_servers() -> None:
    """Their nodes are removed in descending index order, as the gang scheduler's rules demand of their Gangs."""
    tfjobs, trainjobs = RandomWorkload().generate(3), RandomWorkload(kind=TRAINJOB).generate(3)
    assert trainjobs == [replace(job, servers=0, is_indexed=True) for job in tfjobs]
    for job in trainjobs:
        assert [member.indexed for member in gang_of(job, elastic=True).spec.members] == [True]
    assert not any(member.indexed for job in tfjobs for member in gang_of(job, elastic=True).spec.members)


HEADER = "arrival,ps,workers,min,max,work,gpus per worker"


def test_a_line_is_a_job_and_jobs_come_by_arrival() -> None:
    jobs = parse_trace([HEADER, "12.5,1,4,2,8,600,2", "", "0,0,1,1,1,30.25,1"])
    assert jobs == [
        SimJob("job-00002", 0, 0, 1, 1, 1, 30.25, 1),
        SimJob("job-00001", 12_500, 1, 4, 2, 8, 600.0, 2),
    ]


def test_columns_may_stand_in_any_order_and_have_spaces() -> None:
    text = ["work, arrival , max,min,workers,ps,gpus per worker", "60, 1 ,2,1,2,1,1"]
    assert parse_trace(text) == [SimJob("job-00001", 1000, 1, 2, 1, 2, 60.0, 1)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(["arrival,ps"], "line 1: the column 'workers' is missing", id="missing column"),
        pytest.param(
            [HEADER.replace("min", "least")], "line 1: 'least' is not a column; the columns are arrival,", id="wrong"
        ),
        pytest.param([HEADER + ",ps"], "line 1: the column 'ps' appears twice", id="twice"),
        pytest.param([HEADER], "line 2: the trace has no jobs", id="no job"),
        pytest.param([HEADER, "1,1,2,1,2,60"], "line 2: 6 values for 7 columns", id="short line"),
        pytest.param([HEADER, "-1,1,2,1,2,60,1"], "line 2: arrival: -1 is negative", id="negative time"),
        pytest.param([HEADER, "nan,1,2,1,2,60,1"], "line 2: arrival: 'nan' cannot be simulated", id="not a number"),
        pytest.param([HEADER, "1,1,2,1,2,0,1"], "line 2: work: must be above zero", id="no work"),
        pytest.param([HEADER, "1,1,2.5,1,2,60,1"], "line 2: workers: '2.5' is not a whole number", id="half a worker"),
        pytest.param([HEADER, "1,-1,2,1,2,60,1"], "line 2: ps: -1 is not from 0 to 10000", id="negative servers"),
        pytest.param([HEADER, "1,1,2,3,4,60,1"], "line 2: min: 3 is more than workers, 2", id="min above workers"),
        pytest.param([HEADER, "1,1,2,1,1,60,1"], "line 2: max: 1 is less than workers, 2", id="max below workers"),
        pytest.param(
            [HEADER, "1,1,2,1,2,60,1", "", "2,1,2,1,2,60,1", "x,1,2,1,2,60,1"], "line 5: arrival: 'x'", id="line 5"
        ),
        pytest.param([HEADER, '"1,1,2', "1,1,2,1,2,60,1"], "line 3: 1 values for 7 columns", id="open quote"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_column(lines: list[str], words: str) -> None:
    with pytest.raises(SimulationError) as refused:
        parse_trace(lines)
    assert words in str(refused.value)


def test_the_jobs_of_a_trace_can_be_trainjobs_unless_they_have_servers() -> None:
    (job,) = parse_trace([HEADER, "0,0,2,1,4,60,1"], TRAINJOB)
    assert job.is_indexed
    with pytest.raises(SimulationError, match="line 2: ps: 1 is not 0: a TrainJob has no parameter servers"):
        parse_trace([HEADER, "0,1,2,1,4,60,1"], TRAINJOB)


def test_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER}\n-1,1,2,1,2,60,1\n")
    with pytest.raises(SimulationError, match=r"jobs\.csv: line 2: arrival: -1 is negative"):
        read_trace(str(path))


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"], ids=["no file", "no text"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SimulationError, match=r"cannot read the trace .*jobs\.csv"):
        read_trace(str(path))


def test_a_file_may_come_from_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n1,1,2,1,2,60,1\r\n".encode())
    assert [job.arrival_ms for job in read_trace(str(path))] == [1000]
