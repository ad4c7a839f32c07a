"""Verbs, one in each file: its options, and its view."""
