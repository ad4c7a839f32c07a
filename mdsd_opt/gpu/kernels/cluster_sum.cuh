// Sums over all tokens of a row, in whole units, so that their order does not matter.
#pragma once
#include "block.cuh"

// Adds up values of all threads of a cluster, or finds their maximum; every thread gets it. The two
// halves of the scratch take turns, so that a slow reader is not overtaken by the next.
class ClusterSum {
 public:
  __device__ explicit ClusterSum(u64 (*scratch)[kMaxWarps]) : scratch_(scratch) {}

  __device__ u64 of(u64 value) {
    return reduced(value, [](u64 a, u64 b) { return a + b; });
  }

  __device__ u64 greatest(u64 value) {
    return reduced(value, [](u64 a, u64 b) { return a > b ? a : b; });
  }

 private:
  template <class Join>
  __device__ u64 reduced(u64 value, Join join) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      value = join(value, __shfl_xor_sync(kAllLanes, value, lanes));
    u64* mine = scratch_[turn_];
    turn_ ^= 1;
    if ((threadIdx.x & 31) == 0) mine[threadIdx.x >> 5] = value;
    cluster_sync();
    u64 all = 0;
    for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) {
      const u64* other = in_block(mine, rank);
      for (u32 w = 0; w < blockDim.x >> 5; w++) all = join(all, other[w]);
    }
    return all;
  }

  u64 (*scratch_)[kMaxWarps];
  int turn_ = 0;
};

// As a whole number of units; values are in units already, and not negative.
__device__ __forceinline__ u64 in_units(double value) {
  return static_cast<u64>(value + 0.5);
}
