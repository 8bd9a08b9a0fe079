"""Quantities are exact."""

import pytest

from tfjob_controller.api.common.quantity import (
    MAX_QUANTITY,
    amount_from,
    is_counted,
    milli_of,
    quantity_of,
    rounded_quantity,
)


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("0", 0),
        ("1", 1000),
        ("+2", 2000),
        ("1500m", 1500),
        (".5", 500),
        ("1Ki", 1024_000),
        ("1.5Gi", 3 * 2**29 * 1000),
        ("2k", 2_000_000),
        ("2E3", 2_000_000),
        ("2E", 2 * 10**21),
        ("15e-1", 1500),
        ("-1", -1000),
        ("0.0001", 1),
        ("-0.0001", -1),
        ("1n", 1),
        ("1e999999", MAX_QUANTITY * 1000),
        ("16Ei", MAX_QUANTITY * 1000),
        ("100000000000000000000000000001m", MAX_QUANTITY * 1000),
    ],
)
def test_a_quantity_is_read_in_thousandths_rounded_away_from_zero(text: str, milli: int) -> None:
    assert milli_of(text) == milli


@pytest.mark.parametrize("text", ["", " 1", "1ki", "1e", "1mm", "0x1", "1,5"])
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        milli_of(text)


@pytest.mark.parametrize(
    ("resource", "text", "amount", "written"),
    [
        ("cpu", "1500m", 1500, "1500m"),
        ("cpu", "2000m", 2000, "2"),
        ("cpu", "0.1m", 1, "1m"),
        ("memory", "1.5Gi", 3 * 2**29, "1536Mi"),
        ("memory", "100m", 1, "1"),
        ("memory", "0", 0, "0"),
        ("nvidia.com/gpu", "2048", 2048, "2048"),
    ],
)
def test_amounts_go_there_and_back(resource: str, text: str, amount: int, written: str) -> None:
    assert amount_from(resource, text) == amount
    assert quantity_of(resource, amount) == written
    assert amount_from(resource, written) == amount


@pytest.mark.parametrize(
    ("resource", "counted"),
    [("cpu", True), ("nvidia.com/gpu", True), ("hugepages-1Gi", True), ("storage", False), ("pods", False)],
)
def test_plain_names_are_counted_only_if_they_are_known(resource: str, counted: bool) -> None:
    assert is_counted(resource) is counted


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 250, "0.25"),
        ("cpu", 1100, "1.1"),
        ("cpu", 100_000, "100"),
        ("cpu", 12_345_678, "12345.68"),
        ("memory", 300 * 2**20 + 5, "300Mi"),
        ("memory", 2**30, "1.0Gi"),
        ("hugepages-2Mi", 3 * 2**29, "1.5Gi"),
        ("nvidia.com/gpu", 1234, "1234"),
    ],
)
def test_people_see_amounts_rounded(resource: str, amount: int, text: str) -> None:
    assert rounded_quantity(resource, amount) == text
