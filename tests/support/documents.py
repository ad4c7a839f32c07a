"""What commands print with --json, held against the schemas of their verbs."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
_SPEC = importlib.util.spec_from_file_location("json_schemas", DOCS / "json_schemas.py")
assert _SPEC is not None
assert _SPEC.loader is not None
json_schemas = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(json_schemas)


@cache
def validator(name: str) -> Any:
    """Validator of the documents of this name."""
    from jsonschema import Draft202012Validator

    schema = json_schemas.schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check_document(verb: str, document: Any) -> None:
    """Assert that a document of a verb is as one of its schemas says; of models there are none."""
    names = [x for x in json_schemas.DOCUMENTS if x.partition("-")[0] == verb]
    if names and not any(validator(x).is_valid(document) for x in names):
        errors = (error for x in names for error in validator(x).iter_errors(document))
        raise AssertionError("\n".join(f"{x.json_path}: {x.message:.200}" for x in errors))
