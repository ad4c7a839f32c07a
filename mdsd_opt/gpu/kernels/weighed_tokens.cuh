// Every token of a block's share of a row, with its weights: a pass over the row.
#pragma once
#include "ratio_sums.cuh"

template <bool kFiltered, class P, class Q, class Add>
__device__ __forceinline__ void for_each_weighed_pack(const Logits<P>& p, const Logits<Q>& q,
                                                      Share share, const RowUnits& units, Add add) {
  constexpr int N = kPack<P, Q>;
  Dithers<N> dithers;
  auto add_packed = [&](float x, float y, float dither) {
    add(units.p.of_packed(x, p.scale), units.q.of_packed(y, q.scale), x, y, dither);
  };
  for_each_kept_pack<kFiltered, N == 4 ? 2 : 1>(
      p, q, share,
      [&](int, const float (&x)[N], const float (&y)[N]) {
#pragma unroll
        for (int i = 0; i < N; i++) add_packed(x[i], y[i], dithers.of[i]);
      },
      [&](int token, float x, float y) { add_packed(x, y, dither_of(token)); });
}

// Call add(p_weight, q_weight, p_logit, q_logit, dither). What is left out weighs nothing, and its
// logit is -infinity.
template <class P, class Q, class Add>
__device__ __forceinline__ void for_each_weighed_token(const Logits<P>& p, const Logits<Q>& q,
                                                       Share share, const RowUnits& units, Add add) {
  if (units.kind == kPackedRow && is_filtered(p, q)) {
    for_each_weighed_pack<true>(p, q, share, units, add);
  } else if (units.kind == kPackedRow) {
    for_each_weighed_pack<false>(p, q, share, units, add);
  } else {
    for_each_token(p.row, q.row, share, [&](int token, float x, float y) {
      x = p.kept(token, x);
      y = q.kept(token, y);
      add(units.p.of(x, p.scale), units.q.of(y, q.scale), x, y, dither_of(token));
    });
  }
}
