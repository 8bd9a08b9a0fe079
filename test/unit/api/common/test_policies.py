"""Policies of jobs that plans name as the API does."""

from __future__ import annotations

from typing import Any

import pytest

from tfjob_controller.api.common.policies import restart_policy_of


@pytest.mark.parametrize(
    ("template", "policy"),
    [
        (None, "OnFailure"),
        ({}, "OnFailure"),
        ({"spec": None}, "OnFailure"),
        ({"spec": {"restartPolicy": "Never"}}, "Never"),
    ],
    ids=str,
)
def test_restart_policy_is_on_failure_where_none_is_given(template: Any, policy: str) -> None:
    assert restart_policy_of(template) == policy
