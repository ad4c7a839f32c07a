"""Laws beyond lossless: the closest to the target among all with a given acceptance rate."""

from mdsd_opt.solvers.frontier.relaxation import Relaxation, relax

__all__ = ["Relaxation", "relax"]
