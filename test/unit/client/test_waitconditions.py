"""The names that may be waited for, and which states they mean."""

from __future__ import annotations

import json

import pytest

from helpers.jobserver import a_tfjob, a_trainjob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.kinds import Snapshot, snapshot_decoder
from tfjob_controller.client.waitconditions import (
    NAMES,
    ConditionHasStatus,
    Until,
    check_name,
    condition_text,
    is_met,
    name_of,
)
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB


def seen(phase: str, **conditions: str) -> Snapshot:
    rest = {"reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    listed = [{"type": name, "status": status, **rest} for name, status in conditions.items()]
    return snapshot_decoder(TFJOB)(json.dumps(a_tfjob("train", phase, conditions=listed)).encode())


def test_the_case_of_a_name_does_not_matter() -> None:
    for name in NAMES:
        assert name_of(name.lower()) == name_of(name.upper()) == name
    assert name_of("Runing") is None


@pytest.mark.parametrize(
    ("state", "until", "is_so"),
    [
        (seen("Running", Running="True"), "running", True),
        (seen("Running", Running="False"), "running", False),
        (seen("Done"), "RUNNING", True),
        (seen("Done"), "ended", True),
        (seen("Failed"), "succeeded", False),
        (seen("Creating", Suspended="True"), "suspended", True),
        (seen("Creating", Mine="True"), "Mine", True),
        (seen("Creating", Suspended="False"), ConditionHasStatus("suspended", "False"), True),
        (seen("Creating"), ConditionHasStatus("suspended", "False"), False),
        (seen("Done", Running="False"), ConditionHasStatus("Running", "True"), True),
        (seen("Failed", Running="False"), ConditionHasStatus("Running", "True"), False),
    ],
)
def test_a_state_is_what_its_name_says(state: Snapshot, until: Until, is_so: bool) -> None:
    assert is_met(state, until) is is_so


def test_a_misspelled_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ClientError, match="unknown condition 'Runing': use one of Succeeded, Running, "):
        check_name("Runing")
    for until in ("running", ConditionHasStatus("Mine", "True"), lambda snapshot: True):
        check_name(until)


def test_a_train_job_succeeds_by_either_name() -> None:
    done = snapshot_decoder(TRAINJOB)(json.dumps(a_trainjob("train", "Done")).encode())
    assert is_met(done, "Succeeded")
    assert is_met(done, "Complete")


def test_a_wait_condition_has_a_text() -> None:
    assert condition_text("running") == "Running"
    assert condition_text(ConditionHasStatus("Mine", "False")) == "condition Mine=False"
