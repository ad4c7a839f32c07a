"""One search for the best prefix of the tokens in order of p/q.

Weigh the logits, collect tokens in buckets of the ratio, bound what a prefix that ends inside a
bucket can gain, and open the buckets that may: batches of rates and single decisions ask the same
question. For drafts without replacement the race of exponential clocks says what lies in a prefix.

Kernels take scalars and arrays to work in, and make none: what numba compiles while the user waits
is mostly what arrays are made of.
"""
