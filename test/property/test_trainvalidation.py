"""No TrainJob and no runtime that an API server could hand out stops the controller."""

import json
from typing import Any

from hypothesis import given, settings

from helpers.anyspec import anything
from helpers.anytrainspec import runtime_specs, train_specs
from helpers.examples import examples
from tfjob_controller.api.trainjob import defaults as defaults
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.api.trainjob.validation import validate, validate_change, validate_runtime, validate_with_runtime


def encoded(spec: Any, status: Any = None) -> bytes:
    return json.dumps({"metadata": {"name": "a"}, "spec": spec, "status": status}).encode()


@settings(max_examples=examples(300))
@given(spec=train_specs, status=anything, its=runtime_specs)
def test_any_job_and_runtime_are_read_and_judged(spec: Any, status: Any, its: Any) -> None:
    job, runtime = TRAINJOBS.decode(encoded(spec, status)), TRAINING_RUNTIMES.decode(encoded(its))
    assert validate_change(job, job) is None
    if validate(job) is None and validate_runtime(runtime) is None:
        is_whole = validate_with_runtime(job.spec, runtime.spec) is None
        has_all = bool(defaults.num_nodes_of(job.spec, runtime.spec) and defaults.image_of(job.spec, runtime.spec))
        assert is_whole is has_all


@given(spec=train_specs, other=train_specs)
def test_no_change_of_any_job_fails(spec: Any, other: Any) -> None:
    started = TRAINJOBS.decode(encoded(spec, {"phase": "Running"}))
    found = validate_change(started, TRAINJOBS.decode(encoded(other)))
    assert found is None or ": " in found
