"""What an exit code means."""

from __future__ import annotations

import pytest

from tfjob_controller.api.core import Terminated
from tfjob_controller.trainer.exit_codes import in_words, is_permanent_error, is_retryable_termination_state


@pytest.mark.parametrize(
    ("exit_code", "reason", "retryable", "permanent"),
    [
        pytest.param(0, "Completed", False, False, id="0 is success"),
        pytest.param(1, "Error", False, True, id="1 is permanent"),
        pytest.param(127, "Error", False, True, id="127 is the last permanent one"),
        pytest.param(128, "Error", True, False, id="128 is the first retryable one"),
        pytest.param(137, "Error", True, False, id="SIGKILL is retryable"),
        pytest.param(255, "Error", True, False, id="255 is retryable"),
        pytest.param(137, "OOMKilled", False, True, id="out of memory is permanent although killed by a signal"),
        pytest.param(1, "OOMKilled", False, True, id="out of memory is permanent whatever the code"),
    ],
)
def test_exit_code(exit_code: int, reason: str, retryable: bool, permanent: bool) -> None:
    ended = Terminated(exit_code, reason)
    assert is_retryable_termination_state(ended) is retryable
    assert is_permanent_error(ended) is permanent


def test_words_leave_out_what_says_nothing() -> None:
    assert in_words(Terminated(1, "Error")) == "exit code 1"
    assert in_words(Terminated(137, "OOMKilled")) == "exit code 137 (OOMKilled)"
