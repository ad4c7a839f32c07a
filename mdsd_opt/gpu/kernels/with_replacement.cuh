// Optimal acceptance of K drafts with replacement: 1 + min over prefixes of P - Q^K [Hu25].
#pragma once
#include "prefix_search.cuh"
#include "row_maximum.cuh"

struct WithReplacementMemory {
  Histogram histogram;
  Search search;
  OpenCells open;
  MaximaScratch maxima;
};

// One cluster a row. `rates` and `gaps` are [num_rows, num_counts]: every rate, and by how much it
// may at most be too high; `is_bad` is 1 where a row is no distribution.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    with_replacement(const P* target, long long target_outer, long long target_inner,
                     const Q* draft, long long draft_outer, long long draft_inner, long long inner,
                     int vocab_size, int bits, float target_high, float target_low,
                     const Filter* target_filters, float draft_high, float draft_low,
                     const Filter* draft_filters, float slope, float offset, const int* counts,
                     int num_counts, double* rates, double* gaps, int* is_bad) {
  WithReplacementMemory& memory = *reinterpret_cast<WithReplacementMemory*>(shared_memory());
  Search& search = memory.search;
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  bool is_first = cluster_rank() == 0;
  Grid grid{slope, offset};

  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
  if (is_first && threadIdx.x == 0) is_bad[row] = maxima.is_bad;
  if (!maxima.is_bad) {
    Side<P> p = make_side(p_row, {target_high, target_low, target_filters}, row, maxima.target);
    Side<Q> q = make_side(q_row, {draft_high, draft_low, draft_filters}, row, maxima.draft);
    if (is_first) begin_search(search);
    int level = 0;
    while (level >= 0) {
      clear(memory.histogram);
      __syncthreads();
      accumulate(p, q, share, grid, bits, &memory.open, level, memory.histogram);
      cluster_sync();
      gather(memory.histogram, search.p_prefix[level > 0], search.q_prefix[level > 0]);
      cluster_sync();
      if (is_first) {
        accumulate_prefixes(search, level);
        evaluate(search, grid, level, counts, num_counts);
        plan_next(search, grid, level, counts, num_counts);
      }
      cluster_sync();
      level = read_plan(search, memory.open);
    }
    int j = threadIdx.x;
    if (is_first && j < num_counts) {
      double gain = as_gain(search.gain[j]);
      rates[row * num_counts + j] = fmax(1.0 - gain, 0.0);
      gaps[row * num_counts + j] = fmax(as_gain(search.bound[j]) - gain, kSlack);
    }
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
