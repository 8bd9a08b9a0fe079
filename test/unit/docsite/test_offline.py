"""The rules of what the site may fetch."""

from __future__ import annotations

from pathlib import Path

import pytest

from docsite.offline import fetched_from_elsewhere


@pytest.mark.parametrize(
    ("name", "text", "fetched"),
    [
        pytest.param(
            "a.html", '<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js", id="script"
        ),
        pytest.param("a.html", '<link rel="stylesheet" href="//cdn.example/x.css">', "//cdn.example/x.css", id="style"),
        pytest.param("a.html", '<img alt="x" src="http://example/x.png">', "http://example/x.png", id="image"),
        pytest.param("a.css", "@import url('https://fonts.example/x');", "https://fonts.example/x", id="font"),
        pytest.param("a.html", '<a href="https://example.com">x</a>', "", id="a link is the reader's to follow"),
        pytest.param("a.html", '<script src="../_static/x.js"></script>', "", id="the site's own"),
        pytest.param("a.css", "background: url(data:image/png;base64,xx)", "", id="in the file itself"),
    ],
)
def test_what_is_fetched_from_elsewhere_is_found(tmp_path: Path, name: str, text: str, fetched: str) -> None:
    (tmp_path / name).write_text(text)
    assert list(fetched_from_elsewhere(tmp_path)) == ([f"{name}: {fetched}"] if fetched else [])
