// Acceptance of two baselines, drafts with replacement: recursive rejection sampling, and K-SEQ of
// [SpecTr].
//
// Both need nothing but overlap(c) = sum of min(p, c q). Recursive rejection: after each rejected
// draft the residual is (p - c q)+ up to a factor, with c = 1 first and c + 1 - overlap(c) next, and
// K drafts accept overlap(c_K). K-SEQ: the least rho in [1, K] with 1 - (1 - beta)^K <= rho beta for
// rho beta = overlap(rho) accepts 1 - (1 - beta)^K.
#pragma once
#include "cluster_sum.cuh"
#include "logits.cuh"
#include "row_maximum.cuh"

constexpr int kScales = 8;

struct RejectionMemory {
  u64 sums[2][kMaxWarps];
  MaximaScratch maxima;
};

// overlap(c) for kScales values of c at once.
template <class P, class Q>
__device__ void overlaps(const Side<P>& p, const Side<Q>& q, Share share, int bits, double p_total,
                         double q_total, const double* scales, int num_scales,
                         ClusterSum& cluster_sum, double* result) {
  u64 sums[kScales] = {};
  double factors[kScales];
#pragma unroll
  for (int i = 0; i < kScales; i++) factors[i] = i < num_scales ? scales[i] * p_total / q_total : 0;
  for_each_token(p.row, q.row, share, [&](int token, float p_logit, float q_logit) {
    double p_weight = static_cast<double>(weight(p.exponent(token, p_logit), bits));
    double q_weight = static_cast<double>(weight(q.exponent(token, q_logit), bits));
#pragma unroll
    for (int i = 0; i < kScales; i++)
      if (i < num_scales) sums[i] += in_units(fmin(p_weight, q_weight * factors[i]));
  });
#pragma unroll
  for (int i = 0; i < kScales; i++)
    if (i < num_scales) result[i] = fmin(static_cast<double>(cluster_sum.of(sums[i])) / p_total, 1.0);
}

// 1 - (1 - beta)^K without cancellation.
__device__ inline double some_test_passes(double beta, int k) {
  return beta >= 1.0 ? 1.0 : -expm1(k * log1p(-beta));
}

// One cluster a row; see `ratio_tables` for the arguments. `is_kseq` is 0 for recursive
// rejection.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    rejection(const P* target, long long target_outer, long long target_inner, const Q* draft,
              long long draft_outer, long long draft_inner, long long inner, int vocab_size, float target_high, float target_low, const Filter* target_filters,
              float draft_high, float draft_low, const Filter* draft_filters, int bits, int is_kseq,
              const int* counts, int num_counts, double* rates, int* is_bad) {
  RejectionMemory& memory = *reinterpret_cast<RejectionMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  bool is_first = cluster_rank() == 0 && threadIdx.x == 0;

  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
  if (is_first) is_bad[row] = maxima.is_bad;
  if (!maxima.is_bad) {
    Side<P> p = make_side(p_row, {target_high, target_low, target_filters}, row, maxima.target);
    Side<Q> q = make_side(q_row, {draft_high, draft_low, draft_filters}, row, maxima.draft);
    ClusterSum cluster_sum(memory.sums);
    u64 p_sum = 0, q_sum = 0;
    for_each_token(p_row, q_row, share, [&](int token, float p_logit, float q_logit) {
      p_sum += weight(p.exponent(token, p_logit), bits);
      q_sum += weight(q.exponent(token, q_logit), bits);
    });
    double p_total = static_cast<double>(cluster_sum.of(p_sum));
    double q_total = static_cast<double>(cluster_sum.of(q_sum));
    double scales[kScales], found[kScales];
    if (is_kseq) {
      for (int j = 0; j < num_counts; j++) {
        int k = counts[j];
        double low = 1.0, high = k, accepted = 0.0;
        // Whatever is below `low` is not lossless; `high` is. Each round leaves an eighth.
        for (bool is_last = false; !is_last;) {
          is_last = high - low < 1e-7;
          double step = (high - low) / kScales;
          for (int i = 0; i < kScales; i++) scales[i] = is_last ? high : low + step * i;
          overlaps(p, q, share, bits, p_total, q_total, scales, is_last ? 1 : kScales, cluster_sum,
                   found);
          accepted = some_test_passes(found[0] / scales[0], k);
          if (is_last || accepted <= found[0]) break;
          double new_low = scales[kScales - 1], new_high = high;
          for (int i = kScales - 1; i > 0; i--) {
            if (some_test_passes(found[i] / scales[i], k) > found[i]) continue;
            new_low = scales[i - 1];
            new_high = scales[i];
          }
          low = new_low;
          high = new_high;
        }
        if (is_first) rates[row * num_counts + j] = accepted;
      }
    } else {
      int most = 1;
      for (int j = 0; j < num_counts; j++) most = max(most, counts[j]);
      scales[0] = 1.0;
      for (int k = 1; k <= most; k++) {
        overlaps(p, q, share, bits, p_total, q_total, scales, 1, cluster_sum, found);
        for (int j = 0; j < num_counts; j++)
          if (is_first && counts[j] == k) rates[row * num_counts + j] = found[0];
        scales[0] += 1.0 - found[0];
      }
    }
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
