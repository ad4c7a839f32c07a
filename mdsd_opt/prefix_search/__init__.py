"""Search for the best prefix of the tokens in order of p/q.

Collect tokens in buckets of the ratio, bound what a prefix that ends inside a bucket can gain
(`bucket_kernels`), and open the buckets that may. For drafts without replacement the race of
exponential clocks says what lies in a prefix (`race_kernels`). There are two drivers:

- `batch_rates` asks for the *rate* of rows of logits, for many K at once. It keeps nothing but the
  least objectives, and weighs in the precision in which logits are stored. (Fixed drafts, greedy
  and top-K, share the weighing; they leave nothing to search.)
- `cut_search` asks for the *cut* of one row of probabilities, for one K. It keeps the groups:
  *decisions* are made from them, where the cut is not all that matters, and what the *certificate*
  states is proven with them.

Where a certified loss will do, nothing is opened: `bins` are summed once, and what their prefixes
contain is known of groups of them.

Kernels take scalars and arrays to work in, and make none: what numba compiles while the user waits
is mostly what arrays are made of.
"""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
