"""PyYAML's engine in C, or the one in Python where PyYAML was built without libyaml.

PyYAML is imported when it is used, because commands that need no YAML must start without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml


def safe_loader() -> type[yaml.CSafeLoader | yaml.SafeLoader]:
    """The argument `Loader` of `yaml.load`."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def safe_dumper() -> type[yaml.CSafeDumper | yaml.SafeDumper]:
    """The argument `Dumper` of `yaml.dump`."""
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
