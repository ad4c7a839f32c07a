// What is common to the searches for the best prefix: sums up to the end of every bin, and what a
// prefix that ends inside a bin may gain at most.
#pragma once
#include "block.cuh"
#include "ratio_tables.cuh"

constexpr int kMaxCounts = 8;

// Bins are left closed for a gain of less than this; and rounding was seen to move a rate by so much.
constexpr double kSlack = 5e-7;

// Reductions and prefix sums of a block.
struct BlockScratch {
  double values[2][kMaxWarps];
  u32 sums[2][kMaxWarps];

  // Of two reductions that follow each other one takes each `turn`, so that a slow reader is not
  // overtaken.
  __device__ double greatest(double value, int turn) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      value = fmax(value, __shfl_xor_sync(kAllLanes, value, lanes));
    if ((threadIdx.x & 31) == 0) values[turn][threadIdx.x >> 5] = value;
    __syncthreads();
    for (u32 w = 0; w < blockDim.x >> 5; w++) value = fmax(value, values[turn][w]);
    return value;
  }
};

// Turn a table's bins into sums of all tokens up to the end of each: ends[0] is `before`, and
// ends[b + 1] counts bin b in. Returns the last.
__device__ inline u32 sum_up(const u32* bins, u32 before, u32* ends, u32* scratch) {
  int each = kRatioBins / blockDim.x, begin = threadIdx.x * each;
  const Words* four = reinterpret_cast<const Words*>(bins + begin);
  u32 mine = 0, total;
#pragma unroll 2
  for (int i = 0; i < each / 4; i++)
    for (u32 bin : four[i].word) mine += bin;
  u32 sum = before + sum_before(mine, scratch, total), *end = ends + begin;
  if (threadIdx.x == 0) ends[0] = before;
#pragma unroll 2
  for (int i = 0; i < each / 4; i++)
    for (u32 bin : four[i].word) *++end = sum += bin;
  return before + total;
}

// Part of a bin's q at which the tangents of P meet: the curve of P against q is convex, with slopes
// between the bin's edges, so that it is above both.
__device__ inline double meeting_point(double p, double q, double lower_edge, double upper_edge) {
  if (!(upper_edge < static_cast<double>(infinity()))) return q;
  return fmin(fmax((upper_edge * q - p) / (upper_edge - lower_edge), 0.0), q);
}
