"""Node filters: whether a node accepts a pod apart from its resources. kube-scheduler's filters with one difference.

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
from collections.abc import Iterable, Mapping
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


# The garbage collector ignores values without `gc`. A full collection would otherwise take long after some hundred
# large filters, while kube-scheduler waits.
class LabelRequirement(msgspec.Struct, frozen=True, gc=False):
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


class AffinityTerm(msgspec.Struct, frozen=True, gc=False):
    """One of several alternative terms: all its requirements must match."""

    expressions: tuple[LabelRequirement, ...]
    fields: tuple[LabelRequirement, ...]

    def matches(self, node: Node) -> bool:
        labels = node.metadata.labels
        for expression in self.expressions:
            if not expression.matches(labels):
                return False
        return not self.fields or self._matches_fields(node.metadata.name)

    def _matches_fields(self, name: str) -> bool:
        # A node has one field; all others count as empty.
        fields = {field.key: "" for field in self.fields} | {"metadata.name": name}
        return all(field.matches(fields) for field in self.fields)


class Toleration(msgspec.Struct, frozen=True, gc=False):
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
    """The requirements of a pod on its node besides capacity. Created by `node_filter_of` only: equal filters are the
    same object.
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
        if any(taint.effect in _EFFECTS and not self._tolerates(taint) for taint in node.spec.taints):
            return TAINTED
        return "" if self._selects(node) else NOT_SELECTED

    def could_accept(self, node: Node) -> bool:
        """Whether the node would be accepted if it were healthy and not cordoned."""
        lasting = (taint for taint in node.spec.taints if not taint.key.startswith(_HEALTH_PREFIX))
        return all(each.effect not in _EFFECTS or self._tolerates(each) for each in lasting) and self._selects(node)

    def _tolerates(self, taint: Taint) -> bool:
        return any(toleration.tolerates(taint) for toleration in self.tolerations)

    def _selects(self, node: Node) -> bool:
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)


# Filters with less JSON are evaluated in microseconds, and not remembered.
_CHEAP_BYTES = 512
# The approximate size of a remembered verdict, and the limit for all of them.
_VERDICT_BYTES = 192
_MAX_VERDICTS_BYTES = 16 * 1024 * 1024


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The result of one filter for one version of a node."""

    node: Node
    rejection: str
    could_accept: bool


class NodeVerdicts:
    """Verdicts of large filters on nodes, so that each is evaluated once for each version of a node.

    `evaluate` can be called without the lock of the view whose nodes these are: later calls under the lock are then
    cheap. Safe to use from any thread; no lock is held while a filter is evaluated.
    """

    def __init__(self, max_bytes: int = _MAX_VERDICTS_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        # By filter and name of the node; filters that were evaluated last are at the end.
        self._by_filter: dict[NodeFilter, dict[str, Verdict]] = {}
        self._count = 0

    def rejection(self, node_filter: NodeFilter, node: Node) -> str:
        """See `NodeFilter.rejection`."""
        if node_filter.encoded_bytes < _CHEAP_BYTES:
            return node_filter.rejection(node)
        return self._verdict(node_filter, node).rejection

    def could_accept(self, node_filter: NodeFilter, node: Node) -> bool:
        """See `NodeFilter.could_accept`."""
        if node_filter.encoded_bytes < _CHEAP_BYTES:
            return node_filter.could_accept(node)
        return self._verdict(node_filter, node).could_accept

    def evaluate(self, node_filter: NodeFilter, nodes: Iterable[Node]) -> None:
        """Evaluate a filter for these nodes beforehand."""
        if node_filter.encoded_bytes >= _CHEAP_BYTES:
            for node in nodes:
                self._verdict(node_filter, node)

    @property
    def filters(self) -> list[NodeFilter]:
        """The filters of which verdicts are remembered."""
        with self._lock:
            return list(self._by_filter)

    @property
    def size_bytes(self) -> int:
        """The approximate size of the verdicts."""
        return self._count * _VERDICT_BYTES

    def _verdict(self, node_filter: NodeFilter, node: Node) -> Verdict:
        found = self._by_filter.get(node_filter, {}).get(node.metadata.name)
        if found is not None and found.node is node:
            return found
        rejection = node_filter.rejection(node)
        could_accept = not rejection or (rejection != NOT_SELECTED and node_filter.could_accept(node))
        verdict = Verdict(node, rejection, could_accept)
        with self._lock:
            verdicts = self._by_filter.pop(node_filter, {})
            self._by_filter[node_filter] = verdicts
            self._count += node.metadata.name not in verdicts
            verdicts[node.metadata.name] = verdict
            while self.size_bytes > self._max_bytes:
                self._count -= len(self._by_filter.pop(next(iter(self._by_filter))))
        return verdict


def is_ready(node: Node) -> bool:
    """Whether the node does not report that it is not ready."""
    return all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")


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
    """Returns None for a term that matches nothing: an empty one, or an invalid one."""
    expressions = tuple(map(_requirement, _dicts(body.get("matchExpressions"))))
    fields = tuple(map(_requirement, _dicts(body.get("matchFields"))))
    if not (expressions or fields) or not all(expression.is_valid() for expression in expressions):
        return None
    if any(field.operator not in ("In", "NotIn") or len(field.values) != 1 for field in fields):
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
