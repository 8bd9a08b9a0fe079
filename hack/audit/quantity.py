"""Kubernetes quantities as whole thousandths, rounded up: `100m` is 100, `2` is 2,000, `1Ki` is 1,024,000.

Source: apimachinery pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from fractions import Fraction

Amounts = Mapping[str, int]

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([a-zA-Z]{0,2}|[eE][+-]?\d+)")
_BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("m", "u", "n"), 1)},
}
_SCALES = {**_BINARY, **_DECIMAL}


@functools.lru_cache(maxsize=4096)
def thousandths(text: str) -> int:
    """Returns a quantity in thousandths. Raises ValueError if it cannot be parsed."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix = match.groups()
    if suffix in _SCALES:
        return math.ceil(Fraction(number) * _SCALES[suffix] * 1000)
    if suffix[0] not in "eE" or len(suffix) < 2:
        raise ValueError(f"{text!r} has no known unit")
    return math.ceil(Fraction(number) * Fraction(10) ** int(suffix[1:]) * 1000)


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """Returns the amounts of a resource list, by resource name. Raises ValueError if one cannot be parsed."""
    return {name: thousandths(str(value)) for name, value in (quantities or {}).items()}


def total(*parts: Amounts) -> dict[str, int]:
    """Returns the sum of amounts."""
    added: dict[str, int] = {}
    for part in parts:
        add_amounts(added, part)
    return added


def add_amounts(target: dict[str, int], part: Amounts, times: int = 1) -> None:
    """Adds these amounts to `target`, that many times."""
    for name, value in part.items():
        target[name] = target.get(name, 0) + times * value
