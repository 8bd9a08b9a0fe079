"""PyYAML's engine in C, or the one in Python where PyYAML was built without libyaml.

PyYAML is imported when it is used, because commands that need no YAML must start without it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_MERGE, _INT, _FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("merge", "int", "float"))


@cache
def safe_loader() -> type[yaml.CSafeLoader | yaml.SafeLoader]:
    """Returns the argument `Loader` of `yaml.load`, whose time and memory are those of the text and its aliases.

    PyYAML copies what a merge key (`<<`) refers to: 400 bytes become a gigabyte. Its numbers of base 60 (`1:30`, which
    is text in YAML 1.2) take the square of their length.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc] # chosen above
        def flatten_mapping(self, node: Any) -> None:
            for key, _ in node.value:
                if key.tag == _MERGE:
                    raise yaml.constructor.ConstructorError(
                        None, None, "a merge key (<<), which is not supported", key.start_mark
                    )
            super().flatten_mapping(node)

    def number(loader: Any, node: Any) -> Any:
        text = loader.construct_scalar(node)
        return text if ":" in text else base.yaml_constructors[node.tag](loader, node)

    for tag in (_INT, _FLOAT):
        Loader.add_constructor(tag, number)
    return Loader


def safe_dumper() -> type[yaml.CSafeDumper | yaml.SafeDumper]:
    """The argument `Dumper` of `yaml.dump`."""
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
