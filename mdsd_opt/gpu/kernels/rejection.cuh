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

constexpr int kScales = 2;

struct RejectionMemory {
  u64 sums[2][kMaxWarps];
  MaximaScratch maxima;
};

// overlap(c) for up to kScales values of c at once, and the slope at the first of them, which is q of the
// tokens with p above c q.
template <class P, class Q>
__device__ void overlaps(const Side<P>& p, const Side<Q>& q, Share share, int bits, double p_total,
                         double q_total, const double (&scales)[kScales], int num_scales,
                         ClusterSum& cluster_sum, double (&result)[kScales], double* slope) {
  u64 sums[kScales] = {}, below = 0;
  double factors[kScales];
#pragma unroll
  for (int i = 0; i < kScales; i++) factors[i] = scales[i] * p_total / q_total;
  for_each_token(p.row, q.row, share, [&](int token, float p_logit, float q_logit) {
    u64 q_units = weight(q.exponent(token, q_logit), bits);
    double p_weight = static_cast<double>(weight(p.exponent(token, p_logit), bits));
    double q_weight = static_cast<double>(q_units);
#pragma unroll
    for (int i = 0; i < kScales; i++)
      if (i < num_scales) sums[i] += in_units(fmin(p_weight, q_weight * factors[i]));
    if (slope) below += q_weight * factors[0] < p_weight ? q_units : 0;
  });
#pragma unroll
  for (int i = 0; i < kScales; i++)
    if (i < num_scales) result[i] = fmin(static_cast<double>(cluster_sum.of(sums[i])) / p_total, 1.0);
  if (slope) *slope = static_cast<double>(cluster_sum.of(below)) / q_total;
}

// 1 - (1 - beta)^K without cancellation.
__device__ inline double some_test_passes(double beta, int k) {
  return beta >= 1.0 ? 1.0 : -expm1(k * log1p(-beta));
}

// Search for the least rho of K-SEQ that is lossless, by Newton steps inside a bracket. A step is taken
// to a little below where it leads, and as soon as steps are short the other side of that is tried with
// it: both sides of the root then end the search. All threads get the acceptance.
template <class P, class Q>
__device__ double kseq_rate(const Side<P>& p, const Side<Q>& q, Share share, int bits, double p_total,
                            double q_total, int k, ClusterSum& cluster_sum) {
  constexpr double kNear = 4e-8;
  constexpr int kMostSteps = 12;
  double low = 1.0, high = k;  // what is below `low` is not lossless; `high` is
  double guess = 1.0, accepted = 0.0;
  bool is_short = false;
  for (int round = 0;; round++) {
    bool is_last = high - low < 1e-7;
    double scales[kScales], found[kScales], slope;
    scales[0] = is_last ? high : guess;
    scales[1] = fmin(scales[0] + 2.0 * kNear, high);
    overlaps(p, q, share, bits, p_total, q_total, scales, is_short && !is_last ? 2 : 1, cluster_sum,
             found, &slope);
    double rho = scales[0], beta = found[0] / rho;
    accepted = some_test_passes(beta, k);
    double excess = found[0] - accepted;
    if (is_last || (rho == 1.0 && excess >= 0.0)) return accepted;
    if (excess >= 0.0) {
      high = rho;
    } else {
      low = rho;
      if (is_short) {
        double beyond = some_test_passes(found[1] / scales[1], k);
        if (beyond <= found[1]) return beyond;
        low = scales[1];
      }
    }
    double rise = slope - k * power(1.0 - fmin(beta, 1.0), k - 1) * ((slope - beta) / rho);
    double next = rho - excess / rise;
    is_short = fabs(next - rho) < 1e-3;
    guess = next - kNear;
    if (!(guess > low && guess < high) || round >= kMostSteps) guess = 0.5 * (low + high);
  }
}

// One cluster a row of those that `rejection_rates` left open; see `ratio_tables` for the arguments.
// `is_kseq` is 0 for recursive rejection.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    rejection(const P* target, long long target_outer, long long target_inner, const Q* draft,
              long long draft_outer, long long draft_inner, long long inner, int vocab_size, float target_high, float target_low, const Filter* target_filters,
              float draft_high, float draft_low, const Filter* draft_filters, int bits, int is_kseq,
              const int* counts, int num_counts, double* rates, const int* is_open) {
  RejectionMemory& memory = *reinterpret_cast<RejectionMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  if (!is_open[row]) return;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  bool is_first = cluster_rank() == 0 && threadIdx.x == 0;

  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
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
    if (is_kseq) {
      for (int j = 0; j < num_counts; j++) {
        double accepted =
            kseq_rate(p, q, share, bits, p_total, q_total, counts[j], cluster_sum);
        if (is_first) rates[row * num_counts + j] = accepted;
      }
    } else {
      int most = 1;
      for (int j = 0; j < num_counts; j++) most = max(most, counts[j]);
      double scales[kScales] = {1.0, 1.0}, found[kScales];
      for (int k = 1; k <= most; k++) {
        overlaps(p, q, share, bits, p_total, q_total, scales, 1, cluster_sum, found, nullptr);
        for (int j = 0; j < num_counts; j++)
          if (is_first && counts[j] == k) rates[row * num_counts + j] = found[0];
        scales[0] += 1.0 - found[0];
      }
    }
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
