"""What the modules of the product import, as a whole; the import contracts of `setup.cfg` have the layers."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Imports in functions count, those of types alone do not."""
    graph = grimp.build_graph("tfjob_controller", exclude_type_checking_imports=True, cache_dir=None)
    try:
        TopologicalSorter(
            {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
        ).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")
