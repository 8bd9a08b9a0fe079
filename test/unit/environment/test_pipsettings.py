"""pip's settings as uv's."""

from __future__ import annotations

from environment import pipsettings

LISTING = """\
:env:.cert='/certificates/of/the/user.crt'
:env:.disable-pip-version-check='1'
download.index-url='https://download.example/simple'
global.cert='/certificates/of/the/machine.crt'
global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'
global.index-url='https://global.example/simple'
install.index-url='https://install.example/simple'
"""


def test_a_variable_overrides_the_section_of_install_which_overrides_the_global_one() -> None:
    settings = pipsettings.parse(LISTING)
    assert settings["cert"] == "/certificates/of/the/user.crt"
    assert settings["index-url"] == "https://install.example/simple"


def test_uv_gets_the_index_the_certificates_and_the_proxy_of_pip() -> None:
    settings = pipsettings.for_uv(pipsettings.parse(LISTING) | {"proxy": "http://proxy.example:3128"}, {})
    assert settings.variables == {
        "UV_DEFAULT_INDEX": "https://install.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/certificates/of/the/user.crt",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
    }
    assert settings.arguments == ()


def test_a_variable_that_is_set_stays_as_it_is() -> None:
    settings = pipsettings.for_uv(
        {"index-url": "https://pip.example", "proxy": "http://pip.example"},
        {"UV_DEFAULT_INDEX": "https://uv.example", "https_proxy": "http://user.example"},
    )
    assert settings.variables == {"UV_INDEX_STRATEGY": "unsafe-best-match", "HTTP_PROXY": "http://pip.example"}


def test_folders_of_wheels_without_an_index() -> None:
    settings = pipsettings.for_uv({"find-links": "/wheels /more", "no-index": "true"}, {})
    assert settings.variables["UV_FIND_LINKS"] == "/wheels,/more"
    assert settings.arguments == ("--no-index",)


def test_a_python_without_pip_has_no_settings() -> None:
    assert pipsettings.read("false") == {}
