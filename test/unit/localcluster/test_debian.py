"""Which mirror images come from: the one that this machine's apt uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster import debian
from localcluster.errors import LocalClusterError
from localcluster.report import silent

# Its apt knows a mirror only once it has fetched the lists; its debootstrap prints its arguments and fails.
APT_GET = """\
#!/bin/sh
case "$*" in
  *update*) touch {folder}/updated;;
  indextargets*main) [ ! -e {folder}/updated ] || echo {mirror};;
esac
"""


def tool(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the path."""
    tool(tmp_path / "unshare", '#!/bin/sh\necho "$@" >&2\nexit 1\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_mirror_is_that_of_apt_whose_lists_are_fetched_first(tools: Path) -> None:
    tool(tools / "apt-get", APT_GET.format(folder=tools, mirror="http://mirror.test/debian"))
    with pytest.raises(LocalClusterError, match=r"trixie /target http://mirror\.test/debian$"):
        debian.bootstrap(Path("/target"), ["python3"], silent, "trixie")


def test_a_machine_without_a_package_source_gets_an_error_with_a_remedy(tools: Path) -> None:
    tool(tools / "apt-get", APT_GET.format(folder=tools, mirror="-n"))
    with pytest.raises(LocalClusterError, match=r"no apt source of this machine holds \w+/main; .*KUBECONFIG="):
        debian.bootstrap(Path("/target"), ["python3"], silent)
