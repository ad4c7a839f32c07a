"""What engines write, read in one place: counts of drafts, times, batches, and log-probabilities.

`engines` has one file for each engine or tool, found by its name; each number that a file says
twice is a check (`checks`). `counts` and `answer` are the two forms that everything is read into,
`content` opens files, streams, standard input and addresses.
"""

import lazy_loader

__all__ = [
    "AcceptedCounts", "Answer", "Format", "Measured", "Passes", "answers_of", "formats",
    "read_answers", "read_counts", "read_steps", "summary",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
