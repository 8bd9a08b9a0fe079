"""The rules of `api.trainjob.validation` in CEL, which the API server applies when a job is written.

The sentences are the same objects. What only the controller can say: that the annotation and the spec name different
frameworks, that a framework or a runtime is not there, what the runtime leaves out, and that a mount covers the dataset
or the model in a spelling that the list below does not have, such as `/workspace//model`. What is wrong in a pod that
comes out of all that, the API server finds when the pod's Job is created.
"""

from __future__ import annotations

from collections.abc import Iterable

from generate.rules import FORBIDDEN, REQUIRED, Rule, gang_enabled, quoted, rule_of, same
from generate.storagerules import uri_rules
from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.common.schema import LABEL_VALUE, MAX_LABEL_VALUE
from tfjob_controller.api.common.status import MAX_METRIC_NAME, METRIC_NAME
from tfjob_controller.api.common.storage import DATASET_PATH, INPUT_URI, MODEL_PATH, WORKSPACE_PATH
from tfjob_controller.api.common.storagevalidation import UNKNOWN_SOURCE
from tfjob_controller.api.tfjob.validation import GANG_FIXED
from tfjob_controller.api.trainjob import validation as messages
from tfjob_controller.api.trainjob.types import MAX_PROCS, PROC_WORDS, ROLES, TORCH


def _listed(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(quoted, texts)) + "]"


# Of one variable.
ENV_RULES: list[Rule] = [
    rule_of(f"!(self.name in {_listed(messages.RESERVED_ENV)})", messages.RESERVED, "self.name", reason=FORBIDDEN)
]

PROCS_RULES: list[Rule] = [
    rule_of(f"type(self) == int ? self >= 1 && self <= {MAX_PROCS} : self in {_listed(PROC_WORDS)}", messages.BAD_PROCS)
]
QUANTITY_RULES: list[Rule] = [
    rule_of("type(self) == int ? self >= 0 : isQuantity(self) && !self.startsWith('-')", messages.BAD_QUANTITY)
]
LABEL_RULES: list[Rule] = [
    rule_of(f"size(self) <= {MAX_LABEL_VALUE} && self.matches({quoted(LABEL_VALUE)})", messages.LABEL_WORDS)
]
METRIC_RULES: list[Rule] = [
    rule_of(f"size(self) <= {MAX_METRIC_NAME} && self.matches({quoted(METRIC_NAME)})", messages.BAD_METRIC)
]


MODEL_RULES: list[Rule] = [
    *uri_rules("config", INPUT_URI, UNKNOWN_SOURCE),
    *uri_rules("storageUri", INPUT_URI, UNKNOWN_SOURCE),
    rule_of("has(self.config) || has(self.storageUri)", messages.MODEL_MISSING, reason=REQUIRED),
    rule_of("!has(self.config) || !has(self.storageUri) || self.config == self.storageUri", messages.MODEL_TWICE),
]


def _covers(containers: str, path: str) -> str:
    paths = _listed(f"{folder}{end}" for folder in (WORKSPACE_PATH, path) for end in ("", "/"))
    mounted = f"has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath in {paths})"
    return f"has(o.{containers}) && o.{containers}.exists(c, c.name in {_listed(ROLES)} && {mounted})"


def _uncovered(setting: str, path: str, message: str) -> Rule:
    """No volume of an override where a setting of the job puts something."""
    either = f"({_covers('containers', path)}) || ({_covers('initContainers', path)})"
    return rule_of(
        f"!has(self.{setting}) || !has(self.podSpecOverrides) || !self.podSpecOverrides.exists(o, {either})",
        message,
        at=".podSpecOverrides",
        reason=FORBIDDEN,
    )


_ELASTIC = "has(self.elasticPolicy)"
ELASTIC_RULES: list[Rule] = [rule_of("self.minNodes <= self.maxNodes", messages.ELASTIC_BOUNDS)]

SPEC_RULES: list[Rule] = [
    rule_of(
        "!has(self.numNodes) || !has(self.trainer) || !has(self.trainer.numNodes) || "
        "self.numNodes == self.trainer.numNodes",
        messages.NODES_TWICE,
    ),
    rule_of(
        f"!{_ELASTIC} || !has(self.numNodes) || self.elasticPolicy.minNodes > self.elasticPolicy.maxNodes || "
        "(self.elasticPolicy.minNodes <= self.numNodes && self.numNodes <= self.elasticPolicy.maxNodes)",
        messages.NODES_OUTSIDE,
    ),
    rule_of(f"!{_ELASTIC} || !has(self.trainer) || !has(self.trainer.numNodes)", messages.ELASTIC_ALIAS),
    rule_of(
        f"!{_ELASTIC} || !has(self.framework) || self.framework in ['', {quoted(TORCH)}]", messages.ELASTIC_TORCH_ONLY
    ),
    _uncovered("datasetConfig", DATASET_PATH, messages.DATASET_COVERED),
    _uncovered("modelConfig", MODEL_PATH, messages.MODEL_COVERED),
    rule_of(same("runtimeRef"), messages.RUNTIME_REF_FIXED, at=".runtimeRef", reason=FORBIDDEN),
    rule_of(same("managedBy"), MANAGED_BY_FIXED, at=".managedBy", reason=FORBIDDEN),
]


def _once_started(rule: str, message: str, at: str) -> Rule:
    """Returns a rule on changes of a job whose status has a phase."""
    unstarted = "!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase == ''"
    return rule_of(f"{unstarted} || ({rule})", message, at=at, reason=FORBIDDEN)


def _bounds(spec: str) -> str:
    field = f"{spec}.elasticPolicy"
    return f"(has({field}) ? [{field}.minNodes, {field}.maxNodes] : [])"


def _fixed(name: str, unless: str = "") -> Rule:
    rule = same(name, "self.spec", "oldSelf.spec")
    return _once_started(f"{unless} || ({rule})" if unless else rule, messages.STARTED_FIXED, f".spec.{name}")


# Of the whole object, since they ask the status too.
ROOT_RULES: list[Rule] = [
    _once_started(
        f"{_bounds('self.spec')} == {_bounds('oldSelf.spec')}", messages.ELASTIC_FIXED, ".spec.elasticPolicy"
    ),
    _fixed(messages.NUM_NODES[0], "has(self.spec.elasticPolicy)"),
    *(_fixed(name) for name, _ in messages.FIXED_FIELDS),
    _once_started(f"{gang_enabled('self.spec')} == {gang_enabled('oldSelf.spec')}", GANG_FIXED, ".spec.gang"),
]


# Of the templates of a runtime.
TEMPLATE_RULES: list[Rule] = [
    rule_of(f"self.all(role, role in {_listed(ROLES)})", messages.UNKNOWN_ROLE),
    *(
        rule_of(
            f"!({quoted(role)} in self) || (has(self[{quoted(role)}].spec) && has(self[{quoted(role)}].spec.containers)"
            f" && self[{quoted(role)}].spec.containers.exists(c, c.name == {quoted(role)}))",
            messages.WORKER_MISSING.format(role),
            reason=REQUIRED,
        )
        for role in ROLES
    ),
]
