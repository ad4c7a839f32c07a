"""Clocks of a machine that takes MDSD_OPT_SLOW times as long for all that it does but sleep.

Python runs this first in every process that has the folder on its path.
"""

import os
import time


def slow_down(times):
    """Let all clocks but that of the wall run so many times as fast, and naps end the earlier."""
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        real, real_ns = getattr(time, name), getattr(time, f"{name}_ns")
        setattr(time, name, lambda real=real: real() * times)
        setattr(time, f"{name}_ns", lambda real_ns=real_ns: int(real_ns() * times))
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(seconds / times)


slow_down(float(os.environ["MDSD_OPT_SLOW"]))
