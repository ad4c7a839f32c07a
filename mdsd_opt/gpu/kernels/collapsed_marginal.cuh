// The marginal of the selected draft, with one ratio to q in every bin, and the hull rule on bins.
//
// Any marginal p_I whose prefix sums R are convex against those of q, and at least F = A^K, can be
// selected from K independent drafts exactly: with s uniform, the vertices of the lower convex hull
// of (A, R - s F) cut the tokens into blocks, and the first draft of the topmost block that holds
// one is taken. Accepting it with probability min(1, p / p_I), and drawing from (p - p_I)+ otherwise,
// gives p. Bins only decide how close p_I comes to the optimum: p_I is at least p below the optimal
// prefix, and at most p above it, wherever the rounding of ratios to the edges of bins leaves room.
//
// All threads of a block take part.
#pragma once
#include "cluster_sum.cuh"
#include "ratio_histogram.cuh"

struct Best {
  double value;
  int index;
};

__device__ inline bool is_better(Best a, Best b) {
  return a.value < b.value || (a.value == b.value && a.index < b.index);
}

struct ReduceScratch {
  Best best[2][kMaxWarps];
  u64 masses[2][kMaxWarps];
};

// Reductions of a block; two scratches take turns, so that a slow reader is not overtaken.
class Reduce {
 public:
  __device__ explicit Reduce(ReduceScratch& scratch) : scratch_(scratch) {}

  // The least value, and of equal ones that with the least index.
  __device__ Best least(Best mine) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      Best other{__shfl_xor_sync(kAllLanes, mine.value, lanes),
                 __shfl_xor_sync(kAllLanes, mine.index, lanes)};
      if (is_better(other, mine)) mine = other;
    }
    Best* of_warp = scratch_.best[best_turn_];
    best_turn_ ^= 1;
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = mine;
    __syncthreads();
    mine = of_warp[0];
    for (u32 w = 1; w < blockDim.x >> 5; w++)
      if (is_better(of_warp[w], mine)) mine = of_warp[w];
    return mine;
  }

  __device__ u64 before(u64 value, u64& total) {
    sum_turn_ ^= 1;
    return sum_before(value, scratch_.masses[sum_turn_], total);
  }

 private:
  ReduceScratch& scratch_;
  int best_turn_ = 0, sum_turn_ = 0;
};

// Points of the curves at the ends of bins; index j is the end of the first j bins.
struct Curves {
  double a[kBins + 1], r[kBins + 1];
  double ratio[kBins];  // p_I / q
};

// Units of the marginal's mass: up to K in a row, and whole, so that sums need no order.
constexpr double kMassUnits = 72057594037927936.0;  // 2^56

__device__ __forceinline__ double mass_of(u64 units) {
  return static_cast<double>(units) / kMassUnits;
}

struct Totals {
  double p, q;
};

// Prefix sums of the bins' integer masses, in place.
__device__ inline Totals prefix_masses(u64* p, u64* q, ReduceScratch& scratch) {
  int each = kBins / blockDim.x, begin = threadIdx.x * each;
  u64 p_sum = 0, q_sum = 0;
  for (int b = begin; b < begin + each; b++) {
    p_sum += p[b];
    q_sum += q[b];
    p[b] = p_sum;
    q[b] = q_sum;
  }
  u64 p_total, q_total;
  u64 p_before = sum_before(p_sum, scratch.masses[0], p_total);
  u64 q_before = sum_before(q_sum, scratch.masses[1], q_total);
  for (int b = begin; b < begin + each; b++) {
    p[b] += p_before;
    q[b] += q_before;
  }
  return {static_cast<double>(p_total), static_cast<double>(q_total)};
}

