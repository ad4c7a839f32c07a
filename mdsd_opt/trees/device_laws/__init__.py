"""Laws that stay on the device of a model's logits, and the optimal rule on small copies of them.

Data flows: logits -> `weights` (integers that are the laws) -> `tables` (sums over bins of p/q, the
only copy to the host) -> `laws` (linear in each bin) -> the rules of `decoding` -> one extra token,
drawn on the device.
"""
