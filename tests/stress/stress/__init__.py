"""Adversarial problems held against exact rationals: what is tried, and against what."""
