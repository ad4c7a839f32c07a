"""guidellm: its report says nothing of drafts."""

from __future__ import annotations

from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.format import Format


def of_record(record: Any, where: str) -> tuple[()]:
    """Refuse a report of guidellm."""
    report = record if isinstance(record, dict) and "benchmarks" in record else {}
    if "guidellm_version" in str(report.get("metadata")) or "guidellm" in str(report.get("args")):
        raise UnreadableFile(
            f"{where} is a report of guidellm: the metrics of its benchmarks count no drafts. Give "
            "the log or the metrics of the server that it measured"
        )
    return ()


FORMATS = (Format("guidellm", "", of_record=of_record),)
