"""guidellm: its report says nothing of drafts."""

from __future__ import annotations

from typing import Any

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.format import Format


def of_record(record: Any, where: str) -> None:
    """Refuse a report of guidellm."""
    if not isinstance(record, dict) or "benchmarks" not in record:
        return
    if "guidellm_version" in str(record.get("metadata")) or "guidellm" in str(record.get("args")):
        raise UnreadableFile(
            f"{where} is a report of guidellm: the metrics of its benchmarks count no drafts. Give "
            "the log or the metrics of the server that it measured"
        )


FORMATS = (Format("guidellm", "", of_record=of_record),)
