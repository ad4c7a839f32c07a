// Every token of a block's share of a row, with its weights: a pass over the row.
#pragma once
#include "ratio_sums.cuh"

// Call add(p_weight, q_weight, p_logit, q_logit, dither). What is left out weighs nothing, and its
// logit of p is -infinity.
template <class P, class Q, class Add>
__device__ __forceinline__ void for_each_weighed_token(const Logits<P>& p, const Logits<Q>& q,
                                                       Share share, const RowUnits& units, Add add) {
  if (units.kind == kPackedRow) {
    constexpr int N = kPack<P, Q>;
    Dithers<N> dithers;
    auto add_packed = [&](float x, float y, float dither) {
      add(units.p.of_packed(x, p.scale), units.q.of_packed(y, q.scale), x, y, dither);
    };
    for_each_pack<N == 4 ? 2 : 1>(
        p.row, q.row, share,
        [&](const float (&x)[N], const float (&y)[N]) {
#pragma unroll
          for (int i = 0; i < N; i++) add_packed(x[i], y[i], dithers.of[i]);
        },
        [&](int token, float x, float y) { add_packed(x, y, dither_of(token)); });
  } else {
    for_each_token(p.row, q.row, share, [&](int token, float x, float y) {
      bool p_is_out = p.leaves_out(token, x);
      float p_weight = p_is_out ? 0.0f : units.p.of(x, p.scale);
      float q_weight = q.leaves_out(token, y) ? 0.0f : units.q.of(y, q.scale);
      add(p_weight, q_weight, p_is_out ? -infinity() : x, y, dither_of(token));
    });
  }
}
