"""Verification algorithms, one file each."""
