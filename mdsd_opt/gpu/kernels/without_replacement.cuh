// Optimal acceptance of K drafts without replacement: 1 + min over prefixes of P - Q [Hu25], with Q
// by the race of race.cuh. Where all possible drafts are drawn, it is their probability.
#pragma once
#include "cluster_sum.cuh"
#include "race_search.cuh"
#include "row_maximum.cuh"

// A grid from where a bin gains nothing that counts, p/q below 2^-21, to where no prefix ends: adding
// a token changes Q by at most its rate times K.
__device__ inline Grid race_grid(int most, double rates, double p_total, RaceScale scale) {
  double lowest = -22.0 - log2(rates), octaves = 1.0 + log2(1.0 * most) - lowest;
  double slope = fmin(64.0, (kRaceBins - 1) / octaves) * (2 << kRaceBinShift);
  double shift = log2(p_total * scale.unit);  // of log-ratios of weights
  return {static_cast<float>(slope), static_cast<float>(-slope * (lowest + shift))};
}

// One cluster a row; see `with_replacement` for the arguments.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    without_replacement(const P* target, long long target_outer, long long target_inner,
                        const Q* draft, long long draft_outer, long long draft_inner,
                        long long inner, int vocab_size, int bits, float target_high,
                        float target_low, const Filter* target_filters, float draft_high,
                        float draft_low, const Filter* draft_filters, const int* counts,
                        int num_counts, double* rates, double* gaps, int* is_bad) {
  RaceMemory& memory = *reinterpret_cast<RaceMemory*>(shared_memory());
  RaceTables& tables = memory.tables;
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  bool is_first = cluster_rank() == 0;

  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
  if (is_first && threadIdx.x == 0) is_bad[row] = maxima.is_bad;
  if (!maxima.is_bad) {
    Side<P> p = make_side(p_row, {target_high, target_low, target_filters}, row, maxima.target);
    Sampling draft_sampling{draft_high, draft_low, draft_filters};
    Side<Q> q = make_side(q_row, draft_sampling, row, maxima.draft);
    float least = least_logit(q, maxima.draft);
    int most = 1;
    for (int j = 0; j < num_counts; j++) most = max(most, counts[j]);
    find_likeliest(p_row, q, least, share, most + 1, memory.likeliest);
    cluster_sync();
    const u64* likeliest = in_block(memory.likeliest.likeliest, 0);
    int support = 0;
    while (support <= most && likeliest[support] != 0) support++;
    most = 0;
    for (int j = 0; j < num_counts; j++)
      if (counts[j] < support) most = max(most, counts[j]);

    u64 last = likeliest[max(most, 1) - 1];
    q = make_side(q_row, draft_sampling, row, number(q_row[token_of(last)]));
    RaceScale scale{bits, 0, exp2(-1.0 * bits)};
    double likelier = 0.0;
    for (int i = 0; i < most - 1; i++) {
      int token = token_of(likeliest[i]);
      likelier += draft_rate(q.exponent(token, number(q_row[token])), scale);
    }
    u64 p_sum = 0, p_possible = 0, left = 0;
    for_each_token(p_row, q_row, share, [&](int token, float p_logit, float q_logit) {
      u64 p_weight = weight(p.exponent(token, p_logit), bits);
      u64 rank = draft_rank(q, least, token, q_logit);
      p_sum += p_weight;
      if (rank != 0) p_possible += p_weight;
      if (rank != 0 && rank <= last) left += draft_weight(q.exponent(token, q_logit), bits);
    });
    ClusterSum cluster_sum(memory.cluster_sums);
    double p_total = static_cast<double>(cluster_sum.of(p_sum));
    double p_drafted = static_cast<double>(cluster_sum.of(p_possible));
    left = cluster_sum.of(left);
    likelier *= exp2(1.0 * bits) / static_cast<double>(left);
    scale.unit = 1.0 / static_cast<double>(left);
    scale.light_limit = left / kLightShare;

    if (threadIdx.x < kMaxCounts) {
      bool is_racing = static_cast<int>(threadIdx.x) < num_counts && counts[threadIdx.x] < support;
      memory.drafts[threadIdx.x] = is_racing ? counts[threadIdx.x] : 0;
    }
    begin_race(memory);
    if (threadIdx.x == 0) tables.found.size = 0;
    Grid grid = race_grid(max(most, 1), 1.0 + likelier, p_total, scale);
    Race race{};
    bool is_new = true;
    int level = most > 0 ? 0 : -1;
    while (level >= 0) {
      clear(tables.sums);
      __syncthreads();
      accumulate_race(p, q, share, grid, bits, scale, memory.open, level, tables.sums,
                      is_new ? &tables.found : nullptr);
      cluster_sync();
      add_up(tables.sums);
      if (is_new) sort_heavy(tables.found, memory.heavy);
      __syncthreads();
      sum_cells(memory);
      cluster_sync();
      if (is_new) {
        double light_total =
            static_cast<double>(sum_before_cell(memory, 1, kRaceCells)) * scale.unit;
        sum_heavy(memory.heavy, light_total);
        double light_rate = static_cast<double>(scale.light_limit) * scale.unit;
        race = make_race(most, light_total + memory.heavy.outside[0], light_rate, light_total);
        is_new = false;
      }
      add_bases(memory, level);
      cluster_sync();
      RaceCurve curve(memory, scale, p_total, level);
      int end = (cluster_rank() + 1) * kBinsOfBlock;
      for (int bin = cluster_rank() * kBinsOfBlock + (threadIdx.x >> 5) * kSegment; bin < end;
           bin += (blockDim.x >> 5) * kSegment) {
        if (bin >= memory.plan.used(level)) break;
        escape_of_bins(
            tables.sums, memory.heavy, race, scale, memory.drafts, num_counts, bin,
            [&](int b) { return memory.plan.end_key(level, b); },
            [&](int b) { return curve.has_drafts(b); }, tables.escapes);
      }
      cluster_sync();
      if (is_first) {
        evaluate(memory, curve, grid, level, num_counts);
        plan_next(memory, curve, grid, level, num_counts);
      }
      cluster_sync();
      level = read_plan(memory);
    }
    int j = threadIdx.x;
    if (is_first && j < num_counts) {
      bool is_racing = memory.drafts[j] > 0;
      double gain = as_gain(memory.gain[j]);
      double possible = fmin(p_drafted / p_total, 1.0);
      rates[row * num_counts + j] = is_racing ? fmax(1.0 - gain, 0.0) : possible;
      gaps[row * num_counts + j] = is_racing ? fmax(as_gain(memory.bound[j]) - gain, kSlack) : 0.0;
    }
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
