"""Compiled building blocks that several rooms share: powers of two, sums, buckets, the race."""
