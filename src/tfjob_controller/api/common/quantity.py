"""Exact arithmetic with quantities such as `1500m`, `1Ki`, `2e3` or `0.5`: integers, never floats.

All sums are in thousandths ("milli"), to which the API server rounds the requests of a pod up. Only the final sum is
rounded up to the unit of comparison: thousandths of a CPU, and whole bytes or pieces of all other resources.

Source: apimachinery pkg/api/resource/quantity.go (ParseQuantity, ScaledValue); SetDefaults_ResourceList.
"""

from __future__ import annotations

import functools
import re

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

# The largest quantity (int64); larger ones are capped.
MAX_QUANTITY = 2**63 - 1

_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,18})|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Larger exponents all give the cap or the smallest quantity; computing their powers would only cost memory.
_EXPONENT_LIMIT = 400
# The API server writes a quantity in 27 characters at most; people write longer ones, which no cache keeps.
_MAX_CACHED = 32
_BYTES_SUFFIXES = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


def milli_of(text: str) -> int:
    """The quantity in thousandths, rounded away from zero. Raises ValueError for an invalid one."""
    return _known_milli(text) if len(text) <= _MAX_CACHED else _milli(text)


def _milli(text: str) -> int:
    match = _PATTERN.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"not a quantity: {text[:64]!r}")
    sign, whole, fraction, exponent, suffix = match.groups(default="")
    digits = int(whole + fraction or "0") * 1000
    tens = _DECIMAL.get(suffix, 0) if not exponent else max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, int(exponent)))
    above = digits * 10 ** max(tens, 0) << _BINARY.get(suffix, 0)
    below = 10 ** (len(fraction) + max(-tens, 0))
    amount: int = min(-(-above // below), MAX_QUANTITY * 1000)
    return -amount if sign == "-" else amount


_known_milli = functools.lru_cache(maxsize=4096)(_milli)


def amount_of(resource: str, milli: int) -> int:
    """The amount in the unit of comparison: thousandths of a CPU, else whole units, rounded up."""
    return milli if resource == CPU else -(-milli // 1000)


def amount_from(resource: str, text: str) -> int:
    """`amount_of` for a quantity. Raises ValueError for an invalid one."""
    return amount_of(resource, milli_of(text))


def quantity_of(resource: str, amount: int) -> str:
    """The inverse of `amount_from`: `1500m`, `2`, `512Mi`."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and is_bytes(resource):
        for size, suffix in _BYTES_SUFFIXES:
            if amount % size == 0:
                return f"{amount // size}{suffix}"
    return str(amount)


def rounded_quantity(resource: str, amount: int) -> str:
    """An amount for people, rounded: `0.25`, `11.4Gi`, `300Mi`; those that are neither CPUs nor bytes are exact."""
    if resource == CPU:
        return f"{amount / 1000:.2f}".rstrip("0").rstrip(".")
    if is_bytes(resource):
        return f"{amount / 2**30:.1f}Gi" if amount >= 2**30 else f"{amount / 2**20:.0f}Mi"
    return quantity_of(resource, amount)


def is_bytes(resource: str) -> bool:
    """Whether the resource is counted in bytes."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")


def is_native(resource: str) -> bool:
    """Whether the resource is one of Kubernetes' own, which each node has."""
    return resource in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS) or resource.startswith(_OWN_PREFIXES)


def is_counted(resource: str) -> bool:
    """Whether kube-scheduler considers requests of the resource; it ignores unqualified names such as `storage`."""
    return "/" in resource or (resource != PODS and is_native(resource))


_OWN_PREFIXES = ("hugepages-", "attachable-volumes-")
