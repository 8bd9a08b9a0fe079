"""The rules of `api.tfjob.validation` in CEL, which the API server applies when a job is written.

The messages are the same objects. Costs: the API server rejects a CRD whose rules could take too long on the largest
object that fits the schema. That is why replicaSpecs has maxItems, and why no message turns a number into text.
"""

from __future__ import annotations

import json
from typing import Any

from tfjob_controller.api import gang
from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.common.policies import IN_PLACE
from tfjob_controller.api.tfjob import progress
from tfjob_controller.api.tfjob import validation as messages
from tfjob_controller.api.tfjob.types import CONTAINER_NAME, MASTER, PS, WORKER

Rule = dict[str, Any]

REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"


def rule_of(rule: str, message: str, *arguments: str, at: str = "", reason: str = "") -> Rule:
    """Returns a rule; `arguments` are CEL expressions for the `{}` in the message."""
    shown = {"messageExpression": _expression(message, arguments)} if arguments else {"message": message}
    where = {"fieldPath": at} if at else {}
    return {"rule": rule, **shown, **where, **({"reason": reason} if reason else {})}


def _expression(message: str, arguments: tuple[str, ...]) -> str:
    """Returns the message as a CEL expression that inserts the arguments."""
    parts = message.split("{}")
    filled = [quoted(parts[0])]
    for argument, part in zip(arguments, parts[1:], strict=True):
        filled += [argument] + ([quoted(part)] if part else [])
    return " + ".join(filled)


def quoted(text: str) -> str:
    return json.dumps(text)


def _listed(spec: str, replica_type: str) -> str:
    return f"{spec}.replicaSpecs.exists(r, r.tfReplicaType == '{replica_type}')"


def _has_chief(spec: str) -> str:
    return f"has({spec}.terminationPolicy) && has({spec}.terminationPolicy.chief)"


def _chief(spec: str) -> str:
    """The chief's type, as `api.tfjob.defaults.chief_of` returns it."""
    default = f"({_listed(spec, WORKER)} && !{_listed(spec, MASTER)} ? '{WORKER}' : '{MASTER}')"
    return f"({_has_chief(spec)} ? {spec}.terminationPolicy.chief.replicaName : {default})"


def _index(spec: str) -> str:
    return f"({_has_chief(spec)} ? {spec}.terminationPolicy.chief.replicaIndex : 0)"


def _has_container(entry: str) -> str:
    containers = f"{entry}.template.spec.containers"
    present = f"has({entry}.template) && has({entry}.template.spec) && has({containers})"
    return f"({present} && {containers}.exists(c, c.name == '{CONTAINER_NAME}'))"


REPLICA_SPEC_RULES: list[Rule] = [
    rule_of(f"self.tfReplicaType != '{MASTER}' || self.replicas == 1", messages.MASTER_REPLICAS, at=".replicas"),
    rule_of(
        f"self.tfReplicaType == '{PS}' || has(self.template)",
        messages.TEMPLATE_MISSING,
        at=".template",
        reason=REQUIRED,
    ),
    rule_of(
        f"self.tfReplicaType == '{PS}' || !has(self.template) || {_has_container('self')}",
        messages.CONTAINER_MISSING,
        at=".template",
        reason=REQUIRED,
    ),
]

_WORKERS = "has(self.workerReplicas)"
_REPLICAS = f"(r.tfReplicaType == '{WORKER}' && {_WORKERS} ? self.workerReplicas : r.replicas)"

_SCALES = "has(self.autoscaling)"
_GANG_LEAST = "(has(self.gang) && has(self.gang.minWorkers) && self.gang.minWorkers > 0 ? self.gang.minWorkers : 1)"
_LEAST = f"(has(self.autoscaling.minWorkers) ? self.autoscaling.minWorkers : {_GANG_LEAST})"
_MOST = "self.autoscaling.maxWorkers"

PROGRESS_RULES: list[Rule] = [
    rule_of(
        f"self.pattern.matches({quoted(progress.SHAPE)}) && "
        f"self.pattern.findAll({quoted(progress.REPEATS)}).filter(t, !t.startsWith({quoted(chr(92))})).size() "
        f"<= {progress.MAX_REPEATS}",
        messages.BAD_PATTERN,
    ),
]

CHECKPOINT_RULES: list[Rule] = [
    rule_of("!has(self.perNode) || !self.perNode", messages.PER_NODE, at=".perNode", reason=FORBIDDEN)
]

# Conditions that a spec must meet at any time.
_STATIC_RULES = [
    rule_of(
        f"self.replicaSpecs.exists(r, r.tfReplicaType == {_chief('self')})",
        messages.MISSING_CHIEF,
        _chief("self"),
    ),
    rule_of(
        f"self.replicaSpecs.all(r, r.tfReplicaType != {_chief('self')} || {_index('self')} < {_REPLICAS})",
        messages.CHIEF_OUTSIDE,
        _chief("self"),
    ),
    rule_of(
        f"{_chief('self')} != '{PS}' || self.replicaSpecs.all(r, r.tfReplicaType != '{PS}' || {_has_container('r')})",
        messages.CHIEF_NEVER_ENDS,
    ),
    rule_of(f"!{_WORKERS} || {_listed('self', WORKER)}", messages.WORKER_REPLICAS_WITHOUT_WORKER),
    rule_of(
        "!has(self.gang) || !has(self.gang.minWorkers) || self.gang.minWorkers == 0 || "
        f"self.replicaSpecs.exists(r, r.tfReplicaType == '{WORKER}' && self.gang.minWorkers <= {_REPLICAS})",
        messages.MIN_WORKERS_ABOVE_WORKERS,
        at=".gang",
    ),
    rule_of(f"!{_SCALES} || {_listed('self', WORKER)}", messages.AUTOSCALING_WITHOUT_WORKER),
    rule_of(f"!{_SCALES} || {_LEAST} <= {_MOST}", messages.MIN_ABOVE_MAX),
    rule_of(
        f"!{_SCALES} || {_LEAST} > {_MOST} || self.replicaSpecs.all(r, r.tfReplicaType != '{WORKER}' || "
        f"({_LEAST} <= {_REPLICAS} && {_REPLICAS} <= {_MOST}))",
        messages.WORKERS_OUTSIDE,
    ),
    rule_of(
        f"!{_SCALES} || !has(self.autoscaling.minWorkers) || !has(self.gang) || !has(self.gang.minWorkers) || "
        "self.gang.minWorkers == self.autoscaling.minWorkers",
        messages.MIN_WORKERS_TWICE,
    ),
    rule_of(f"!{_SCALES} || {_chief('self')} != '{WORKER}' || {_index('self')} == 0", messages.CHIEF_MAY_LEAVE),
]


