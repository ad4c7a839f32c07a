// Optimal acceptance of K drafts with replacement: 1 + min over prefixes of P - A^K, A being the
// prefix's q [Hu25], from the sums of a row's bins.
//
// The objective is known at the ends of all bins. Inside a bin P is above its tangents, and A^K is
// convex, so that the most a prefix can gain is found at the ends or where the tangents meet.
#pragma once
#include "prefix_bounds.cuh"

struct BestPrefixMemory {
  u32 p[kRatioBins + 1], q[kRatioBins + 1];  // up to the ends of bins
  BlockScratch scratch;
  int first_open[kMaxCounts], last_open[kMaxCounts];
};

struct PrefixCurves {
  const BestPrefixMemory& memory;
  double p_unit, q_unit;
  RatioScale scale;

  __device__ double gain(int end, int k) const {
    return power(memory.q[end] * q_unit, k) - memory.p[end] * p_unit;
  }
  // What a prefix that ends inside a bin may gain at most.
  __device__ double possible_gain(int bin, int k) const {
    double odds = p_unit / q_unit;  // from ratios of weights to those of probabilities
    double lower = scale.lower_edge(bin) * odds, upper = scale.upper_edge(bin) * odds;
    double p = (memory.p[bin + 1] - memory.p[bin]) * p_unit;
    double q = (memory.q[bin + 1] - memory.q[bin]) * q_unit;
    double meeting = meeting_point(p, q, lower, upper);
    return power(memory.q[bin] * q_unit + meeting, k) - memory.p[bin] * p_unit - lower * meeting;
  }
};

// One table: the rate for each count from `from` on up to `to`, and how far off it may be.
__device__ inline void search_table(BestPrefixMemory& memory, const PrefixCurves& curves,
                                    const int* counts, int from, int to, const RatioWindow* inside,
                                    int row, double* rates, double* gaps, RatioWindow* windows,
                                    u32* num_windows) {
  for (int j = from; j < to; j++) {
    int k = counts[j];
    double gain = inside ? inside->gain : 0.0, bound = inside ? inside->bound : 0.0;
    for (int end = threadIdx.x; end <= kRatioBins; end += blockDim.x)
      gain = fmax(gain, curves.gain(end, k));
    gain = memory.scratch.greatest(gain, 0);
    int first = kRatioBins, last = -1;
    for (int bin = threadIdx.x; bin < kRatioBins; bin += blockDim.x) {
      if (memory.q[bin + 1] == memory.q[bin]) continue;
      // Nothing inside gains more than all of the bin's q without its p.
      double most = power(memory.q[bin + 1] * curves.q_unit, k) - memory.p[bin] * curves.p_unit;
      if (!(most > fmax(bound, gain))) continue;
      double possible = curves.possible_gain(bin, k);
      if (inside || possible <= gain + kSlack) {
        bound = fmax(bound, possible);
      } else {
        first = min(first, bin);
        last = max(last, bin);
      }
    }
    bound = fmax(memory.scratch.greatest(bound, 1), gain);
    if (last >= 0) {
      atomicMin(&memory.first_open[j], first);
      atomicMax(&memory.last_open[j], last);
    }
    __syncthreads();
    if (threadIdx.x != 0) continue;
    first = memory.first_open[j], last = memory.last_open[j];
    if (last >= 0) {
      windows[atomicAdd(num_windows, 1u)] = {
          row, j, {first, last - first + 1}, {memory.p[first], memory.q[first]}, gain, bound};
    } else {
      rates[j] = fmin(fmax(1.0 - 0.5 * (gain + bound), 0.0), 1.0);
      gaps[j] = bound - gain + kSlack;
    }
  }
}

__device__ inline void begin_table(BestPrefixMemory& memory) {
  if (threadIdx.x < kMaxCounts) {
    memory.first_open[threadIdx.x] = kRatioBins;
    memory.last_open[threadIdx.x] = -1;
  }
}

// One block a row, after `ratio_tables`. Rows and counts that are settled get their `rates`, [rows,
// num_counts], and by how much each may be off in `gaps`; the others get a window.
__global__ void __launch_bounds__(256)
    best_prefix(const u32* tables, RowHead* heads, float shape, const int* counts, int num_counts,
                double* rates, double* gaps, RatioWindow* windows, u32* num_windows) {
  BestPrefixMemory& memory = *reinterpret_cast<BestPrefixMemory*>(shared_memory());
  long long row = blockIdx.x;
  if (heads[row].units.kind == kBadRow) return;
  const u32* table = tables + row * (2 * kRatioBins);
  begin_table(memory);
  u32 p_total = sum_up(table, 0, memory.p, memory.scratch.sums[0]);
  u32 q_total = sum_up(table + kRatioBins, 0, memory.q, memory.scratch.sums[1]);
  if (threadIdx.x == 0) {
    heads[row].p_total = p_total;
    heads[row].q_total = q_total;
  }
  __syncthreads();
  PrefixCurves curves{memory, 1.0 / p_total, 1.0 / q_total, {{0, 0}, shape}};
  search_table(memory, curves, counts, 0, num_counts, nullptr, static_cast<int>(row),
               rates + row * num_counts, gaps + row * num_counts, windows, num_windows);
}

// One block a window, after `zoomed_ratio_tables`.
__global__ void __launch_bounds__(256)
    best_zoomed_prefix(const u32* tables, const RowHead* heads, float shape, const int* counts,
                       int num_counts, double* rates, double* gaps, const RatioWindow* windows,
                       const u32* num_windows, u32 first_window) {
  BestPrefixMemory& memory = *reinterpret_cast<BestPrefixMemory*>(shared_memory());
  if (first_window + blockIdx.x >= *num_windows) return;
  const RatioWindow& window = windows[first_window + blockIdx.x];
  const u32* table = tables + static_cast<long long>(blockIdx.x) * (2 * kRatioBins);
  begin_table(memory);
  sum_up(table, window.before[0], memory.p, memory.scratch.sums[0]);
  sum_up(table + kRatioBins, window.before[1], memory.q, memory.scratch.sums[1]);
  __syncthreads();
  const RowHead& head = heads[window.row];
  PrefixCurves curves{memory, 1.0 / head.p_total, 1.0 / head.q_total, {window.range, shape}};
  long long to = static_cast<long long>(window.row) * num_counts;
  search_table(memory, curves, counts, window.count_index, window.count_index + 1, &window,
               window.row, rates + to, gaps + to, nullptr, nullptr);
}
