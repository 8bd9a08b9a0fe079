"""The loader and the dumper that are passed to PyYAML.

They are PyYAML's implementations in C, or those in Python if it was built without libyaml. PyYAML is imported on first
use, because commands that need no YAML must start without it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_MERGE, _INT, _FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("merge", "int", "float"))


@cache
def safe_loader() -> type[yaml.CSafeLoader | yaml.SafeLoader]:
    """Returns the argument `Loader` of `yaml.load`, for text that strangers write.

    It differs from PyYAML's safe loader in two points. It refuses merge keys (`<<`), for which PyYAML copies what they
    refer to, so that 400 bytes become a gigabyte. It reads numbers of base 60 (`1:30`) as text, as YAML 1.2 does,
    because PyYAML takes a time that grows with the square of their length.
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
    """Returns the argument `Dumper` of `yaml.dump`."""
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
