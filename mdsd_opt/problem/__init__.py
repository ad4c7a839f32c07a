r"""Transport problem of multi-draft verification, stated once.

Given a target law p and a joint law of the drafts x = (x_1..x_K), choose the law of the output Y
given the drafts, with Y ~ p exactly, to maximise the acceptance rate Pr(Y in {X_1..X_K}). With
C(i, S) the probability that the draft set is S and the accepted token is i:

.. math::

   \alpha^* = \max_{C \ge 0} \sum_S \sum_{i \in S} C(i, S) \quad\text{s.t.}\quad
   \sum_S C(i, S) \le p_i, \qquad \sum_{i \in S} C(i, S) \le W_S = \Pr(\{X_1..X_K\} = S).

It is a bipartite maximum flow, so by min cut, for any law of the drafts [Hu25],

.. math:: \alpha^* = 1 + \min_{H \subseteq [V]} \bigl[ P(H) - Q(H) \bigr],
          \qquad Q(H) = \Pr(X_1..X_K \in H).

- `transport_problem`: `TransportProblem`, a target and a draft scheme
- `solution`: what a solver claims, and plans of transport; `lower_bounds`: other evidence
- `certificate`: recomputes both bounds from the problem alone, and trusts no solver
- `water_filling`: the law of the selected draft, which a subset determines
- `files`: problems as JSON, .npz or .safetensors
"""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
