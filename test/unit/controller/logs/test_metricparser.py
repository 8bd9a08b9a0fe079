"""The rules of controller/logs/metricparser.py."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_controller.api.trainjob.types import DEFAULT_METRICS
from tfjob_controller.controller.logs import metricparser
from tfjob_controller.controller.logs.metricparser import MAX_LINE_BYTES, LoggedMetric, MetricParser

STAMP = b"2026-03-04T05:06:07.123456789Z "


def scan(*pieces: bytes, names: Sequence[str] = DEFAULT_METRICS) -> dict[str, LoggedMetric]:
    scanner, found = MetricParser(names), {}
    for piece in pieces:
        found |= scanner.feed(piece)
    return found | scanner.end()


def in_pieces(said: bytes, size: int) -> list[bytes]:
    return [said[begin : begin + size] for begin in range(0, len(said), size)]


def values(*pieces: bytes, names: Sequence[str] = DEFAULT_METRICS) -> dict[str, str]:
    return {name: pair.value for name, pair in scan(*pieces, names=names).items()}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        pytest.param(b"loss=0.25", "0.25", id="as it stands"),
        pytest.param(b"step 3: loss = 0.25, lr=1", "0.25", id="blanks around the sign"),
        pytest.param(b"[loss=.5]", "0.5", id="without a whole part"),
        pytest.param(b"loss=5. And so on", "5", id="the end of a sentence"),
        pytest.param(b"loss=-0.50", "-0.50", id="minus, and no digit less than was said"),
        pytest.param(b"loss=1E-05", "1e-5", id="scientific"),
        pytest.param(b"loss=3/10", "3", id="so much of so much"),
        pytest.param(b"loss=nan", "NaN", id="not a number"),
        pytest.param(b"loss=-Infinity", "-Inf", id="an infinity"),
        pytest.param(b"loss=1e999", "+Inf", id="too large for a float"),
        pytest.param(b"\x1b[1;32mloss\x1b[0m=\x1b[31m0.5\x1b[0m", "0.5", id="in colours"),
        pytest.param(b"\xff\x00loss=0.5\x00\xfe", "0.5", id="in binary noise"),
        pytest.param(b"loss=1 loss=x", "1", id="the last that is one"),
    ],
)
def test_a_pair_is_found(said: bytes, value: str) -> None:
    assert values(said + b"\n") == {"loss": value}


@pytest.mark.parametrize(
    "said",
    [
        b"val_loss=1",
        b"--loss=1",
        b"loss_total=1",
        b"loss==1",
        b"loss=",
        b"loss=1.5k",
        b"loss=1.2.3",
        b"loss=1,234",
        b"loss=infinite",
        b"loss=" + b"1" * 100,
        b"loss" + b" " * 100 + b"=1",
        b"LOSS=1",
    ],
    ids=lambda said: said.decode()[:20],
)
def test_what_is_no_pair_is_not_taken_for_one(said: bytes) -> None:
    assert values(said + b"\n") == {}


def test_names_may_have_what_names_have() -> None:
    names = ("val-loss", "train/acc.top_1", "f1")
    assert values(b"val-loss=1 train/acc.top_1=2 f1=3\n", names=names) == dict(zip(names, "123", strict=True))


def test_the_last_of_each_name_counts_wherever_it_stands() -> None:
    assert values(b"loss=1 step=1\nloss=2\nstep=9 loss=3 loss=4\nnothing\n") == {"loss": "4", "step": "9"}


def test_a_number_is_taken_once_its_line_has_ended() -> None:
    scanner = MetricParser(("loss",))
    assert scanner.feed(b"loss=0.1") == {}
    assert scanner.feed(b"25\rloss=0.2")["loss"].value == "0.125"
    assert scanner.end()["loss"].value == "0.2"


@pytest.mark.parametrize("piece_bytes", [1, 100, 10 * MAX_LINE_BYTES])
def test_of_a_line_that_is_too_long_the_beginning_counts(piece_bytes: int) -> None:
    def of(said: bytes) -> dict[str, str]:
        return values(*in_pieces(said, piece_bytes))

    long = b"loss=1 " + b"x" * (MAX_LINE_BYTES - 13)
    assert of(long + b" step=2\n") == {"loss": "1"}
    assert of(long + b" step=2\nstep=3\n") == {"loss": "1", "step": "3"}
    assert of(b"step=2".rjust(MAX_LINE_BYTES) + b"\n") == {"step": "2"}
    assert of(b"step=2".rjust(MAX_LINE_BYTES) + b"3\n") == {}, "it is cut within the number"


@pytest.mark.parametrize(
    ("before", "has_time"),
    [
        pytest.param(b"", True, id="the first line"),
        pytest.param(b"x\n", True, id="a further line"),
        pytest.param(b"x" * 2 * MAX_LINE_BYTES + b"\n", True, id="after one that was too long"),
        pytest.param(b"x\r", False, id="what a program prints after a carriage return"),
        pytest.param(b"x" * 2 * MAX_LINE_BYTES + b"\r", False, id="after a long one and a carriage return"),
    ],
)
def test_a_time_counts_where_a_line_begins(before: bytes, has_time: bool) -> None:
    for piece_bytes in (1, 7, 10 * MAX_LINE_BYTES):
        logged = scan(*in_pieces(before + STAMP + b"loss=1\n", piece_bytes))
        assert (logged["loss"].logged_at is not None) == has_time


def test_a_line_without_an_end_is_not_kept() -> None:
    scanner = MetricParser(DEFAULT_METRICS)
    for _ in range(100):
        scanner.feed(b"x" * 65536)
    assert len(scanner._rest) <= MAX_LINE_BYTES
    assert scanner.feed(b" loss=1\nloss=2\n")["loss"].value == "2"


def test_a_line_says_when_it_was_logged() -> None:
    scanner = MetricParser(DEFAULT_METRICS)
    found = scanner.feed(b"2026-03-04T05:06:07.9+01:00 loss=1\n\n" + STAMP + b"step=2\n" + STAMP + b"incompl")
    assert found["loss"].logged_at is not None
    assert found["loss"].logged_at.isoformat() == "2026-03-04T05:06:07.900000+01:00"
    assert scanner.last_logged_at == found["step"].logged_at


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"loss=1\n", id="without a time"),
        pytest.param(STAMP + b"0%\r100% loss=1\n", id="its line began long ago"),
        pytest.param(b"\n2026-99-99T99:99:99Z loss=1\n", id="no such time"),
    ],
)
def test_or_it_does_not(said: bytes) -> None:
    assert scan(said)["loss"].logged_at is None


def test_a_name_that_is_often_there_without_a_value_is_searched_for_from_the_front(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metricparser, "_TRIES", 2)
    assert values(b"loss=1 loss=2 loss loss loss val_loss=3\n") == {"loss": "2"}
    assert values(b"loss loss loss loss\n") == {}


# Pieces that matter to the scanner, and noise between them.
_said = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(b"loss", b"=", b"1", b"2.5", b"e5", b"nan", b"step=3", b"_", b"x" * 20),
                *(b" ", b"\n", b"\n", b"\r", b"\r\n", b"\x1b[1m", b"\x1b[", STAMP),
            ]
        ),
        st.binary(max_size=3),
    ),
    max_size=60,
).map(b"".join)


@given(said=_said, cuts=st.lists(st.integers(0, 600), max_size=8), limit=st.integers(1, 80))
def test_the_pairs_of_a_log_do_not_depend_on_its_pieces(said: bytes, cuts: list[int], limit: int) -> None:
    ends = sorted({min(cut, len(said)) for cut in cuts})
    pieces = [said[begin:end] for begin, end in zip([0, *ends], [*ends, len(said)], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metricparser, "MAX_LINE_BYTES", limit)
        assert scan(*pieces) == scan(*in_pieces(said, 1)) == scan(said)


@given(said=st.binary(max_size=500))
def test_every_value_is_a_number_for_any_output(said: bytes) -> None:
    for pair in scan(said + b" loss=" + said + b"\nstep=" + said, names=("loss", "step", "a")).values():
        number = float(pair.value)
        assert math.isnan(number) or math.isinf(number) or json.loads(pair.value) == number


@pytest.mark.parametrize(
    ("names", "said"),
    [
        pytest.param(("loss",), b"loss loss =", id="a name without a value"),
        pytest.param(("loss",), b"loss" + b" " * 8 + b"=" + b" " * 8, id="blanks"),
        pytest.param(("loss",), b"loss=" + b"1" * 40 + b"x", id="digits that come to nothing"),
        pytest.param(tuple("a" * length for length in range(1, 21)), b"a", id="names within names"),
        pytest.param(("loss",), b"\x1b[" + b"1;" * 50, id="colours without an end"),
    ],
)
def test_a_hostile_log_is_read_to_its_end(names: tuple[str, ...], said: bytes) -> None:
    """Twice as much takes no more than twice as long; what hangs is found by the test's own limit."""
    line = (said * (MAX_LINE_BYTES // len(said)))[: MAX_LINE_BYTES - 1]
    scanner = MetricParser(names)
    for _ in range(20):
        assert scanner.feed((line + b"\n") * 16) == {}


def test_a_time_beyond_the_last_year_is_invalid() -> None:
    found = MetricParser(["loss"]).feed(b"0001-01-01T00:00:00+23:59 loss=3\n")
    assert found["loss"] == LoggedMetric("3", None)
