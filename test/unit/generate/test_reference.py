"""The reference in docs/ leaves nothing out."""

import re
from types import ModuleType

import pytest

from generate import kindreference, reference
from generate.conditions import TFJOB_CONDITIONS, TRAINJOB_CONDITIONS
from generate.crd import CustomKind, crd_of
from generate.fieldtables import Conditions
from generate.kinds import GANG, TFJOB, TRAINING_RUNTIME, TRAINJOB
from generate.markdown import page, table
from tfjob_controller.api.common import storagevalidation
from tfjob_controller.api.common.storagevalidation import UNKNOWN_TARGET, URI_WITH_LOGIN
from tfjob_controller.api.tfjob import validation
from tfjob_controller.api.trainjob import validation as trainjobvalidation
from tfjob_controller.jobs import reasons
from tfjob_controller.kinds import reasons as trainer
from tfjob_controller.options import DASHBOARD_OPTIONS, EXTENDER_OPTIONS, OPTIONS
from tfjob_controller.simulator.options import SIMULATE_OPTIONS
from tfjob_controller.storage.checkpoints.options import RESTORE_OPTIONS, SAVE_OPTIONS
from tfjob_controller.storage.options import EXPORT_OPTIONS, INITIALIZE_OPTIONS


def first_column(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_every_flag_is_listed_with_its_variable() -> None:
    text = reference.render_flags()
    of_programs = (*OPTIONS, *EXTENDER_OPTIONS, *DASHBOARD_OPTIONS, *SIMULATE_OPTIONS)
    of_all = (*of_programs, *INITIALIZE_OPTIONS, *EXPORT_OPTIONS, *SAVE_OPTIONS, *RESTORE_OPTIONS)
    assert first_column(text) == [option.flag for option in of_all]
    assert all(f"`{option.env}`" in text for option in of_all)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(TFJOB, kindreference.render_tfjob(), id="TFJob"),
        pytest.param(GANG, kindreference.render_gang(), id="Gang"),
        pytest.param(TRAINJOB, kindreference.render_trainjob(), id="TrainJob"),
        pytest.param(TRAINING_RUNTIME, kindreference.render_trainingruntime(), id="TrainingRuntime"),
    ],
)
def test_every_field_of_spec_and_status_is_listed_but_not_those_of_a_pod(kind: CustomKind, text: str) -> None:
    root = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    listed = first_column(text)
    for part in ("spec", "status") if kind.status is not None else ("spec",):
        names = {name.rstrip("[]").removeprefix(f"{part}.") for name in listed if name.startswith(f"{part}.")}
        assert names >= root[part]["properties"].keys()
    assert not [name for name in listed if ".spec.containers" in name or ".env." in name]


def test_a_default_stands_in_its_own_column() -> None:
    text = kindreference.render_tfjob()
    assert "| `spec.cleanPodPolicy` | `All`, `Running`, `None` | Running |" in text
    assert "| `spec.replicaSpecs[].tfPort` | integer, 1 to 65535 | `2222` |" in text
    assert "Default:" not in text


def sentences_of(module: ModuleType) -> list[str]:
    named = [value for name, value in vars(module).items() if name.isupper() and name[0] != "_"]
    return [value for value in named if isinstance(value, str) and " " in value and value[0] != "^"]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param(
            kindreference.render_tfjob(),
            [rule.format("*TYPE*") for rule in sentences_of(validation)] + [UNKNOWN_TARGET, URI_WITH_LOGIN],
            id="TFJob",
        ),
        pytest.param(
            kindreference.render_trainjob() + kindreference.render_trainingruntime(),
            [rule.format("*NAME*") for rule in sentences_of(trainjobvalidation) + sentences_of(storagevalidation)],
            id="TrainJob and runtimes",
        ),
    ],
)
def test_every_rule_is_listed(text: str, rules: list[str]) -> None:
    assert len(rules) > 10
    assert [rule for rule in rules if f"{rule}\n" not in text] == []


def test_every_reason_is_listed_with_its_meaning() -> None:
    text = kindreference.render_tfjob() + kindreference.render_trainjob() + reference.render_events()
    described = {**reasons.DESCRIPTIONS, **trainer.DESCRIPTIONS}
    assert [reason for reason, text_ in described.items() if f"`{reason}`" not in text or text_ not in text] == []


@pytest.mark.parametrize(
    ("kind", "conditions"),
    [
        pytest.param(TFJOB, TFJOB_CONDITIONS, id="TFJob"),
        pytest.param(TRAINJOB, TRAINJOB_CONDITIONS, id="TrainJob"),
    ],
)
def test_the_description_of_conditions_lists_every_type(kind: CustomKind, conditions: Conditions) -> None:
    status = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    types = dict.fromkeys(name for name, _ in conditions)
    assert status["properties"]["conditions"]["description"] == f"{', '.join(types)}: standard conditions."


def test_a_reason_in_no_table_stops_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reasons.DESCRIPTIONS, "Unheard", "Of nobody.")
    with pytest.raises(LookupError, match="does not list Unheard"):
        reference.render_events()


def test_metrics_are_listed_as_they_are_scraped() -> None:
    text = reference.render_metrics()
    of_run, of_extender, of_both = map(first_column, re.split("## (?:tfjob-controller extender|Both)", text))
    assert (of_run, of_extender, of_both) == (sorted(of_run), sorted(of_extender), sorted(of_both))
    assert {"gang_gangs", "gang_bindings_total", "gang_waiting_seconds"} <= set(of_extender)
    listed = [*of_run, *of_extender]
    assert {"tfjob_jobs", "tfjob_created_total", "workqueue_depth", "rest_client_requests_total"} <= set(listed)
    assert not [name for name in listed if name.startswith("process_")]
    assert {"process_resident_memory_bytes", "python_info"} <= set(of_both)
    assert "| `tfjob_jobs` | gauge | `namespace`, `phase`, `state` |" in text


def test_a_table_keeps_its_shape_whatever_is_in_a_cell() -> None:
    assert table(["A", "B"], [["x | y", "two\n  lines"]]) == "| A | B |\n| --- | --- |\n| x \\| y | two lines |"


def test_a_page_says_that_it_is_generated_and_from_what() -> None:
    assert page("T", "src/x.py", "one", "two") == (
        "<!-- Generated from src/x.py by `make generate`. -->\n\n# T\n\none\n\ntwo\n"
    )
