"""Quantities such as `1500m`, `1Ki`, `2e3` or `0.5`, exactly: integers, never floats.

The unit of all sums here is a thousandth ("milli"), as it is for the API server, which rounds what a pod asks for up to
thousandths before anybody sees it. Only at the end is a sum rounded up to what is compared: thousandths of a CPU, whole
bytes or pieces of all else.

Source: apimachinery pkg/api/resource/quantity.go (ParseQuantity, ScaledValue); SetDefaults_ResourceList.
"""

from __future__ import annotations

import functools
import re

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

# The greatest that a quantity may be (int64); what is more is capped.
MAX_QUANTITY = 2**63 - 1

_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,18})|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Beyond this all exponents are the same, too much or next to nothing, and their powers only cost memory.
_EXPONENT_LIMIT = 400
_BYTES_SUFFIXES = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


@functools.lru_cache(maxsize=4096)
def milli_of(text: str) -> int:
    """Thousandths, rounded away from zero; raises ValueError for what is no quantity."""
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


def amount_of(resource: str, milli: int) -> int:
    """What is compared for this resource: thousandths of a CPU, else whole ones, rounded up."""
    return milli if resource == CPU else -(-milli // 1000)


def amount_from(resource: str, text: str) -> int:
    """The same from a quantity; raises ValueError for what is none."""
    return amount_of(resource, milli_of(text))


def quantity_of(resource: str, amount: int) -> str:
    """An amount as people write it: `1500m`, `2`, `512Mi`; the inverse of `amount_from`."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and is_bytes(resource):
        for size, suffix in _BYTES_SUFFIXES:
            if amount % size == 0:
                return f"{amount // size}{suffix}"
    return str(amount)


def is_bytes(resource: str) -> bool:
    """Whether the resource is counted in bytes."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")


def is_counted(resource: str) -> bool:
    """Whether kube-scheduler counts a pod's request of it at all: no plain name but its own, such as `storage`."""
    return "/" in resource or resource in (CPU, MEMORY, EPHEMERAL_STORAGE) or resource.startswith(_OWN_PREFIXES)


_OWN_PREFIXES = ("hugepages-", "attachable-volumes-")
