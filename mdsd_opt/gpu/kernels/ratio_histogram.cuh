// Sums of p and q over the tokens of every bin of log2(p/q), without sorting.
//
// A key is the log-ratio of two weights as an integer of 23 bits. Its top 11 bits are the bin.
#pragma once
#include "block.cuh"
#include "logits.cuh"

constexpr int kBins = 2048;
constexpr int kBinShift = 12;
constexpr int kLastKey = (kBins << kBinShift) - 1;
constexpr float kToKey = 8388608.0f;  // 2^23: adding it leaves the nearest integer in the low bits

// The key of a log-ratio d is d * slope + offset.
struct Grid {
  float slope, offset;

  // Ratios of weights between which all tokens with keys begin .. end - 1 lie. Half a unit of the
  // key is the rounding to an integer, and three quarters are more than all other rounding errors.
  __device__ double lowest_ratio(int begin) const {
    return begin == 0 ? 0.0 : exp2((begin - 1.25 - offset) / slope);
  }
  __device__ double highest_ratio(int end) const {
    return end > kLastKey ? static_cast<double>(infinity()) : exp2((end + 0.25 - offset) / slope);
  }
};

__device__ __forceinline__ int key_of(Exponent p, Exponent q, Grid grid) {
  float log_ratio = __fadd_rn(__fsub_rn(p.whole, q.whole), __fsub_rn(p.part, q.part));
  float position = __fmaf_rn(log_ratio, grid.slope, grid.offset);
  position = fminf(fmaxf(position, 0.0f), static_cast<float>(kLastKey));
  return static_cast<int>(__float_as_uint(__fadd_rn(position, kToKey)) & kLastKey);
}

// Sums of 64 bits in two halves: an addition of 32 bits to shared memory is one instruction.
struct Histogram {
  u32 p_low[kBins], p_high[kBins], q_low[kBins], q_high[kBins];
};

__device__ __forceinline__ void add_to(u32* low, u32* high, u64 value) {
  if (value == 0) return;
  u32 lower = static_cast<u32>(value), upper = static_cast<u32>(value >> 32);
  u32 old = atomicAdd(low, lower);
  upper += old > ~lower;  // the carry
  if (upper) atomicAdd(high, upper);
}

__device__ inline u64 joined(u32 low, u32 high) { return (static_cast<u64>(high) << 32) | low; }

// Sums of a thread that go to the same bin, as long as they do: ties and equal rows are common.
struct RunningSum {
  int bin = -1;
  u64 p = 0, q = 0;

  __device__ __forceinline__ void flush(Histogram& histogram) {
    if (bin < 0) return;
    add_to(&histogram.p_low[bin], &histogram.p_high[bin], p);
    add_to(&histogram.q_low[bin], &histogram.q_high[bin], q);
  }

  __device__ __forceinline__ void add(Histogram& histogram, int to, u64 p_weight, u64 q_weight) {
    if (to != bin) {
      flush(histogram);
      bin = to;
      p = q = 0;
    }
    p += p_weight;
    q += q_weight;
  }
};

// Fill a block's histogram with its share of the row. It must have been cleared.
template <class P, class Q>
__device__ __forceinline__ void accumulate(const Side<P>& p, const Side<Q>& q, Share share,
                                           Grid grid, int bits, Histogram& histogram) {
  RunningSum sum;
  for_each_token(p.row, q.row, share, [&](int token, float target_logit, float draft_logit) {
    Exponent p_exponent = p.exponent(token, target_logit);
    Exponent q_exponent = q.exponent(token, draft_logit);
    int bin = key_of(p_exponent, q_exponent, grid) >> kBinShift;
    sum.add(histogram, bin, weight(p_exponent, bits), weight(q_exponent, bits));
  });
  sum.flush(histogram);
}

__device__ inline void clear(Histogram& histogram) {
  for (int b = threadIdx.x; b < kBins; b += blockDim.x)
    histogram.p_low[b] = histogram.p_high[b] = histogram.q_low[b] = histogram.q_high[b] = 0;
}

// The sums of the cluster's histograms, each block adding up its part of the bins, in block 0.
__device__ inline void gather(Histogram& histogram, u64* p_sums, u64* q_sums) {
  u64* p_first = in_block(p_sums, 0);
  u64* q_first = in_block(q_sums, 0);
  int part = kBins / MDSD_CLUSTER_SIZE;
  int begin = cluster_rank() * part;
  for (int b = begin + threadIdx.x; b < begin + part; b += blockDim.x) {
    u64 p = 0, q = 0;
    for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) {
      const Histogram& other = *in_block(&histogram, rank);
      p += joined(other.p_low[b], other.p_high[b]);
      q += joined(other.q_low[b], other.q_high[b]);
    }
    p_first[b] = p;
    q_first[b] = q;
  }
}
