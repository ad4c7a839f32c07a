"""Triton's kernels are interpreted, which Triton reads once, when anything imports it."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
