"""The rules of `api.common.storagevalidation` in CEL, and the schema of variables, for all kinds of jobs."""

from __future__ import annotations

from generate.podtemplate import kubernetes_schema
from generate.rules import Rule, quoted, rule_of
from generate.schema import Schema, keyed
from tfjob_controller.api.common import storagevalidation as messages
from tfjob_controller.api.common.storage import INPUT_URI, LOGIN_IN_URI, OUTPUT_URI
from tfjob_controller.kube.names import MAX_NAME


def checked(rules: list[Rule]) -> Schema:
    return {"x-kubernetes-validations": rules}


def required_text(longest: int) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": longest}


def uri_rules(field: str, allowed: str, otherwise: str) -> list[Rule]:
    """Of what holds the URI: a rule of the URI itself would have the API server show it, with the password in it."""
    return [
        rule_of(f"!has(self.{field}) || self.{field}.matches({quoted(allowed)})", otherwise, at=f".{field}"),
        rule_of(
            f"!has(self.{field}) || !self.{field}.matches({quoted(LOGIN_IN_URI)})",
            messages.URI_WITH_LOGIN,
            at=f".{field}",
        ),
    ]


INPUT_RULES = uri_rules("storageUri", INPUT_URI, messages.UNKNOWN_SOURCE)
OUTPUT_RULES = uri_rules("storageUri", OUTPUT_URI, messages.UNKNOWN_TARGET)

ENV: Schema = {
    "items": kubernetes_schema("EnvVar", {("EnvVar", "name"): required_text(MAX_NAME)}),
    **keyed("name"),
}
