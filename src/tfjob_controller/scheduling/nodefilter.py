"""Whether a node accepts a pod, whatever its free capacity: kube-scheduler's filters, with one difference.

A node is accepted if it is ready and schedulable, its taints are tolerated, and nodeSelector and required node affinity
match. kube-scheduler does not look at the condition Ready but at the taint that follows from it a moment later; here a
node that reports not ready is rejected at once, also for pods that tolerate the taint, since a gang cannot start there.
A node that does not report the condition counts as ready, as it does for kube-scheduler.

Affinity is as lenient as there: an invalid term (an unknown operator, no values) matches nothing while the others still
count, and a term without requirements matches nothing.

Source: kubernetes pkg/scheduler/framework/plugins (nodeunschedulable, tainttoleration, nodeaffinity), component-helpers
scheduling/corev1/nodeaffinity, apimachinery pkg/labels (Requirement). The toleration operators Lt and Gt are behind a
gate that is off.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from cachetools import LRUCache, cached

from tfjob_controller.api.common.cluster import Node, Taint
from tfjob_controller.api.gang import Member

NOT_READY = "not ready"
UNSCHEDULABLE = "unschedulable"
TAINTED = "have a taint that is not tolerated"
NOT_SELECTED = "do not match nodeSelector or affinity"

_EFFECTS = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# Prefix of the taints that the node lifecycle controller sets according to a node's health.
_HEALTH_PREFIX = "node.kubernetes.io/"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63
# apimachinery's IsQualifiedName and IsValidLabelValue.
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_LENGTH = 253


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One entry of matchExpressions, or of matchFields on the node's name."""

    key: str
    operator: str
    values: tuple[str, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        return value is not None and self._compares(value)

    def _compares(self, text: str) -> bool:
        value, limit = _integer(text), _integer(self.values[0])
        if value is None or limit is None:
            return False
        return value > limit if self.operator == "Gt" else value < limit

    def is_valid(self) -> bool:
        """Whether it is a valid label selector requirement: its key and values must be valid for labels."""
        return _is_label_key(self.key) and all(map(_is_label_value, self.values)) and self._has_right_values()

    def _has_right_values(self) -> bool:
        if self.operator in ("In", "NotIn"):
            return bool(self.values)
        if self.operator in ("Exists", "DoesNotExist"):
            return not self.values
        return self.operator in ("Gt", "Lt") and len(self.values) == 1 and _integer(self.values[0]) is not None


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One of several alternative terms: all its requirements must match."""

    expressions: tuple[LabelRequirement, ...]
    fields: tuple[LabelRequirement, ...]

    def matches(self, node: Node) -> bool:
        # A node has one field; all others count as empty.
        name = {each.key: "" for each in self.fields} | {"metadata.name": node.metadata.name}
        return all(each.matches(node.metadata.labels) for each in self.expressions) and all(
            each.matches(name) for each in self.fields
        )


@dataclass(frozen=True, slots=True)
class Toleration:
    """Empty fields tolerate everything; an empty operator means Equal."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


@dataclass(frozen=True, slots=True, eq=False)
class NodeFilter:
    """What a pod requires of its node beside capacity. Created by `node_filter_of` only: equal filters are the same
    object.
    """

    selector: tuple[tuple[str, str], ...]
    tolerations: tuple[Toleration, ...]
    terms: tuple[AffinityTerm, ...] | None
    encoded_bytes: int
    """The length of its JSON."""

    def rejection(self, node: Node) -> str:
        """Returns why the node is rejected, in constant words; empty if it is accepted."""
        if not is_ready(node):
            return NOT_READY
        if node.spec.unschedulable and not self._tolerates(_UNSCHEDULABLE_TAINT):
            return UNSCHEDULABLE
        if any(each.effect in _EFFECTS and not self._tolerates(each) for each in node.spec.taints):
            return TAINTED
        return "" if self._selects(node) else NOT_SELECTED

    def could_accept(self, node: Node) -> bool:
        """Whether the node would be accepted if it were healthy and not cordoned."""
        lasting = (each for each in node.spec.taints if not each.key.startswith(_HEALTH_PREFIX))
        return all(each.effect not in _EFFECTS or self._tolerates(each) for each in lasting) and self._selects(node)

    def _tolerates(self, taint: Taint) -> bool:
        return any(each.tolerates(taint) for each in self.tolerations)

    def _selects(self, node: Node) -> bool:
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.terms is None or any(each.matches(node) for each in self.terms)


def is_ready(node: Node) -> bool:
    """Whether the node does not report that it is not ready."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def node_filter_of(member: Member) -> NodeFilter:
    """Returns the filter of a member's pods."""
    fields = (member.node_selector, member.tolerations, member.node_affinity)
    return _node_filter(msgspec.json.encode(fields, order="sorted"))


# A filter takes some ten times the memory of its JSON. Equal filters are the same object while they are cached.
_CACHED_BYTES = 2 * 1024 * 1024
_cached: LRUCache[bytes, NodeFilter] = LRUCache(_CACHED_BYTES, getsizeof=lambda cached: cached.encoded_bytes)


@cached(_cached, lock=threading.Lock())
def _node_filter(encoded: bytes) -> NodeFilter:
    selector, tolerations, affinity = msgspec.json.decode(encoded)
    terms = None if affinity is None else tuple(filter(None, map(_term, _dicts(affinity.get("nodeSelectorTerms")))))
    return NodeFilter(tuple(selector.items()), tuple(map(_toleration, tolerations)), terms, len(encoded))


def _toleration(body: Mapping[str, Any]) -> Toleration:
    return Toleration(*(_text(body.get(name)) for name in ("key", "operator", "value", "effect")))


def _term(body: Mapping[str, Any]) -> AffinityTerm | None:
    """None for a term that matches nothing: an empty one, or an invalid one."""
    expressions = tuple(map(_requirement, _dicts(body.get("matchExpressions"))))
    fields = tuple(map(_requirement, _dicts(body.get("matchFields"))))
    if not (expressions or fields) or not all(each.is_valid() for each in expressions):
        return None
    if any(each.operator not in ("In", "NotIn") or len(each.values) != 1 for each in fields):
        return None
    return AffinityTerm(expressions, fields)


def _requirement(body: Mapping[str, Any]) -> LabelRequirement:
    values = body.get("values") or ()
    texts = tuple(map(_text, values)) if isinstance(values, list) else ()
    return LabelRequirement(_text(body.get("key")), _text(body.get("operator")), texts)


def _dicts(value: object) -> list[Mapping[str, Any]]:
    """Affinity is user input without a schema: entries of another type are ignored."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    has_prefix = len(prefix) <= _SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(prefix) is not None
    return _LABEL_NAME.fullmatch(name) is not None and (has_prefix or not slash)


def _is_label_value(value: str) -> bool:
    return not value or _LABEL_NAME.fullmatch(value) is not None


def _integer(text: str) -> int | None:
    value = int(text) if len(text) < 32 and _INTEGER.fullmatch(text) else None
    return value if value is not None and -_INT64 <= value < _INT64 else None
