// Acceptance of the baselines of rejection.cuh from the sums of a row's bins.
//
// overlap(c) is p of the bins below c and c q of those above. In the bin that holds c the curve of
// min(r, c) is concave: the bin's part is at least what the chord between its edges gives, and at most the
// smaller of p and c q. Bins are narrow, and the middle of both is off by some 1e-7. Rows that may be off
// by more than kSlack are read by `rejection`.
#pragma once
#include "prefix_bounds.cuh"
#include "rejection.cuh"

struct RejectionRatesMemory {
  u32 p[kRatioBins + 1], q[kRatioBins + 1];  // up to the ends of bins
  u32 scratch[2][kMaxWarps];
};

// At one c; `off` is by how much at most, and `slope` is at least the derivative.
struct Overlap {
  double value, off, slope;
};

struct OverlapCurve {
  const RejectionRatesMemory& memory;
  double p_unit, q_unit, shape;

  __device__ Overlap at(double c) const {
    double odds = p_unit / q_unit, ratio = c / odds;  // of weights, as c is of probabilities
    int bin = min(static_cast<int>(ratio / (ratio + shape) * kPlaces + 0.5), kRatioBins - 1);
    RatioScale scale{{0, 0}, shape};
    double lower = scale.lower_edge(bin) * odds, upper = scale.upper_edge(bin) * odds;
    double p = (memory.p[bin + 1] - memory.p[bin]) * p_unit;
    double q = (memory.q[bin + 1] - memory.q[bin]) * q_unit;
    double most = fmin(p, c * q), least = lower * q;
    if (upper < static_cast<double>(infinity()))
      least += fmax(p - least, 0.0) * fmin(fmax((c - lower) / (upper - lower), 0.0), 1.0);
    least = fmin(least, most);
    double above = (memory.q[kRatioBins] - memory.q[bin + 1]) * q_unit;
    double value = memory.p[bin] * p_unit + c * above + 0.5 * (most + least);
    return {fmin(value, 1.0), 0.5 * (most - least), above + q};
  }
};

__device__ inline double recursive_rejection(const OverlapCurve& curve, int num_drafts, double& off) {
  double scale = 1.0, scale_is_off = 0.0;
#pragma unroll 1
  for (int k = 1;; k++) {
    Overlap overlap = curve.at(scale);
    off = overlap.off + overlap.slope * scale_is_off;
    if (k == num_drafts) return overlap.value;
    scale += 1.0 - overlap.value;
    scale_is_off += overlap.off;
  }
}

// At the least rho that is lossless, which moves with the overlap in such a way that what is accepted is
// off by no more than the overlap is.
__device__ inline double kseq(const OverlapCurve& curve, int num_drafts, double& off) {
  double low = 1.0, high = num_drafts;  // what is below `low` is not lossless; `high` is
  auto is_lossless = [&](double rho) {
    double overlap = curve.at(rho).value;
    return some_test_passes(overlap / rho, num_drafts) <= overlap;
  };
  if (is_lossless(low)) high = low;
#pragma unroll 1
  while (high - low > 1e-9) {
    double middle = 0.5 * (low + high);
    (is_lossless(middle) ? high : low) = middle;
  }
  Overlap overlap = curve.at(high);
  off = overlap.off;
  return some_test_passes(overlap.value / high, num_drafts);
}

// One block a row, after `ratio_tables`. `is_kseq` is 0 for recursive rejection.
__global__ void __launch_bounds__(256)
    rejection_rates(const u32* tables, const RowHead* heads, float shape, int is_kseq,
                    const int* counts, int num_counts, double* rates, int* is_open) {
  RejectionRatesMemory& memory = *reinterpret_cast<RejectionRatesMemory*>(shared_memory());
  long long row = blockIdx.x;
  if (threadIdx.x == 0) is_open[row] = 0;
  if (heads[row].units.kind == kBadRow) return;
  const u32* table = tables + row * (2 * kRatioBins);
  u32 p_total = sum_up(table, 0, memory.p, memory.scratch[0]);
  u32 q_total = sum_up(table + kRatioBins, 0, memory.q, memory.scratch[1]);
  __syncthreads();
  OverlapCurve curve{memory, 1.0 / p_total, 1.0 / q_total, shape};
  for (int j = threadIdx.x; j < num_counts; j += blockDim.x) {
    double off;
    rates[row * num_counts + j] =
        is_kseq ? kseq(curve, counts[j], off) : recursive_rejection(curve, counts[j], off);
    if (off > kSlack) atomicOr(is_open + row, 1);
  }
}
