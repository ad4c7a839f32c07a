// What drafts without replacement need to know of the tokens of every bin: the sum of p, and power
// sums of the light tokens' q. Heavy tokens are few and listed one by one.
//
// Light tokens weigh z <= 1, and all of them at most 256: sums of every power of z fit 32 bits in
// units of 2^-24. Third and fourth powers are less than a unit but for the heaviest light ones.
#pragma once
#include "race_units.cuh"
#include "ratio_tables.cuh"

constexpr int kRaceSums = 5;  // of p, and of z to the power of 1, 2, 3 and 4
constexpr int kMaxHeavy = 336;  // 256 up to the threshold, 64 above, and some for the rounding
constexpr float kCubesFrom = 1.0f / 256.0f;

struct alignas(16) HeavyToken {
  float place, p_logit, q_logit;  // t, and both logits
};

struct RaceHead {
  RaceUnits units;
  float p_scale, q_scale;  // log2(e) / T, as the tables have it
  u32 p_total, light_total;  // filled in from the table
  u32 num_heavy;
  HeavyToken heavy[kMaxHeavy];
};

constexpr int kRaceCopies = 2;

struct RaceTablesMemory {
  BinSums<3, kRaceCopies> sums;
  BinSums<2, 1> high_sums;
  RaceUnitScratch units;
};

typedef Window<kRaceSums> RaceWindow;

// Add a block's share of a row to its sums, over all bins or over parts of a range; heavy tokens are
// listed in the first case.
template <bool kZoomed, class P, class Q>
__device__ __forceinline__ void add_race(const Logits<P>& p, const Logits<Q>& q, Share share,
                                         const RowUnits& units, float shape, BinRange range,
                                         RaceTablesMemory& memory, RaceHead& head) {
  SharedWord mine = memory.sums.mine(), mine_high = memory.high_sums.mine();
  auto add = [&](float p_weight, float z, float p_logit, float q_logit, float dither) {
    float t = place_of(p_weight, z, shape);
    if (kZoomed && !range.holds(t)) return;
    u32 bin = bin_bits_of(kZoomed ? range.place_inside(t) : t);
    float light = z <= 1.0f ? z : 0.0f;
    float square = __fmul_rn(light, light);
    BinSums<3, kRaceCopies>::add<0>(mine, bin, units_of(p_weight, dither));
    BinSums<3, kRaceCopies>::add<1>(mine, bin, units_of_light(light, dither));
    BinSums<3, kRaceCopies>::add<2>(mine, bin, units_of_light(square, dither));
    if (!(z >= kCubesFrom)) return;
    BinSums<2, 1>::add<0>(mine_high, bin, units_of_light(__fmul_rn(square, light), dither));
    BinSums<2, 1>::add<1>(mine_high, bin, units_of_light(__fmul_rn(square, square), dither));
    if (kZoomed || z <= 1.0f) return;
    head.heavy[next_of(&head.num_heavy)] = {ordered_place(t), p_logit, q_logit};
  };
  for_each_weighed_token(p, q, share, units, add);
}

// All blocks of the cluster: write the sums of all of them. They may be cleared again afterwards.
__device__ inline void write_sums(RaceTablesMemory& memory, u32* table) {
  __syncthreads();
  memory.sums.fold();
  cluster_sync();
  memory.sums.gather(table);
  memory.high_sums.gather(table + 3 * kRatioBins);
  cluster_sync();
}

// One cluster a row, as `ratio_tables`; `counts` are the numbers of drafts that will be asked for.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    race_tables(const P* target, long long target_outer, long long target_inner, const Q* draft,
                long long draft_outer, long long draft_inner, long long inner, int vocab_size,
                float target_high, float target_low, const Filter* target_filters,
                float draft_high, float draft_low, const Filter* draft_filters,
                long long first_row, const int* counts, int num_counts, float shape, u32* tables,
                RaceHead* heads, int* is_bad, u32* num_windows) {
  RaceTablesMemory& memory = *reinterpret_cast<RaceTablesMemory*>(shared_memory());
  long long item = blockIdx.x / MDSD_CLUSTER_SIZE, row = first_row + item;
  Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, target_filters});
  Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, draft_filters});
  Share share = share_of_block(vocab_size, kShareStep);
  int most = 1;
  for (int j = 0; j < num_counts; j++) most = max(most, counts[j]);
  memory.sums.clear();
  memory.high_sums.clear();
  RaceHead& head = heads[item];
  if (cluster_rank() == 0 && threadIdx.x == 0) {
    head.num_heavy = 0;
    if (item == 0) *num_windows = 0;
  }
  RaceUnits units = race_units(p, q, share, most, memory.units);
  if (cluster_rank() == 0 && threadIdx.x == 0) {
    head.units = units;
    head.p_scale = target_high;
    head.q_scale = draft_high;
    is_bad[item] = units.row.kind == kBadRow;
  }
  if (units.row.kind == kBadRow) {
    cluster_sync();  // others may still be reading this block's memory
    return;
  }
  add_race<false>(p, q, share, units.row, shape, {0, 0}, memory, head);
  write_sums(memory, tables + item * (kRaceSums * kRatioBins));
}

// As `zoomed_ratio_tables`.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    zoomed_race_tables(const P* target, long long target_outer, long long target_inner,
                       const Q* draft, long long draft_outer, long long draft_inner,
                       long long inner, int vocab_size, float target_high, float target_low,
                       const Filter* target_filters, float draft_high, float draft_low,
                       const Filter* draft_filters, long long first_row, float shape, u32* tables,
                       RaceHead* heads, const RaceWindow* windows, const u32* num_windows,
                       u32 first_window, u32 num_tables) {
  RaceTablesMemory& memory = *reinterpret_cast<RaceTablesMemory*>(shared_memory());
  Share share = share_of_block(vocab_size, kShareStep);
  for (u32 item = blockIdx.x / MDSD_CLUSTER_SIZE;
       item < num_tables && first_window + item < *num_windows;
       item += gridDim.x / MDSD_CLUSTER_SIZE) {
    const RaceWindow& window = windows[first_window + item];
    BinRange range = window.range;
    long long row = first_row + window.row;
    Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                            {target_high, target_low, target_filters});
    Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                            {draft_high, draft_low, draft_filters});
    memory.sums.clear();
    memory.high_sums.clear();
    __syncthreads();
    RaceHead& head = heads[window.row];
    add_race<true>(p, q, share, head.units.row, shape, range, memory, head);
    write_sums(memory, tables + static_cast<long long>(item) * (kRaceSums * kRatioBins));
  }
}
