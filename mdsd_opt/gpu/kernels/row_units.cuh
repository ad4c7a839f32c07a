// What a logit weighs: a share of the row's sum, known from a first pass over the row, so that in
// units of 2^-32 no sum of weights can exceed 32 bits.
//
// Single precision has exponents enough for most rows to be summed relative to nothing. Rows for
// which it has not, or that are not aligned are first searched for their largest logits. The sums only
// set the unit: they may be too large by a bit, and are rounded up, so that the order of their terms
// matters next to never.
#pragma once
#include "packed_rows.cuh"
#include "row_maximum.cuh"

// 2^((logit - base) * scale - shift), which is 256 for all of a row's sum: the exponents of the tokens
// that matter are then between -8 and 8, and as accurate as those are in single precision. What that
// drops of the scale changes the temperature by some 1e-8 of itself.
constexpr float kWholeBits = 8.0f;
constexpr float kUnitsOfWeight = 16777216.0f;  // 2^24

struct Weight {
  float base, shift;

  __device__ __forceinline__ float of_packed(float logit, Sampling scale) const {  // base is zero
    return fast_exp2(__fmaf_rn(logit, scale.high, -shift));
  }
  __device__ __forceinline__ float exponent(float logit, Sampling scale) const {
    return __fmaf_rn(__fsub_rn(logit, base), scale.high, -shift);
  }
  __device__ __forceinline__ float of(float logit, Sampling scale) const {
    return fast_exp2(exponent(logit, scale));
  }
};

enum RowKind { kPackedRow, kAnyRow, kBadRow };

// One side of a row.
template <class T>
struct Logits {
  const T* row;
  Sampling scale;
  Filter filter;

  __device__ __forceinline__ bool leaves_out(int token, float logit) const {
    return filter.leaves_out(token, logit);
  }
  // What is left out has the logit -infinity.
  __device__ __forceinline__ float kept(int token, float logit) const {
    return leaves_out(token, logit) ? -infinity() : logit;
  }
};

template <class T>
__device__ Logits<T> logits_of(Rows<T> rows, long long row, long long inner, Sampling scale) {
  return {rows.row(row, inner), scale, scale.filters ? scale.filters[row] : Filter{-infinity(), -1}};
}

template <class P, class Q>
__device__ __forceinline__ bool is_packed(const Logits<P>& p, const Logits<Q>& q) {
  return is_packed(p.row) && is_packed(q.row);
}

// Whether tokens may be left out, in all rows of a launch alike.
template <class P, class Q>
__device__ __forceinline__ bool is_filtered(const Logits<P>& p, const Logits<Q>& q) {
  return p.scale.filters || q.scale.filters;
}

// `for_each_pack` of what is kept of a row that may be filtered, if kFiltered.
template <bool kFiltered, int kUnroll, class P, class Q, class VisitPack, class VisitToken>
__device__ __forceinline__ void for_each_kept_pack(const Logits<P>& p, const Logits<Q>& q, Share share,
                                                   VisitPack visit_pack, VisitToken visit_token) {
  if (!kFiltered) {
    for_each_pack<kUnroll>(p.row, q.row, share, visit_pack, visit_token);
    return;
  }
  for_each_pack<kUnroll>(
      p.row, q.row, share,
      [&](int token, auto& x, auto& y) {
#pragma unroll
        for (int i = 0; i < kPack<P, Q>; i++) {
          x[i] = p.kept(token + i, x[i]);
          y[i] = q.kept(token + i, y[i]);
        }
        visit_pack(token, x, y);
      },
      [&](int token, float x, float y) { visit_token(token, p.kept(token, x), q.kept(token, y)); });
}

// Sums or maxima of N values over a cluster, in an order fixed by its size.
template <int N, class T = float>
struct TotalScratch {
  T of_warp[N][kMaxWarps];
  T of_block[2][MDSD_CLUSTER_SIZE][N];
};

struct Sum {
  static constexpr int kNothing = 0;
  template <class T>
  __device__ static T join(T a, T b) { return a + b; }
};
struct Greatest {
  static constexpr float kNothing = -3.402823466e38f;  // no logit is below it but -infinity
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

template <class Join, class T>
__device__ __forceinline__ T warp_total(T value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = Join::join(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
}

// Every thread gets the totals. Passes a barrier of the cluster. Of two that follow each other with the
// same scratch one takes each `turn`, so that a slow reader is not overtaken.
template <class Join, int N, class T>
__device__ __forceinline__ void cluster_totals(T (&values)[N], TotalScratch<N, T>& scratch, int turn) {
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < N; i++) {
    T total = warp_total<Join>(values[i]);
    if (lane == 0) scratch.of_warp[i][warp] = total;
  }
  __syncthreads();
  if (warp == 0) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      T mine = lane < blockDim.x >> 5 ? scratch.of_warp[i][lane] : T(Join::kNothing);
      T total = warp_total<Join>(mine);
      if (lane < MDSD_CLUSTER_SIZE)
        in_block(&scratch, lane)->of_block[turn][cluster_rank()][i] = total;
    }
  }
  cluster_sync();
