"""Trees as text; test_helm_chart.py renders the whole chart with the real helm."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from helmchart.emit import template_file
from helmchart.tree import INCLUDE, Alternatives, Block, Condition, Manifest, Template

ON, OFF = Condition(".Values.on"), Condition(".Values.a.b", holds=False)


def emitted(tree: Any, *conditions: Condition) -> str:
    header, _, text = template_file("there", [Manifest({"x": tree}, "there", conditions)]).partition("\n")
    assert header == "{{- /* Generated from there by `make generate`. */}}"
    return text


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yes",
        7,
        None,
        {},
        [],
        "two\nlines\n",
        "no\nlast break",
        "\nfirst break",
        "long " * 40 + "end",
        "long  with   spaces" * 20,
        {"a": {"b": [1, {"c": ["d", []], "e": "f: g"}]}},
    ],
)
def test_what_has_no_conditions_is_read_as_it_was(value: Any) -> None:
    assert yaml.safe_load(emitted(value)) == {"x": value}


def test_braces_of_manifests_are_no_templates() -> None:
    assert emitted("{{ $labels.pod }}") == "---\nx: '{{ \"{{\" }} $labels.pod }}'\n"


def test_conditions() -> None:
    tree = {
        "both": Alternatives(((ON, 1), (OFF, [2])), 3),
        "one": Alternatives(((ON, "a"),)),
        "list": ["first", Alternatives(((OFF, {"k": "v"}),))],
    }
    assert emitted(tree, ON, OFF).splitlines() == [
        "{{- if and .Values.on (not .Values.a.b) }}",
        "---",
        "x:",
        "  {{- if .Values.on }}",
        "  both: 1",
        "  {{- else if not .Values.a.b }}",
        "  both:",
        "    - 2",
        "  {{- else }}",
        "  both: 3",
        "  {{- end }}",
        "  {{- if .Values.on }}",
        "  one: a",
        "  {{- end }}",
        "  list:",
        "    - first",
        "    {{- if not .Values.a.b }}",
        "    - k: v",
        "    {{- end }}",
        "{{- end }}",
    ]


def test_what_helm_renders() -> None:
    tree = {
        "scalar": Template("{{ .Values.n | int }}"),
        "string": Template('a "{{ .Release.Namespace }}"', quoted=True),
        "mapping": Block("toYaml .Values.m"),
        "text": Block("toYaml .Values.t", lines=True),
        "list": ["a", Block("toYaml .Values.l")],
        INCLUDE: Block('include "more" .'),
    }
    assert emitted(tree).splitlines()[2:] == [
        "  scalar: {{ .Values.n | int }}",
        '  string: "a \\"{{ .Release.Namespace }}\\""',
        "  mapping:",
        "    {{- toYaml .Values.m | nindent 4 }}",
        "  text: |",
        "    {{- toYaml .Values.t | nindent 4 }}",
        "  list:",
        "    - a",
        "    {{- toYaml .Values.l | nindent 4 }}",
        '  {{- include "more" . | nindent 2 }}',
    ]


def test_an_item_begins_with_what_is_always_there() -> None:
    tree = [{"maybe": Alternatives(((ON, 1),), 2), "always": 3}]
    assert emitted(tree).splitlines()[2] == "  - always: 3"


def test_an_action_is_not_broken_over_lines() -> None:
    text = " ".join(["word"] * 21 + ["{{ .Release.Namespace }}"] * 4 + ["end"])
    lines = emitted(Template(text, quoted=True)).splitlines()[2:]
    assert len(lines) > 1
    assert all(line.count("{{") == line.count("}}") for line in lines)
    assert " ".join(each.strip() for each in lines) == text
