"""The amounts that the ResourceQuotas of a namespace leave for its gangs.

A gang's reservation counts before its pods exist; otherwise a namespace could reserve a whole cluster although its
quota allows it nothing. The remaining amount is `hard` less `used` less what is reserved for pods that do not exist
yet. From its creation on, the API server counts a pod in `used`.

Pods and quotas arrive on different watches. In the moment in which a pod is known here but not yet the quota that
counts it, or a quota counts a pod no more that still counts here, the pod would count nowhere. So a quota without
scopes counts as used at least what the pods known here request (`PodUsage`). Terminating pods count as long as the
quota says, which does not wait for the pods of a lost node.

A quota counts for a kind of pods if all its scopes match. A Gang does not say whether its pods have
activeDeadlineSeconds or affinity to pods of other namespaces; they count as if they had neither. Only requests and
the number of pods are checked, since a Gang has no limits. The API server checks each pod in any case.

Threads: the caller holds one lock for all methods. Source: kubernetes pkg/quota/v1/evaluator/core/pods.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfjob_controller.api.common.cluster import (
    FINISHED_PHASES,
    ResourceQuota,
    ScheduledPod,
    ScopeRequirement,
)
from tfjob_controller.api.common.podrequests import Amounts, add_amounts, requests_of
from tfjob_controller.api.common.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, amount_from, quantity_of
from tfjob_controller.api.gang import Gang, Missing
from tfjob_controller.kube.meta import key_of, namespace_of
from tfjob_controller.scheduling.podsets import PodSet

_TIMES = "\u00d7"
_REQUESTS = "requests."

# Returns the ResourceQuotas of a namespace.
QuotaLookup = Callable[[str], Sequence[ResourceQuota]]
# Returns what the known pods of a namespace request.
UsageLookup = Callable[[str], Amounts]
# The beginning of the message of a gang that waits for quota.
WAITS_FOR_QUOTA = "waits for quota"


def unknown_usage(_: str) -> Amounts:
    """The usage for a caller that knows no pods: the one in the statuses of the quotas."""
    return {}


class PodUsage:
    """The sum of what the unfinished pods of each namespace request, without terminating ones.

    Threads: the caller holds one lock for all methods.
    """

    def __init__(self) -> None:
        self._pods: dict[str, Amounts] = {}
        self._usage: dict[str, dict[str, int]] = {}

    def of(self, namespace: str) -> Amounts:
        """Returns what the pods of a namespace request. Not a copy."""
        return self._usage.get(namespace, {})

    def set_pod(self, pod: ScheduledPod) -> None:
        """Add or update a pod."""
        key = key_of(pod)
        if pod.status.phase in FINISHED_PHASES or pod.metadata.deletion_timestamp:
            self.remove_pod(key)
            return
        if pod.requests is not None and self._pods.get(key) == pod.requests:
            return
        self.remove_pod(key)
        try:
            amounts = requests_of(pod)
        except ValueError:
            return
        self._pods[key] = amounts
        add_amounts(self._usage.setdefault(pod.metadata.namespace, {}), amounts, 1)

    def remove_pod(self, key: str) -> None:
        """Remove a pod, which may be unknown."""
        known = self._pods.pop(key, None)
        if known is None:
            return
        namespace = namespace_of(key)
        usage = self._usage[namespace]
        add_amounts(usage, known, -1)
        if not any(usage.values()):
            del self._usage[namespace]


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """The resources of which a gang requests more than the quotas of its namespace leave."""

    missing: tuple[Missing, ...]

    @property
    def message(self) -> str:
        """Returns a message such as `waits for quota: 4 x nvidia.com/gpu, 2 left`."""
        parts = (
            f"{shortage.requested} {_TIMES} {shortage.resource}, {shortage.available} left" for shortage in self.missing
        )
        return f"{WAITS_FOR_QUOTA}: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class _Pods:
    """Equal pods of a gang. `requests` includes `pods`."""

    priority_class: str
    requests: tuple[tuple[str, int], ...]
    count: int


@dataclass(slots=True)
class _Account:
    """One quota and what it has left, by resource."""

    scopes: Sequence[ScopeRequirement]
    left: dict[str, int]

    def charge(self, pods: _Pods) -> None:
        for name, amount in pods.requests:
            if name in self.left:
                self.left[name] -= amount * pods.count

    def counts(self, pods: _Pods) -> bool:
        return all(_matches(scope, pods) for scope in self.scopes)

    def most(self, pods: _Pods) -> int:
        """Returns how many of these pods fit into what is left; `pods.count` if no quota counts what they request."""
        return max(
            0,
            min((self.left[name] // amount for name, amount in pods.requests if name in self.left), default=pods.count),
        )


class NamespaceQuotas:
    """Records what gangs have reserved for pods that do not exist yet, and how much of a gang the quotas allow."""

    def __init__(self, quotas_of: QuotaLookup, usage_of: UsageLookup = unknown_usage) -> None:
        self._quotas_of = quotas_of
        self._usage_of = usage_of
        # By namespace and gang.
        self._reserved: dict[str, dict[str, tuple[_Pods, ...]]] = {}
        # By namespace; dropped when something changes.
        self._accounts: dict[str, list[_Account]] = {}

    def refresh(self) -> None:
        """Read the quotas and the usage again."""
        self._accounts.clear()

    def reserve(self, gang: Gang, pod_sets: Iterable[PodSet], counts: Mapping[str, int]) -> None:
        """Record how many pods of each kind a gang has reserved that do not exist; replaces what it had before."""
        key = key_of(gang)
        pods = tuple(pod for pod in _pods_of(gang, pod_sets, counts) if pod.count > 0)
        if not pods:
            self.unreserve(key)
        elif self._of_namespace(key).get(key) != pods:
            self._of_namespace(key)[key] = pods
            self._accounts.pop(gang.metadata.namespace, None)

    def add(self, gang: Gang, pod_set: PodSet) -> None:
        """Record one more reserved pod."""
        key = key_of(gang)
        one = _pods_of(gang, [pod_set], {pod_set.name: 1})[0]
        reserved = self._of_namespace(key)
        counts = Counter({(pods.priority_class, pods.requests): pods.count for pods in reserved.get(key, ())})
        counts[one.priority_class, one.requests] += 1
        reserved[key] = tuple(_Pods(*kind, count) for kind, count in counts.items())
        for account in self._accounts.get(gang.metadata.namespace, ()):
            if account.counts(one):
                account.charge(one)

    def unreserve(self, key: str) -> None:
        """Forget what a gang has reserved."""
        namespace = namespace_of(key)
        reserved = self._reserved.get(namespace, {})
        if reserved.pop(key, None) is not None:
            self._accounts.pop(namespace, None)
        if not reserved:
            self._reserved.pop(namespace, None)

    def limit(self, gang: Gang, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...] | QuotaShortage:
        """Returns the pod sets with as many pods as the quotas allow, or what is missing for the minimums."""
        accounts = self._accounts_of(gang.metadata.namespace)
        if not accounts:
            return pod_sets
        minimums = _pods_of(gang, pod_sets, {pod_set.name: pod_set.min_count for pod_set in pod_sets})
        trial = [_Account(account.scopes, dict(account.left)) for account in accounts]
        for account in trial:
            for pods in filter(account.counts, minimums):
                account.charge(pods)
        if any(
            left < 0 and name in _names(account, minimums) for account in trial for name, left in account.left.items()
        ):
            return QuotaShortage(_missing(accounts, trial, minimums))
        more = {pod_set.name: pod_set.count - pod_set.min_count for pod_set in pod_sets}
        limited: list[PodSet] = []
        for pod_set, pods in zip(pod_sets, _pods_of(gang, pod_sets, more), strict=True):
            counting = [account for account in trial if account.counts(pods)]
            added = min(pods.count, *(account.most(pods) for account in counting)) if counting else pods.count
            for account in counting:
                account.charge(_Pods(pods.priority_class, pods.requests, added))
            limited.append(pod_set if added == pods.count else pod_set.with_count(pod_set.min_count + added))
        return tuple(limited)

    def allows(self, gang: Gang, pod_set: PodSet) -> bool:
        """Whether the quotas allow one more pod of this kind."""
        pods = _pods_of(gang, [pod_set], {pod_set.name: 1})[0]
        accounts = self._accounts_of(gang.metadata.namespace)
        return all(account.most(pods) >= 1 for account in accounts if account.counts(pods))

    def _of_namespace(self, key: str) -> dict[str, tuple[_Pods, ...]]:
        return self._reserved.setdefault(namespace_of(key), {})

    def _accounts_of(self, namespace: str) -> list[_Account]:
        accounts = self._accounts.get(namespace)
        if accounts is None:
            accounts = self._accounts[namespace] = [
                _account(quota, self._usage_of(namespace)) for quota in self._quotas_of(namespace)
            ]
            for reserved in self._reserved.get(namespace, {}).values() if accounts else ():
                for pods in reserved:
                    for account in accounts:
                        if account.counts(pods):
                            account.charge(pods)
        return accounts


def _pods_of(gang: Gang, pod_sets: Iterable[PodSet], counts: Mapping[str, int]) -> list[_Pods]:
    classes = {member.name: member.priority_class_name for member in gang.spec.members}
    return [_Pods(classes.get(pod_set.name, ""), pod_set.requests, counts.get(pod_set.name, 0)) for pod_set in pod_sets]


def _account(quota: ResourceQuota, usage: Amounts) -> _Account:
    selector = quota.spec.scope_selector
    scopes = [ScopeRequirement(scope, "Exists") for scope in quota.spec.scopes]
    scopes += selector.match_expressions if selector is not None else ()
    left: dict[str, int] = {}
    for name, text in (quota.status.hard or quota.spec.hard).items():
        resource = _resource(name)
        try:
            hard, used = amount_from(resource, text), amount_from(resource, quota.status.used.get(name, "0"))
        except ValueError:
            continue
        if resource:
            amount = hard - (used if scopes else max(used, usage.get(resource, 0)))
            left[resource] = min(amount, left.get(resource, amount))
    return _Account(scopes, left)


def _resource(name: str) -> str:
    """Returns the resource that an entry of `hard` bounds; empty for entries that do not concern requests of pods."""
    if name in (PODS, "count/pods"):
        return PODS
    if name.startswith(_REQUESTS):
        return name.removeprefix(_REQUESTS)
    return name if name in (CPU, MEMORY, EPHEMERAL_STORAGE) or name.startswith("hugepages-") else ""


def _matches(scope: ScopeRequirement, pods: _Pods) -> bool:
    is_best_effort = not any(name in (CPU, MEMORY) for name, _ in pods.requests)
    if scope.scope_name == "PriorityClass":
        return _matches_class(scope, pods.priority_class)
    matching = {"NotTerminating": True, "BestEffort": is_best_effort, "NotBestEffort": not is_best_effort}
    return matching.get(scope.scope_name, False)


def _matches_class(scope: ScopeRequirement, name: str) -> bool:
    if scope.operator == "Exists":
        return bool(name)
    if scope.operator == "NotIn":
        return name not in scope.values
    return scope.operator == "In" and name in scope.values


def _names(account: _Account, minimums: Iterable[_Pods]) -> set[str]:
    """Returns the resources of this quota that the pods request. Quotas of other resources may be exceeded already."""
    return {name for pods in minimums if pods.count and account.counts(pods) for name, _ in pods.requests}


def _missing(accounts: Iterable[_Account], trial: Iterable[_Account], minimums: Sequence[_Pods]) -> tuple[Missing, ...]:
    """Returns for each scarce resource the amount that the gang requests and the least amount that a quota leaves."""
    found: dict[str, tuple[int, int]] = {}
    for before, after in zip(accounts, trial, strict=True):
        for name in _names(before, minimums) & after.left.keys():
            left = max(before.left[name], 0)
            if after.left[name] < 0 and (name not in found or left < found[name][1]):
                found[name] = before.left[name] - after.left[name], left
    return tuple(
        Missing(name, quantity_of(name, requested), quantity_of(name, left))
        for name, (requested, left) in sorted(found.items())
    )