#pragma unroll
  for (int i = 0; i < N; i++) {
    values[i] = scratch.of_block[turn][0][i];
#pragma unroll
    for (int rank = 1; rank < MDSD_CLUSTER_SIZE; rank++)
      values[i] = Join::join(values[i], scratch.of_block[turn][rank][i]);
  }
}

// Sums relative to nothing are of use between these, far from what single precision ends at.
__device__ __forceinline__ bool in_range(float sum) { return sum > 1e-25f && sum < 1e30f; }

// The exponent of a unit for a sum: a hundredth or two more than the sum needs, for the rounding of
// the sum itself and of the weights.
__device__ __forceinline__ float unit_shift(float sum) {
  return (floorf(64.0f * log2f(sum)) + 2.0f) * (1.0f / 64.0f) - kWholeBits;
}

// Sums of weights relative to nothing. In pairs, which saves instructions and costs up to a bit, the
// larger of every two logits counts for both.
template <bool kInPairs, int N>
__device__ __forceinline__ void add_pack(const float (&logits)[N], float scale, float& sum) {
#pragma unroll
  for (int i = 0; i < N; i += kInPairs ? 2 : 1) {
    float logit = kInPairs ? larger_or_nan(logits[i], logits[i + 1]) : logits[i];
    sum += fast_exp2(__fmul_rn(logit, scale));
  }
}

template <bool kInPairs, bool kFiltered, class P, class Q>
__device__ __forceinline__ void add_row(const Logits<P>& p, const Logits<Q>& q, Share share,
                                        float (&sums)[2]) {
  float packs[2] = {0.0f, 0.0f};
  for_each_kept_pack<kFiltered, 2>(
      p, q, share,
      [&](int, const auto& x, const auto& y) {
        add_pack<kInPairs>(x, p.scale.high, packs[0]);
        add_pack<kInPairs>(y, q.scale.high, packs[1]);
      },
      [&](int, float x, float y) {
        sums[0] += fast_exp2(__fmul_rn(x, p.scale.high));
        sums[1] += fast_exp2(__fmul_rn(y, q.scale.high));
      });
  sums[0] += kInPairs ? 2.0f * packs[0] : packs[0];
  sums[1] += kInPairs ? 2.0f * packs[1] : packs[1];
}

struct UnitScratch {
  TotalScratch<2> totals;
  MaximaScratch maxima;
};

struct RowUnits {
  Weight p, q;
  int kind;
};

template <class P, class Q>
__device__ RowUnits row_units(const Logits<P>& p, const Logits<Q>& q, Share share, bool in_pairs,
                              UnitScratch& scratch) {
  float sums[2] = {0.0f, 0.0f};
  bool packed = is_packed(p, q);
  cluster_arrive();
  if (packed && is_filtered(p, q))
    add_row<false, true>(p, q, share, sums);
  else if (packed && in_pairs)
    add_row<true, false>(p, q, share, sums);
  else if (packed)
    add_row<false, false>(p, q, share, sums);
  cluster_wait();  // totals are written to all blocks, which must have begun
  if (packed) {
    cluster_totals<Sum>(sums, scratch.totals, 0);
    if (in_range(sums[0]) && in_range(sums[1]))
      return {{0.0f, unit_shift(sums[0])}, {0.0f, unit_shift(sums[1])}, kPackedRow};
  }
  Maxima maxima = row_maxima(p.row, q.row, share, scratch.maxima);
  if (maxima.is_bad) return {{0.0f, 0.0f}, {0.0f, 0.0f}, kBadRow};
  Weight p_weight{maxima.target, 0.0f}, q_weight{maxima.draft, 0.0f};
  sums[0] = sums[1] = 0.0f;
  for_each_token(p.row, q.row, share, [&](int token, float x, float y) {
    sums[0] += p_weight.of(p.kept(token, x), p.scale);
    sums[1] += q_weight.of(q.kept(token, y), q.scale);
  });
  cluster_totals<Sum>(sums, scratch.totals, 1);
  p_weight.shift = unit_shift(sums[0]);
  q_weight.shift = unit_shift(sums[1]);
  return {p_weight, q_weight, kAnyRow};
}
