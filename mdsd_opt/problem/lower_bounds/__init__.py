"""Proofs of lower bounds on min_H [P(H) - Q(H)] that a solution can bring along."""
