"""Names of the API reference; of the last release they are recorded, anew with each release:

python tests/support/api_names.py
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RELEASED = ROOT / "tests" / "package" / "released_names.txt"


def api_names() -> list[str]:
    """Full names in the API reference, each as often as it stands there."""
    text = "".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    names = re.findall(r"^\.\. auto(?:class|function):: (\S+)$", text, re.MULTILINE)
    for module in re.findall(r"^\.\. automodule:: (\S+)$", text, re.MULTILINE):
        room = importlib.import_module(module)
        names += [f"{module}.{name}" for name, x in vars(room).items()
                  if getattr(x, "__module__", None) == module]  # fmt: skip
    return names


def found(name: str) -> object:
    """What a dotted name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


if __name__ == "__main__":
    RELEASED.write_text("".join(f"{name}\n" for name in sorted({*api_names()})))
