"""Verdicts of audits as JUnit's XML, which continuous integration shows as tests."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from mdsd_opt._version import __version__
from mdsd_opt.base.files import atomic_write

#: Letters that XML cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class TestCase:
    """Verdict on one subject: passed where the exit code is 0, failed for 1, else undecided."""

    __test__ = False  # it is none of pytest's

    subject: str
    code: int
    verdict: str
    rows: Sequence[tuple[str, str]] = ()


def save_junit(path: str | os.PathLike[str], cases: Sequence[TestCase]) -> None:
    """Write the verdicts, a test each; undecided ones are errors, which a pipeline stops at."""
    counts = {"tests": len(cases), "failures": sum(case.code == 1 for case in cases)}
    counts["errors"] = sum(case.code not in (0, 1) for case in cases)
    told = {name: str(count) for name, count in counts.items()}
    suites = ElementTree.Element("testsuites", told)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "mdsd-opt audit", **told})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "mdsd_opt", "value": __version__})
    for case in cases:
        named = {"classname": "mdsd_opt.audit", "name": _clean(case.subject)}
        test = ElementTree.SubElement(suite, "testcase", named)
        if case.code:
            kind = "failure" if case.code == 1 else "error"
            found = ElementTree.SubElement(test, kind, {"message": _clean(case.verdict)})
            found.text = _clean(case.verdict)
        out = ElementTree.SubElement(test, "system-out")
        out.text = _clean("\n".join(f"{label}: {value}" for label, value in case.rows))
    ElementTree.indent(suites)
    with atomic_write(path) as file:
        ElementTree.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
