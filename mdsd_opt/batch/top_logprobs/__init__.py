"""Acceptance rates where only the likeliest tokens are known: certified intervals."""

from mdsd_opt.batch.top_logprobs.interval import AcceptanceInterval, acceptance_interval

__all__ = ["AcceptanceInterval", "acceptance_interval"]
