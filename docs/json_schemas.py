"""JSON Schemas of what verbs print with --json: python docs/json_schemas.py writes docs/schemas.

A schema is what a document declares: the columns and fields of its results, and their types. That
of problems is written by hand, beside them.
"""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, reduce
from operator import or_
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from mdsd_opt.base.frames import Column, Result

SCHEMAS = Path(__file__).parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

#: Documents of each verb, by the name of their schema: the verb, and perhaps what it is of.
DOCUMENTS = {
    "rates": "cli.verbs.rates:Rates",
    "rates-accepted": "cli.verbs.rates:EngineRates",
    "rates-servers": "cli.verbs.rates:OfServers",
    "rates-drafts": "planning:DraftComparison",
    "advise": "cli.verbs.advise:Sourced[planning:Advice]",
    "advise-models": "cli.verbs.advise:Sourced[planning:ModelAdvice]",
    "advise-counts": "cli.verbs.advise:OfCounts",
    "advise-drafts": "planning:DraftComparison",
    "solve": "cli.verbs.solve:Solved",
    "plan": "cli.verbs.plan:Planned",
    "relax": "cli.verbs.relax:Relaxed",
    "check": "cli.verbs.check:Checked",
    "check-claims": "cli.verbs.check:Claims",
    "condition": "cli.verbs.check:Checked",
    "search": "cli.verbs.check:Searched",
    "prove": "cddlib_checks:LawProof",
    "audit-verifier": "cli.audits:Answered[auditing:AuditReport]",
    "audit-laws": "cli.audits:Answered[auditing:PortfolioReport]",
    "audit-texts": "cli.audits:Answered[auditing:TextAuditReport]",
    "audit-trees": "cli.audits:Answered[auditing:TreeAuditReport]",
    "audit-tokens": "cli.audits:Answered[servers:ServerReport]",
    "audit-engine": "cli.audits:Engines",
    "bench": "bench:BenchReport",
    "reproduce": "corpora:Reproduction",
    "decode": "cli.verbs.decode:Decoded",
    "decode-compare": "cli.verbs.decode:Compared",
}

#: Types of JSON; a number that is not finite is null.
_PLAIN = {
    NoneType: "null",
    bool: "boolean",
    int: "integer",
    float: ["number", "null"],
}


def schema(name: str) -> dict[str, Any]:
    """Schema of the documents of this name."""
    outer, _, inner = DOCUMENTS[name].partition("[")
    kind = _named(outer)
    of = _object(kind[_named(inner[:-1])] if inner else kind)
    return {
        "$schema": DIALECT,
        "title": f"mdsd-opt {name.partition('-')[0]} --json",
        **of,
    }


def _named(place: str) -> Any:
    room, _, name = place.partition(":")
    return getattr(importlib.import_module(f"mdsd_opt.{room}"), name)


def schema_of(hint: Any) -> dict[str, Any]:
    """Schema of the values of a type, as `plain` makes them ready for JSON."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is Any:
        return {}
    if kind in (Union, UnionType):
        return _any_of([schema_of(x) for x in parts])
    if kind is Literal:
        return {"enum": [*parts]}
    if issubclass(kind, Enum):
        return {"enum": [x.value for x in kind]}
    if issubclass(kind, (str, PurePath, Fraction)):
        return {"type": "string"}
    if issubclass(kind, Result) or _fields(kind):
        return _object(hint)
    if issubclass(kind, Callable):
        return {"const": "function"}
    if issubclass(kind, Mapping):
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    if kind is tuple and ... not in parts:
        items = [schema_of(x) for x in parts]
        length = len(items)
        return {
            "type": "array",
            "prefixItems": items,
            "minItems": length,
            "maxItems": length,
        }
    return {"type": "array", "items": schema_of(parts[0])}


def _any_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    kinds: dict[str, None] = {}
    for choice in choices:
        if [*choice] != ["type"]:
            return {"anyOf": choices}
        kind = choice["type"]
        kinds |= dict.fromkeys([kind] if isinstance(kind, str) else kind)
    return {"type": [*kinds]}


def _object(hint: Any) -> dict[str, Any]:
    """Schema of the fields of a dataclass or named tuple, or of what a result tells."""
    properties: dict[str, Any] = {}
    needed, others = [], False
    for name, part, is_needed in _members(hint):
        if name:
            properties[name] = part
            needed += [name] if is_needed and name not in needed else []
        else:
            others = part
    return {
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": others,
    }


def _fields(kind: Any) -> list[str]:
    """Names of the fields of a dataclass, named tuple or typed dictionary; none of others."""
    if is_dataclass(kind):
        return [x.name for x in fields(kind)]
    return [
        *(
            kind.__annotations__
            if is_typeddict(kind)
            else getattr(kind, "_fields", ())
        )
    ]


def _members(hint: Any) -> Iterator[tuple[str, Any, bool]]:
    """Names with their schemas, and whether each is always there; "" for names of any kind."""
    kind = get_origin(hint) or hint
    if not issubclass(kind, Result):
        needed = getattr(kind, "__required_keys__", _fields(kind))
        for name in _fields(kind):
            yield name, schema_of(declared(hint, name)), name in needed
        return
    if kind.to_dict is not Result.to_dict:
        raise AssertionError(f"{kind.__name__} tells more than its columns")
    for key in kind.all_columns():
        if isinstance(key, Column):
            path = key.of if isinstance(key.of, str) else key.key
            holds = declared(hint, path) if key.holds is None else key.holds
            yield key.key, schema_of(holds), True
        elif key.startswith("*"):
            part, may_lack = _without_none(declared(hint, key[1:]))
            if _fields(get_origin(part) or part):
                for name, each, needed in _members(part):
                    yield name, each, needed and not may_lack
            else:
                yield "", schema_of(get_args(part)[1]), False
        else:
            name = key.removesuffix("?")
            yield name, schema_of(declared(hint, name)), name == key


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Type without None, and whether that was one of its choices."""
    choices = get_args(hint)
    if NoneType not in choices:
        return hint, False
    return reduce(or_, (x for x in choices if x is not NoneType)), True


def declared(hint: Any, path: str) -> Any:
    """Type of a field or property, by its annotation; dotted where it is one of a field."""
    name, _, rest = path.partition(".")
    kind = get_origin(hint) or hint
    for base in kind.__mro__:
        found = vars(base).get(name)
        if isinstance(found, property):
            words = found.fget.__annotations__["return"]
        elif name in (own := vars(base).get("__annotations__", {})):
            words = own[name]
        else:
            continue
        words = getattr(words, "__forward_arg__", words)
        of = (
            eval(words, names_of(base.__module__))
            if isinstance(words, str)
            else words
        )
        if isinstance(of, TypeVar):
            (of,) = get_args(hint)
        if not rest:
            return of
        part, may_lack = _without_none(of)
        return declared(part, rest) | None if may_lack else declared(part, rest)
    raise AssertionError(f"{kind.__name__} does not say the type of {name}")


@cache
def names_of(module: str) -> dict[str, Any]:
    """Names of a module, and those that it imports for types alone."""
    found = importlib.import_module(module)
    tree = ast.parse(Path(str(found.__file__)).read_text(encoding="utf-8"))
    names = dict(vars(found))
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module, "exec"), names)
    return names


def write() -> None:
    for name in DOCUMENTS:
        path = SCHEMAS / f"{name}.schema.json"
        path.write_text(json.dumps(schema(name), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
