"""The rules of trace files: what is wrong is said with its line and its column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller.simulator.jobs import SimJob, SimulationError, parse_trace, read_trace

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
        pytest.param([], "line 1: the column 'arrival' is missing", id="empty"),
        pytest.param(["arrival,ps"], "line 1: the column 'workers' is missing", id="missing column"),
        pytest.param(
            [HEADER.replace("min", "least")], "line 1: 'least' is not a column; the columns are arrival,", id="wrong"
        ),
        pytest.param([HEADER + ",ps"], "line 1: the column 'ps' appears twice", id="twice"),
        pytest.param([HEADER], "line 2: the trace has no jobs", id="no job"),
        pytest.param([HEADER, "1,1,2,1,2,60"], "line 2: 6 values for 7 columns", id="short line"),
        pytest.param([HEADER, "1,1,2,1,2,60,1,9"], "line 2: 8 values for 7 columns", id="long line"),
        pytest.param([HEADER, "-1,1,2,1,2,60,1"], "line 2: arrival: -1 is negative", id="negative time"),
        pytest.param([HEADER, "soon,1,2,1,2,60,1"], "line 2: arrival: 'soon' is not a number", id="no number"),
        pytest.param([HEADER, "nan,1,2,1,2,60,1"], "line 2: arrival: 'nan' cannot be simulated", id="not a number"),
        pytest.param([HEADER, "1,1,2,1,2,inf,1"], "line 2: work: 'inf' cannot be simulated", id="endless"),
        pytest.param([HEADER, "1,1,2,1,2,0,1"], "line 2: work: must be above zero", id="no work"),
        pytest.param([HEADER, "1,1,2,1,2,-5,1"], "line 2: work: -5 is negative", id="negative work"),
        pytest.param([HEADER, "1,1,2.5,1,2,60,1"], "line 2: workers: '2.5' is not a whole number", id="half a worker"),
        pytest.param([HEADER, "1,-1,2,1,2,60,1"], "line 2: ps: -1 is not from 0 to 10000", id="negative servers"),
        pytest.param([HEADER, "1,1,0,1,2,60,1"], "line 2: workers: 0 is not from 1", id="no worker"),
        pytest.param([HEADER, "1,1,2,0,2,60,1"], "line 2: min: 0 is not from 1", id="no minimum"),
        pytest.param([HEADER, "1,1,2,3,4,60,1"], "line 2: min: 3 is more than workers, 2", id="min above workers"),
        pytest.param([HEADER, "1,1,2,1,1,60,1"], "line 2: max: 1 is less than workers, 2", id="max below workers"),
        pytest.param([HEADER, "1,1,2,1,2,60,0"], "line 2: gpus per worker: 0 is not from 1", id="no GPU"),
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
