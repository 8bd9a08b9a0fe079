"""The rules of hack/checklinks.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import checklinks

OTHER = '# Title\n\n## Two words, `code` & more\n\n## Again\n\n## Again\n\n<a id="own"></a>\n'


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        pytest.param("[a](other.md)", [], id="file"),
        pytest.param("[a](none.md)", ["none.md: no such file"], id="no file"),
        pytest.param('![a](none.png "title")', ["none.png: no such file"], id="image with a title"),
        pytest.param("[a](other.md#two-words-code--more)", [], id="heading"),
        pytest.param("[a](other.md#again-1)", [], id="second heading of a name"),
        pytest.param("[a](other.md#again-2)", ["other.md#again-2: no such heading"], id="no third"),
        pytest.param("[a](other.md#own)", [], id="anchor of its own"),
        pytest.param("[a](#here)\n\n# Here", [], id="heading in the same file"),
        pytest.param("[a](#there)", ["#there: no such heading"], id="no heading in the same file"),
        pytest.param("[a][b]\n\n[b]: none.md", ["none.md: no such file"], id="reference"),
        pytest.param("[a](https://example.com/x) <mailto:a@b>", [], id="other sites are not asked"),
        pytest.param("`[a](none.md)`", [], id="code"),
        pytest.param("```\n[a](none.md)\n```", [], id="fenced code"),
        pytest.param("~~~\n```\n[a](none.md)\n~~~\n[a](none.md)", ["none.md: no such file"], id="after the fence"),
        pytest.param("[a](folder)", [], id="folder"),
        pytest.param("[a](with%20space.md)", [], id="quoted"),
    ],
)
def test_dead_links(tmp_path: Path, text: str, dead: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "with space.md").touch()
    (tmp_path / "other.md").write_text(OTHER)
    page = tmp_path / "page.md"
    page.write_text(text)
    assert [words for _, words in checklinks.dead_links(page)] == dead


def test_an_error_names_the_line_and_sets_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("one\n\n[a](none.md)\n")
    assert checklinks.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{page}:3: none.md: no such file\n"
    page.write_text("one\n")
    assert checklinks.main([str(tmp_path)]) == 0
