"""attack.tenant: what the hostile tenant writes is the worst that is taken, and no less."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lab.attack.tenant import BOMB_VALUES, LARGEST_TEXT, LARGEST_VALUES, large_job, worst_gang
from tfjob_controller.api.gang import GANGS, MAX_ENTRIES, MAX_KINDS, MAX_TERMS
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob


def as_stored(body: dict[str, Any]) -> bytes:
    body["metadata"] |= {"namespace": "hostile", "uid": "uid", "resourceVersion": "1"}
    return msgspec.json.encode(body)


def decoded_job(body: bytes) -> TFJob:
    return TFJOBS.decode(as_stored(msgspec.json.decode(body)))


def test_a_bomb_is_as_large_as_etcd_takes_and_is_not_decoded() -> None:
    body = large_job("bomb", BOMB_VALUES)
    assert 1_100_000 < len(body) < 1_300_000
    assert "10,000" in str(decoded_job(body).invalid) or "bytes" in str(decoded_job(body).invalid)


def test_the_largest_job_is_decoded_and_with_some_more_values_it_would_not_be() -> None:
    assert not decoded_job(large_job("large", LARGEST_VALUES, "y" * LARGEST_TEXT)).invalid
    assert decoded_job(large_job("large", LARGEST_VALUES + 100, "y" * LARGEST_TEXT)).invalid


@pytest.mark.parametrize("cpus", [16, 400, 10_000])
def test_a_gang_has_all_the_terms_and_tolerations_that_are_allowed(cpus: int) -> None:
    body = worst_gang(1, cpus)
    gang = GANGS.decode(as_stored(body))
    assert len(gang.spec.members) == MAX_KINDS
    assert sum(member.count for member in gang.spec.members) == cpus
    for member in body["spec"]["members"]:
        assert len(member["nodeAffinity"]["nodeSelectorTerms"]) == MAX_TERMS
        assert len(member["tolerations"]) == MAX_ENTRIES - 1


def test_no_two_gangs_have_a_filter_in_common() -> None:
    filters = [str(member["nodeAffinity"]) for number in (1, 2) for member in worst_gang(number, 16)["spec"]["members"]]
    assert len(set(filters)) == 2 * MAX_KINDS
