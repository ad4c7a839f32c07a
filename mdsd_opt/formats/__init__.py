"""What engines write, read in one place: counts of drafts, times, batches, and log-probabilities.

`reading` opens a file with the one format that knows it; `content` has what a file is before it is
of an engine: text, records, streams, addresses. `checks` has numbers that know what they are
called, tables of them, and the laws that they obey. `counts` and `answer` are the two forms that
everything is read into: counts of drafts, and texts with log-probabilities. Each engine or tool has
a file with `FORMATS`, by which it is found, and those that need little share `few_fields`.
"""

import lazy_loader

__all__ = [
    "AcceptedCounts", "Answer", "Format", "Measured", "Passes", "answers_of", "formats",
    "read_answers", "read_counts", "read_steps", "summary",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