_UNSTARTED = "!has(oldSelf.RuntimeId) || oldSelf.RuntimeId == ''"


def _once_started(rule: str, message: str, at: str = "") -> Rule:
    """Returns a rule on changes that applies once the RuntimeId is set."""
    return rule_of(f"{_UNSTARTED} || ({rule})", message, at=at, reason=FORBIDDEN)


def _of_each(rule: str) -> str:
    """Returns a rule on `r` and `o`, the new and the old entry of one type."""
    return f"self.replicaSpecs.all(r, oldSelf.replicaSpecs.all(o, r.tfReplicaType != o.tfReplicaType || {rule}))"


def _resize(spec: str) -> str:
    field = f"{spec}.autoscaling"
    return f"(has({field}) ? (has({field}.resize) ? {field}.resize : '{IN_PLACE}') : '')"


def _total_steps(spec: str) -> str:
    field = f"{spec}.autoscaling"
    return f"(has({field}) && has({field}.totalSteps) ? {field}.totalSteps : 0)"


def gang_enabled(spec: str) -> str:
    """Returns an expression with three values: enabled, disabled, or not set by the job."""
    return f"(has({spec}.gang) && has({spec}.gang.enabled) ? ({spec}.gang.enabled ? 1 : 0) : -1)"


def same(field: str, new: str = "self", old: str = "oldSelf") -> str:
    """Returns the condition that an optional field has not changed."""
    before, after = f"{old}.{field}", f"{new}.{field}"
    return f"has({after}) == has({before}) && (!has({after}) || {after} == {before})"


_CHANGE_RULES = [
    rule_of(same("managedBy"), MANAGED_BY_FIXED, at=".managedBy", reason=FORBIDDEN),
    _once_started(
        "has(self.RuntimeId) && self.RuntimeId == oldSelf.RuntimeId", messages.RUNTIME_ID_FIXED, ".RuntimeId"
    ),
    _once_started(
        "size(self.replicaSpecs) == size(oldSelf.replicaSpecs) && "
        "self.replicaSpecs.all(r, oldSelf.replicaSpecs.exists(o, o.tfReplicaType == r.tfReplicaType))",
        messages.TYPES_FIXED,
        ".replicaSpecs",
    ),
    _once_started(
        _of_each("(has(r.template) == has(o.template) && (!has(r.template) || r.template == o.template))"),
        messages.TEMPLATE_FIXED,
        ".replicaSpecs",
    ),
    _once_started(_of_each("r.tfPort == o.tfPort"), messages.PORT_FIXED, ".replicaSpecs"),
    _once_started(
        _of_each(f"r.tfReplicaType == '{WORKER}' || r.replicas == o.replicas"), messages.REPLICAS_FIXED, ".replicaSpecs"
    ),
    _once_started(
        f"{_chief('self')} == {_chief('oldSelf')} && {_index('self')} == {_index('oldSelf')}",
        messages.TERMINATION_POLICY_FIXED,
        ".terminationPolicy",
    ),
    _once_started(f"{gang_enabled('self')} == {gang_enabled('oldSelf')}", messages.GANG_FIXED, ".gang"),
    _once_started(f"{_resize('self')} == {_resize('oldSelf')}", messages.RESIZE_FIXED, ".autoscaling"),
    _once_started(f"{_total_steps('self')} == {_total_steps('oldSelf')}", messages.TOTAL_STEPS_FIXED, ".autoscaling"),
    rule_of(
        f"!has(self.checkpoint) && !has(oldSelf.checkpoint) || {_UNSTARTED} || ({same('checkpoint')})",
        messages.CHECKPOINT_FIXED,
        at=".checkpoint",
        reason=FORBIDDEN,
    ),
]

SPEC_RULES: list[Rule] = _STATIC_RULES + _CHANGE_RULES

GANG_SPEC_RULES: list[Rule] = [
    rule_of(
        "!has(self.minMembers) || self.minMembers.all(n, self.members.exists(m, m.name == n && "
        "self.minMembers[n] <= m.count))",
        gang.MIN_ABOVE_COUNT,
        at=".minMembers",
    ),
    rule_of(
        "!has(self.maxMembers) || self.maxMembers.all(n, self.members.exists(m, m.name == n && "
        "self.maxMembers[n] >= m.count))",
        gang.MAX_BELOW_COUNT,
        at=".maxMembers",
    ),
    rule_of(f"self.members.map(m, m.count).sum() <= {gang.MAX_MEMBERS}", gang.TOO_MANY_MEMBERS, at=".members"),
]
