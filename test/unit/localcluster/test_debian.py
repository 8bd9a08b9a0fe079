"""Which mirror images come from: the one that this machine's apt uses, whichever way that is written."""

from __future__ import annotations

import pytest

from localcluster import debian
from localcluster.errors import LocalClusterError

STANZAS = """\
Types: deb
# http://elsewhere.test/debian
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian.gpg

Types: deb
URIs: http://mirror.test/security
Suites: bookworm-security
Components: main
"""


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param("deb http://mirror.test/debian bookworm main contrib\n", id="one line"),
        pytest.param("deb [signed-by=/k arch=amd64] http://mirror.test/debian bookworm main\n", id="with options"),
        pytest.param(STANZAS, id="stanzas, with a comment inside"),
        pytest.param(
            "# deb http://old.test/debian bookworm main\ndeb http://mirror.test/debian bookworm main",
            id="commented out",
        ),
        pytest.param(
            "deb http://other.test/debian bookworm universe\ndeb http://mirror.test/debian bookworm main",
            id="the first with the main component",
        ),
        pytest.param(
            "Types: deb\nEnabled: no\nURIs: http://off.test\nSuites: bookworm\nComponents: main\n\n" + STANZAS,
            id="disabled stanza",
        ),
    ],
)
def test_the_mirror_is_the_machines_own(sources: str) -> None:
    assert debian.mirror_of(sources, "bookworm") == ("http://mirror.test/debian", "bookworm", "main")


def test_a_machine_without_a_package_source_gets_an_error_with_a_remedy() -> None:
    with pytest.raises(LocalClusterError, match=r"no apt source of this machine holds trixie/main; .*KUBECONFIG="):
        debian.mirror_of(STANZAS, "trixie")
