"""The rules of hack/generate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from generate import trainjobrules
from generate.__main__ import PAGES, ROOT, outdated, write
from generate.crd import CustomKind, crd_of
from generate.kinds import CLUSTER_TRAINING_RUNTIME, KINDS, TRAINJOB
from generate.kubernetestypes import recorded
from generate.podtemplate import kubernetes_schema, pod_template_schema
from generate.rules import GANG_SPEC_RULES, REPLICA_SPEC_RULES, SPEC_RULES
from generate.schema import Extras, schema_of
from helmchart import chart
from tfjob_controller.api.common.schema import PATTERN_MESSAGE, describe


class Leaf(msgspec.Struct, rename="camel"):
    one_name: Annotated[str, describe("A name.", enum=["a"], default="a")]
    flag: Annotated[bool, describe("A flag.")] = False


class Tree(msgspec.Struct, rename="camel"):
    leaves: Annotated[tuple[Leaf, ...], describe("Leaves.", minItems=1)] = ()
    sizes: Annotated[dict[str, int], describe("Sizes.")] = {}
    count: Annotated[int | None, describe("A count.", minimum=0)] = None
    free: Annotated[dict[str, Any] | None, describe("Anything.")] = None


class Silent(msgspec.Struct):
    field: int = 0


def test_a_type_becomes_its_structural_schema() -> None:
    extras = Extras(of_type={"Leaf": {"x-rule": 1}}, of_field={("Tree", "free"): {"x-open": True}})
    leaf = {
        "type": "object",
        "properties": {
            "flag": {"description": "A flag.", "type": "boolean"},
            "oneName": {"description": "A name.", "type": "string", "enum": ["a"], "default": "a"},
        },
        "required": ["oneName"],
        "x-rule": 1,
    }
    assert schema_of(Tree, extras) == {
        "type": "object",
        "properties": {
            "count": {"description": "A count.", "type": "integer", "minimum": 0},
            "free": {"description": "Anything.", "type": "object", "x-open": True},
            "leaves": {"description": "Leaves.", "type": "array", "items": leaf, "minItems": 1},
            "sizes": {"description": "Sizes.", "type": "object", "additionalProperties": {"type": "integer"}},
        },
    }


def test_a_field_without_description_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Silent\.field has no description"):
        schema_of(Silent, Extras())


OF_KUBERNETES = {frozenset(name.rstrip("*") for name in fields) for fields in recorded().values()}


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of this project's own types: `kubectl explain pod` describes those of Kubernetes."""
    own = {} if frozenset(schema.get("properties", ())) in OF_KUBERNETES else schema.get("properties", {})
    for name, each in own.items():
        yield f"{path}.{name}", each
        yield from fields(each, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
def test_every_field_of_a_crd_has_a_description(kind: CustomKind) -> None:
    root = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # The API server describes metadata itself, and lets nobody else do it.
    assert [path for path, each in fields(root, "") if not each.get("description")] == [".metadata"]


def test_a_string_of_kubernetes_with_few_values_has_these_and_may_be_empty_where_it_may_be_absent() -> None:
    container, requirement = (
        kubernetes_schema(kind)["properties"] for kind in ("Container", "NodeSelectorRequirement")
    )
    assert container["imagePullPolicy"] == {"type": "string", "enum": ["", "Always", "IfNotPresent", "Never"]}
    assert requirement["operator"] == {"type": "string", "enum": ["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]}
    own = pod_template_schema({("PodSpec", "restartPolicy"): {"enum": ["Never"]}})["properties"]["spec"]["properties"]
    assert own["restartPolicy"] == {"type": "string", "enum": ["Never"]}


def test_every_rule_says_what_is_wrong() -> None:
    assert all(
        rule.get("message") or rule.get("messageExpression")
        for rule in [*SPEC_RULES, *REPLICA_SPEC_RULES, *GANG_SPEC_RULES, *trainjobrules.SPEC_RULES]
    )


class Choice(msgspec.Struct, rename="camel"):
    amount: Annotated[int | str | None, describe("A number or a word.")] = None
    parts: Annotated[dict[str, dict[str, Any]], describe("Parts.")] = {}
    owner: Annotated[str, describe("An owner.", maxLength=9, pattern="^a/b$", **{PATTERN_MESSAGE: "must be a/b"})] = ""


def test_numbers_or_words_maps_with_known_keys_and_patterns_in_words_have_schemas_of_their_own() -> None:
    known = {"properties": {"a": {"description": "A.", "type": "object"}}}
    words = {"rule": 'self.matches("^a/b$")', "message": "must be a/b"}
    properties = schema_of(Choice, Extras(of_field={("Choice", "parts"): known}))["properties"]
    assert properties == {
        "amount": {"description": "A number or a word.", "x-kubernetes-int-or-string": True},
        "owner": {
            "description": "An owner.",
            "type": "string",
            "maxLength": 9,
            "x-kubernetes-validations": [words],
        },
        "parts": {"description": "Parts.", "type": "object", **known},
    }


def test_a_kind_for_all_namespaces_without_status_has_a_crd_that_says_so() -> None:
    spec = crd_of(CLUSTER_TRAINING_RUNTIME)["spec"]
    assert (spec["scope"], "subresources" in spec["versions"][0]) == ("Cluster", False)
    assert "status" not in spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    spec = crd_of(TRAINJOB)["spec"]
    assert (spec["scope"], spec["versions"][0]["subresources"].keys()) == ("Namespaced", {"status", "scale"})


def test_generated_files_are_up_to_date() -> None:
    assert outdated(ROOT) == []


def quantities(node: Any) -> Iterator[dict[str, Any]]:
    """Yields the maps of a schema whose values are integers or strings with rules of their own."""
    if isinstance(node, dict):
        values = node.get("additionalProperties")
        if isinstance(values, dict) and {"x-kubernetes-int-or-string", "x-kubernetes-validations"} <= values.keys():
            yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from quantities(each)


def test_kubernetes_1_33_can_afford_the_rules_on_quantities() -> None:
    """It ignores maxLength there. With 16 entries its estimate exceeds the budget by a factor of 1.007 (1.33.13)."""
    found = [each for kind in KINDS for each in quantities(crd_of(kind))]
    assert found
    assert all(each["maxProperties"] <= 15 for each in found)


def test_a_file_that_is_missing_or_differs_is_out_of_date(tmp_path: Path) -> None:
    assert outdated(tmp_path) == [*PAGES, *chart.files(ROOT, {})]
    write(tmp_path)
    assert outdated(tmp_path) == []
    changed = next(iter(PAGES))
    (tmp_path / changed).write_text("# by hand\n", encoding="utf-8")
    assert outdated(tmp_path) == [changed]
