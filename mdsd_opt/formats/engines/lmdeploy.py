"""LMDeploy: its log has vLLM's fields in another order, behind the requests that run."""

from __future__ import annotations

import re

from mdsd_opt.formats.engines import vllm
from mdsd_opt.formats.format import Format

FORMATS = (
    Format(
        "LMDeploy's log",
        "lines with 'Engine (running/waiting)' and 'SpecDecoding metrics:'",
        marker=re.compile(r"\(running/waiting\).*SpecDecoding metrics:"),
        of_text=vllm.of_log,
    ),
)
