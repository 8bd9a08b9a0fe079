"""Tests of chaos.outages: the holder and the age of a Lease."""

from __future__ import annotations

import pytest

from chaos.outages import age_of, holder_of


@pytest.mark.parametrize(
    ("spec", "holder"),
    [({"holderIdentity": "replica-a_12-34"}, "replica-a"), ({"holderIdentity": ""}, ""), ({}, "")],
    ids=["held", "released", "never held"],
)
def test_the_holder_of_a_lease_is_its_host_name(spec: dict[str, str], holder: str) -> None:
    assert holder_of(spec) == holder


def test_the_age_of_a_lease_counts_from_its_last_renewal() -> None:
    assert age_of({"renewTime": "1970-01-01T00:00:10.500000Z"}, 12.0) == 1.5
    assert age_of({}, 12.0) == float("inf")
