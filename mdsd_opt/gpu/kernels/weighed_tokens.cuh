// Every token of a block's share of a row, with its weights: a pass over the row.
#pragma once
#include "ratio_sums.cuh"

// Call add(p_weight, q_weight, p_logit, q_logit, dither), and after some tokens after(again), where
// again(visit) calls visit(p_weight, q_weight, dither) for each of these once more. What is left out
// weighs nothing, and its logit of p is -infinity.
template <class P, class Q, class Add, class After = NothingAfter>
__device__ __forceinline__ void for_each_weighed_token(const Logits<P>& p, const Logits<Q>& q,
                                                       Share share, const RowUnits& units,
                                                       Add add, After after = {}) {
  if (units.kind == kPackedRow) {
    constexpr int N = kPack<P, Q>;
    Dithers<N> dithers;
    for_each_pack<N == 4 ? 2 : 1>(
        p.row, q.row, share,
        [&](const float (&x)[N], const float (&y)[N]) {
#pragma unroll
          for (int i = 0; i < N; i++)
            add(units.p.of_packed(x[i], p.scale), units.q.of_packed(y[i], q.scale), x[i], y[i],
                dithers.of[i]);
        },
        [&](int token, float x, float y) {
          float p_weight = units.p.of_packed(x, p.scale), q_weight = units.q.of_packed(y, q.scale);
          add(p_weight, q_weight, x, y, dither_of(token));
          after([&](auto visit) { visit(p_weight, q_weight, dither_of(token)); });
        },
        [&](auto again) {
          after([&](auto visit) {
            again([&](const float (&x)[N], const float (&y)[N]) {
#pragma unroll
              for (int i = 0; i < N; i++)
                visit(units.p.of_packed(x[i], p.scale), units.q.of_packed(y[i], q.scale),
                      dithers.of[i]);
            });
          });
        });
  } else {
    for_each_token(p.row, q.row, share, [&](int token, float x, float y) {
      bool p_is_out = p.leaves_out(token, x);
      float p_weight = p_is_out ? 0.0f : units.p.of(x, p.scale);
      float q_weight = q.leaves_out(token, y) ? 0.0f : units.q.of(y, q.scale);
      add(p_weight, q_weight, p_is_out ? -infinity() : x, y, dither_of(token));
      after([&](auto visit) { visit(p_weight, q_weight, dither_of(token)); });
    });
  }
}
