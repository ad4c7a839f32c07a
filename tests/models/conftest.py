"""One thread: two that wait for each other on a busy machine take tens of times as long."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported, here and in commands
