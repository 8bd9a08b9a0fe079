"""The cases that `make record-lives` plays."""

from __future__ import annotations

import itertools
import json

import msgspec

from recordlives.__main__ import batches
from recordlives.manifests import Place, job_type_of, manifests
from recordlives.matrix import DIMENSIONS, NODE_EVENTS, cases, is_possible
from tfjob_controller.api.tfjob.types import TFJob
from tfjob_controller.api.tfjob.validation import validate
from tfjob_controller.api.trainjob.runtime import TrainingRuntime
from tfjob_controller.api.trainjob.types import TrainJob
from tfjob_controller.api.trainjob.validation import validate as validate_trainjob
from tfjob_controller.api.trainjob.validation import validate_runtime, validate_with_runtime

PLACE = Place("life-1", "/tmp/marks")
# A template is put together from parts, each of which depends on one of these; the other values are single fields.
PARTS = {case[name]: case for case in cases() for name in ("role", "composition", "checkpoint")}


def test_each_pair_of_values_that_is_possible_is_in_a_case() -> None:
    possible = (row for row in itertools.product(*DIMENSIONS.values()) if is_possible(row))
    pairs = {pair for row in possible for pair in itertools.combinations(enumerate(row), 2)}
    covered = {pair for case in cases() for pair in itertools.combinations(enumerate(case.values), 2)}
    assert covered == pairs


def test_no_case_is_impossible_and_each_has_a_file_of_its_own() -> None:
    assert all(is_possible(case.values) for case in cases())
    assert len({case.name for case in cases()}) == len(cases())


def test_cases_of_an_event_that_needs_a_node_are_played_together() -> None:
    single, together = batches(cases())
    assert [{case["event"] for case in group} for group in together] == [{event} for event in NODE_EVENTS]
    assert all(len(group) == 1 and group[0]["event"] not in NODE_EVENTS for group in single)
    assert sum(map(len, single + together)) == len(cases())


def test_the_job_of_each_case_is_valid_and_has_the_subject() -> None:
    for case in dict.fromkeys(PARTS.values()):
        *runtimes, job = manifests(case, PLACE)
        body = {**job, "metadata": {**job["metadata"], "namespace": "default", "uid": "a"}}
        if not runtimes:
            assert validate(msgspec.convert(body, TFJob)) is None, case.name
        else:
            runtime, trainjob = msgspec.convert(runtimes[0], TrainingRuntime), msgspec.convert(body, TrainJob)
            problems = validate_runtime(runtime), validate_trainjob(trainjob)
            assert (*problems, validate_with_runtime(trainjob.spec, runtime.spec)) == (None, None, None), case.name
        assert f'"{job_type_of(case)}"' in json.dumps([job, runtimes]), case.name
