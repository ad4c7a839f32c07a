"""Tools of every room. Public are `mdsd_opt.softmax` and `mdsd_opt.show_versions` alone.

- `arrays`: their types in annotations; arrays of any library, to NumPy and back; logits,
  log-probabilities or probabilities
- `distributions`: logits and weights to validated probabilities; filters; exact twins
- `checked`: tolerances, amounts, seeds, and arrays of a kind that callers give
- `logits`, `sampling`: a pair of logits, the door of all functions of two models; temperature and
  filters; `keywords`: arguments as they were in earlier versions
- `foreign`: code of others, which may not end the program
- `files`: bytes, JSON, arrays, logits and engines' output, however broken a file is
- `numba_cache`: how kernels are compiled, and where they are kept
- `long_runs`: threads, the progress bar and the line of a verb that is silent
- `frames`: results as data frames and as lines of text
- `registry`: what is known by name, and how a room holds it
- `installed`: versions, and what a user names as ``"module:attribute"``
"""
