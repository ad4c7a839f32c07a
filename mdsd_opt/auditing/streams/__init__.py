"""Audit of streams of random numbers: which draws of a sampler are shared that should not be."""
