"""Who leads, by what the Lease says."""

from __future__ import annotations

import pytest

from chaos.outages import age_of, holder_of


@pytest.mark.parametrize(
    ("spec", "holder"),
    [({"holderIdentity": "replica-a_12-34"}, "replica-a"), ({"holderIdentity": ""}, ""), ({}, "")],
    ids=["held", "given back", "never held"],
)
def test_a_leases_holder_begins_with_its_machines_name(spec: dict[str, str], holder: str) -> None:
    assert holder_of(spec) == holder


def test_a_leases_age_is_since_it_was_renewed() -> None:
    assert age_of({"renewTime": "1970-01-01T00:00:10.500000Z"}, 12.0) == 1.5
    assert age_of({}, 12.0) == float("inf")
