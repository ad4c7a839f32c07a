"""Decisions about whole trees of drafts, in the form that serving engines call."""

from mdsd_opt.serving.verification import verify_tree

__all__ = ["verify_tree"]
