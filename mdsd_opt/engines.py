"""Public name of `mdsd_opt.auditing.engines`: the same module, under the name that users give."""

import sys

from mdsd_opt.auditing import engines

sys.modules[__name__] = engines
