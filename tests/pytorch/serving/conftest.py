"""Triton kernels run on the CPU: that has to be said before anything imports Triton."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
