// The sums of p and q over the bins of every row, in units of 2^-32 of the row's sums; and the same
// over parts of some bins, for rows that these leave open.
#pragma once
#include "weighed_tokens.cuh"

// What is known of a row when its table has been made.
struct RowHead {
  RowUnits units;
  u32 p_total, q_total;  // filled in from the table
};

// Bins of one row that leave the best prefix of one number of drafts open.
template <int kSums>
struct Window {
  int row, count_index;
  BinRange range;
  u32 before[kSums];        // sums of all bins before it
  double gain, bound;  // of the row's bins: what was found, and what those outside may gain at most
};

constexpr int kRatioCopies = 4;
typedef BinSums<2, kRatioCopies> RatioSums;
typedef Window<2> RatioWindow;

struct RatioTablesMemory {
  RatioSums sums;
  UnitScratch units;
};

// Add a block's share of a row to its sums, over all bins or over parts of a range.
template <bool kZoomed, class P, class Q>
__device__ __forceinline__ void add_ratios(const Logits<P>& p, const Logits<Q>& q, Share share,
                                           const RowUnits& units, float shape, BinRange range,
                                           RatioSums& sums) {
  SharedWord mine = sums.mine();
  auto add = [&](float p_weight, float q_weight, float, float, float dither) {
    float t = place_of(p_weight, q_weight, shape);
    if (kZoomed && !range.holds(t)) return;
    u32 bin = bin_bits_of(kZoomed ? range.place_inside(t) : t);
    RatioSums::add<0>(mine, bin, units_of(p_weight, dither));
    RatioSums::add<1>(mine, bin, units_of(q_weight, dither));
  };
  for_each_weighed_token(p, q, share, units, add);
}

// All blocks of the cluster: write the sums of all of them. They may be cleared again afterwards.
__device__ inline void write_sums(RatioSums& sums, u32* table) {
  __syncthreads();
  sums.fold();
  cluster_sync();
  sums.gather(table);
  cluster_sync();
}

// One cluster a row. Row r of the launch is row `first_row` + r of the batch; `filters` are null where
// no token is left out. `in_pairs` is 1 for a faster and less exact sum. `is_bad` is 1 where a row is no distribution. `num_windows` is set to zero,
// for what comes next.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, kBlocksAtOnce<P, Q>)
    ratio_tables(const P* target, long long target_outer, long long target_inner, const Q* draft,
                 long long draft_outer, long long draft_inner, long long inner, int vocab_size,
                 float target_high, float target_low, const Filter* target_filters, float draft_high, float draft_low,
                 const Filter* draft_filters, long long first_row, int in_pairs, float shape,
                 u32* tables, RowHead* heads, int* is_bad, u32* num_windows) {
  RatioTablesMemory& memory = *reinterpret_cast<RatioTablesMemory*>(shared_memory());
  long long item = blockIdx.x / MDSD_CLUSTER_SIZE, row = first_row + item;
  Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, target_filters});
  Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, draft_filters});
  Share share = share_of_block(vocab_size, kShareStep);
  memory.sums.clear();
  RowUnits units = row_units(p, q, share, in_pairs, memory.units);
  if (cluster_rank() == 0 && threadIdx.x == 0) {
    heads[item].units = units;
    is_bad[item] = units.kind == kBadRow;
    if (item == 0) *num_windows = 0;
  }
  if (units.kind == kBadRow) {
    cluster_sync();  // others may still be reading this block's memory
    return;
  }
  add_ratios<false>(p, q, share, units, shape, {0, 0}, memory.sums);
  write_sums(memory.sums, tables + item * (2 * kRatioBins));
}

// A cluster takes one window after the other of those numbered `first_window` and further on, as
// many as there are tables.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    zoomed_ratio_tables(const P* target, long long target_outer, long long target_inner,
                        const Q* draft, long long draft_outer, long long draft_inner,
                        long long inner, int vocab_size, float target_high, float target_low,
                        const Filter* target_filters, float draft_high, float draft_low,
                        const Filter* draft_filters, long long first_row, float shape, u32* tables,
                        const RowHead* heads, const RatioWindow* windows, const u32* num_windows,
                        u32 first_window, u32 num_tables) {
  RatioTablesMemory& memory = *reinterpret_cast<RatioTablesMemory*>(shared_memory());
  Share share = share_of_block(vocab_size, kShareStep);
  for (u32 item = blockIdx.x / MDSD_CLUSTER_SIZE;
       item < num_tables && first_window + item < *num_windows;
       item += gridDim.x / MDSD_CLUSTER_SIZE) {
    const RatioWindow& window = windows[first_window + item];
    BinRange range = window.range;
    long long row = first_row + window.row;
    Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, target_filters});
    Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, draft_filters});
    memory.sums.clear();
    __syncthreads();
    add_ratios<true>(p, q, share, heads[window.row].units, shape, range, memory.sums);
    write_sums(memory.sums, tables + static_cast<long long>(item) * (2 * kRatioBins));
  }
}
