"""Beyond lossless: the law closest to the target among all that allow a given acceptance rate."""

from mdsd_opt.solvers.frontier.relaxation import Relaxation, relax

__all__ = ["Relaxation", "relax"]
