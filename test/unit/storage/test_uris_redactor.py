"""The rules of redaction.py."""

from __future__ import annotations

import pytest

from tfjob_controller.storage.uris import Redactor

ENVIRON = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalr/secret+x",
    "HF_TOKEN": "hf_tokentoken",
    "MY_PASSWORD": "hunter22",
    "LONGER_SECRET": "hunter22hunter22",
    "SHORT_KEY": "abc",
    "GOOGLE_APPLICATION_CREDENTIALS": "/secrets/key.json",
    "HOME": "/home/somebody",
    "DB_PASS": "correct horse",
    "SSH_PWD": "/begins/with/a/slash",
    "PRIVATE_KEY": "-----BEGIN-----\nline one of it\nline two of it\n-----END-----\n",
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("no AKIAEXAMPLE here", "no *** here", id="key"),
        pytest.param("sig wJalr/secret+x.", "sig ***.", id="secret key"),
        pytest.param("Bearer hf_tokentoken", "Bearer ***", id="token"),
        pytest.param("hunter22hunter22", "***", id="one secret within another"),
        pytest.param("abc /home/somebody", "abc /home/somebody", id="what is short or no secret"),
        pytest.param("cannot read /secrets/key.json", "cannot read /secrets/key.json", id="path of a secret"),
        pytest.param("two\nlines\t and  more", "two lines and more", id="one line"),
        pytest.param("a\udcff", "a\\udcff", id="a name that is no text"),
        pytest.param("x" * 2000, "x" * 999 + "…", id="very long"),
        pytest.param("GET https://b/o?X-Amz-Signature=12 failed", "GET https://b/o?*** failed", id="URL"),
        pytest.param("login correct horse", "login ***", id="of a database"),
        pytest.param("correct%20horse and correct+horse", "*** and ***", id="quoted in a URL"),
        pytest.param("got /begins/with/a/slash", "got ***", id="it begins as a path does"),
        pytest.param("bad key: line two of it", "bad key: ***", id="a line of several"),
        pytest.param("-----BEGIN-----\nline one of it\nline two of it\n-----END-----", "***", id="all lines"),
        pytest.param("'-----BEGIN-----\\nline one of it\\nx", "'***\\n***\\nx", id="some lines, escaped"),
        pytest.param("open 'https://h/f?a='secret' failed", "open 'https://h/f?***' failed", id="a quote in a query"),
    ],
)
def test_no_secret_of_the_environment_is_shown(text: str, shown: str) -> None:
    assert Redactor(ENVIRON)(text) == shown
