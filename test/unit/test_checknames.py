"""hack/checknames.py finds duplicate class names."""

from __future__ import annotations

from checknames import duplicate_classes, main


def test_a_public_class_name_is_defined_once() -> None:
    sources = {"a.py": "class Gate: ...\nclass _Own: ...", "b.py": "\nclass Gate: ...", "c.py": "class _Own: ..."}
    assert list(duplicate_classes(sources)) == ["class Gate is defined 2 times: a.py:1, b.py:2"]
    assert main() == 0
