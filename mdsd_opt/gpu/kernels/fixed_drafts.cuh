// Optimal acceptance of drafts that are fixed, as in packed_fixed_drafts.cuh, by all weights of any row.
#pragma once
#include "cluster_sum.cuh"
#include "likeliest.cuh"
#include "row_maximum.cuh"

struct FixedDraftsMemory {
  LikeliestMemory likeliest;
  u64 sums[2][kMaxWarps];
  MaximaScratch maxima;
};

// One cluster a row of those that `packed_fixed_drafts` left open; see there for the arguments.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    fixed_drafts(const P* target, long long target_outer, long long target_inner, const Q* draft,
                 long long draft_outer, long long draft_inner, long long inner, int vocab_size, float target_high, float target_low, const Filter* target_filters,
                 float draft_high, float draft_low, const Filter* draft_filters, int bits, int last_is_drawn,
                 const int* counts, int num_counts, double* rates, int* is_bad,
                 const int* is_open) {
  FixedDraftsMemory& memory = *reinterpret_cast<FixedDraftsMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  if (!is_open[row]) return;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  bool is_first = cluster_rank() == 0 && threadIdx.x == 0;

  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
  if (is_first) is_bad[row] = maxima.is_bad;
  if (!maxima.is_bad) {
    Side<P> p = make_side(p_row, {target_high, target_low, target_filters}, row, maxima.target);
    Sampling draft_sampling{draft_high, draft_low, draft_filters};
    Side<Q> q = make_side(q_row, draft_sampling, row, maxima.draft);
    float least = least_logit(q, maxima.draft);
    int most = 1;
    for (int j = 0; j < num_counts; j++) most = max(most, counts[j]);
    find_likeliest(p_row, q, least, share, most, memory.likeliest);
    const u64* likeliest = in_block(memory.likeliest.likeliest, 0);

    ClusterSum cluster_sum(memory.sums);
    u64 p_sum = 0;
    for_each_token(p_row, q_row, share, [&](int token, float logit, float) {
      p_sum += weight(p.exponent(token, logit), bits);
    });
    double p_total = static_cast<double>(cluster_sum.of(p_sum));
    for (int j = 0; j < num_counts; j++) {
      int num_fixed = counts[j] - (last_is_drawn ? 1 : 0);
      u64 accepted = 0;  // of the fixed tokens, by the first thread
      for (int i = 0; is_first && i < num_fixed && likeliest[i] != 0; i++) {
        int token = token_of(likeliest[i]);
        accepted += weight(p.exponent(token, number(p_row[token])), bits);
      }
      if (last_is_drawn && likeliest[num_fixed] != 0) {
        // The rest is weighed against its own largest: the fixed tokens may hold nearly everything.
        int next = token_of(likeliest[num_fixed]);
        u64 first_outside = likeliest[num_fixed];
        Side<Q> rest = make_side(q_row, draft_sampling, row, number(q_row[next]));
        u64 outside = 0;
        for_each_token(p_row, q_row, share, [&](int token, float, float logit) {
          u64 rank = draft_rank(q, least, token, logit);
          if (rank != 0 && rank <= first_outside)
            outside += weight(rest.exponent(token, logit), bits);
        });
        double factor = p_total / static_cast<double>(cluster_sum.of(outside));
        for_each_token(p_row, q_row, share, [&](int token, float p_logit, float logit) {
          u64 rank = draft_rank(q, least, token, logit);
          if (rank == 0 || rank > first_outside) return;
          double q_weight = static_cast<double>(weight(rest.exponent(token, logit), bits));
          double p_weight = static_cast<double>(weight(p.exponent(token, p_logit), bits));
          accepted += in_units(fmin(p_weight, q_weight * factor));
        });
      }
      double all = static_cast<double>(cluster_sum.of(accepted));
      if (is_first) rates[row * num_counts + j] = fmin(all / p_total, 1.0);
    }
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