// Fill in the curves, given prefix sums of p and q. Returns 1 + min over ends of bins of P - A^K:
// no lossless rule accepts more often, and none but the width of a bin keeps from that.
__device__ inline double collapse(const u64* p, const u64* q, Totals totals, Grid grid, int k,
                                Reduce& reduce, Curves& curves) {
  int each = kBins / blockDim.x, begin = threadIdx.x * each;
  double factor = totals.q / totals.p;  // from ratios of weights to ratios of probabilities
  Best cut{0.0, 0};
  for (int b = begin; b < begin + each; b++) {
    curves.a[b + 1] = q[b] / totals.q;
    Best here{p[b] / totals.p - power(curves.a[b + 1], k), b + 1};
    if (is_better(here, cut)) cut = here;
  }
  if (threadIdx.x == 0) curves.a[0] = curves.r[0] = 0.0;
  cut = reduce.least(cut);  // its barrier lets the curves be read
  int h = cut.index;
  double f_cut = power(curves.a[h], k), p_cut = f_cut + cut.value;

  // Ratios rounded outwards, up in the prefix and down above it, and what they add up to.
  auto selected = [&](int b) {
    u64 q_mass = q[b] - (b > 0 ? q[b - 1] : 0);
    return in_units(curves.ratio[b] * (q_mass / totals.q) * kMassUnits);
  };
  u64 rounded_sum = 0, p_above = 0;
  for (int b = begin; b < begin + each; b++) {
    u64 q_mass = q[b] - (b > 0 ? q[b - 1] : 0), p_mass = p[b] - (b > 0 ? p[b - 1] : 0);
    double q_inside = q_mass / totals.q, p_inside = p_mass / totals.p;
    double mean = q_mass > 0 ? p_inside / q_inside : 0.0;
    double most = fmax(static_cast<double>(k), mean);  // the last bin has no upper edge
    int key = b << kBinShift;
    curves.ratio[b] = b < h ? fmin(grid.highest_ratio(key + (1 << kBinShift)) * factor, most)
                            : grid.lowest_ratio(key) * factor;
    rounded_sum += selected(b);
    if (b >= h && q_mass > 0) p_above += in_units(p_inside * kMassUnits);
  }
  u64 all, all_above;
  u64 units = reduce.before(rounded_sum, all);
  reduce.before(p_above, all_above);
  for (int b = begin; b < begin + each; b++) {
    units += selected(b);
    curves.r[b + 1] = mass_of(units);
  }
  __syncthreads();

  double rounded_cut = curves.r[h], above = 1.0 - f_cut, rounded_above = mass_of(all) - rounded_cut;
  double p_above_all = mass_of(all_above);
  // The level to which the prefix is raised, and that at which the rest is capped: both are optima
  // over how many bins they concern.
  Best raised{static_cast<double>(infinity()), 0}, capped{0.0, 0};
  for (int j = begin + 1; j <= begin + each; j++)
    if (j <= h && q[j - 1] > 0)
      raised.value = fmin(raised.value, (f_cut - (rounded_cut - curves.r[j])) / curves.a[j]);
  for (int j = begin; j < begin + each; j++) {
    double q_above = j == 0 ? 1.0 : (totals.q - static_cast<double>(q[j - 1])) / totals.q;
    if (j >= h && q_above > 0.0)
      capped.value = fmin(capped.value, -(above - (curves.r[j] - rounded_cut)) / q_above);
  }
  double raise_to = reduce.least(raised).value, cap_at = -reduce.least(capped).value;
  bool can_raise = rounded_cut <= f_cut, can_cap = rounded_above >= above;
  // Without room for the rounding, as much of it as there is room for.
  double share = can_raise ? 0.0 : fmin(fmax((f_cut - p_cut) / (rounded_cut - p_cut), 0.0), 1.0);
  double share_above =
      can_cap ? 0.0 : fmin(fmax((above - rounded_above) / (p_above_all - rounded_above), 0.0), 1.0);
  u64 sum = 0;
  for (int b = begin; b < begin + each; b++) {
    u64 q_mass = q[b] - (b > 0 ? q[b - 1] : 0), p_mass = p[b] - (b > 0 ? p[b - 1] : 0);
    double q_inside = q_mass / totals.q, p_inside = p_mass / totals.p;
    double ratio = curves.ratio[b], mean = q_mass > 0 ? p_inside / q_inside : ratio;
    if (b < h)
      ratio = can_raise ? fmax(ratio, raise_to) : mean + share * (ratio - mean);
    else
      ratio = can_cap ? fmin(ratio, cap_at) : ratio + share_above * (mean - ratio);
    curves.ratio[b] = ratio;
    sum += selected(b);
  }
  units = reduce.before(sum, all);  // its barrier lets the curve be overwritten
  for (int b = begin; b < begin + each; b++) {
    u64 q_mass = q[b] - (b > 0 ? q[b - 1] : 0);
    double q_inside = q_mass / totals.q, a_before = b > 0 ? q[b - 1] / totals.q : 0.0;
    double r_before = mass_of(units), lower = fmax(r_before, power(a_before, k));
    units += selected(b);
    double r_after = mass_of(units), upper = fmax(r_after, power(q[b] / totals.q, k));
    if (static_cast<double>(q[b]) == totals.q) upper = 1.0;
    // Where R had to be lifted to F, the ratio is that of the lifted curve.
    if (q_mass > 0 && (upper != r_after || lower != r_before))
      curves.ratio[b] = fmax(upper - lower, 0.0) / q_inside;
    curves.r[b + 1] = upper;
  }
  __syncthreads();
  return fmin(fmax(1.0 + cut.value, 0.0), 1.0);
}

// The block of bins [start, stop) that holds bin `top` at a level.
struct BinBlock {
  int start, stop;
};

// The hull's edge above a bin: a slope at which the lowest points on both sides of it are on one
// line. Newton steps, kept inside a bracket.
__device__ inline BinBlock block_of(int top, double level, int k, Reduce& reduce,
                                    const Curves& curves) {
  auto point = [&](int j) { return curves.r[j] - level * power(curves.a[j], k); };
  double low = -static_cast<double>(infinity()), high = static_cast<double>(infinity());
  BinBlock block{top, top + 1};
  for (int round = 0; round < 64; round++) {
    double width = curves.a[block.stop] - curves.a[block.start];
    double slope = (point(block.stop) - point(block.start)) / width;
    if (!(slope > low && slope < high)) {
      slope = 0.5 * (low + high);
      if (!(slope > low && slope < high)) break;  // as near as rounding lets us come
    }
    Best left{static_cast<double>(infinity()), kBins}, right{static_cast<double>(infinity()), 0};
    for (int j = threadIdx.x; j <= kBins; j += blockDim.x) {
      Best here{point(j) - slope * curves.a[j], j <= top ? j : -j};  // the widest block of equals
      if (j <= top && is_better(here, left)) left = here;
      if (j > top && is_better(here, right)) right = here;
    }
    left = reduce.least(left);
    right = reduce.least(right);
    BinBlock next{left.index, -right.index};
    if (next.start == block.start && next.stop == block.stop) break;
    block = next;
    if (left.value < right.value) low = slope; else high = slope;
  }
  return block;
}
