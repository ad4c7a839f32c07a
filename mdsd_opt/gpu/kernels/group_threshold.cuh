// A logit that a row's likeliest tokens reach, and few others, without sorting. The tokens are in up to 128
// groups, whatever threads they are read by; the K-th largest of the groups' maxima is reached by at least
// K tokens.
#pragma once
#include "likeliest.cuh"
#include "packed_rows.cuh"

constexpr int kMostGroups = 128;

struct GroupScratch {
  u32 of_block[kMostGroups], of_row[kMostGroups];  // maxima of the groups, as ordered integers
  u32 threshold;
};

// The `most`-th largest of the groups' maxima, which is -infinity if there are not so many groups with
// tokens in them. A thread has found the `largest` of its own, which are kShareStep / kGroups at a time.
template <int kGroups>
__device__ float group_threshold(float largest, int most, GroupScratch& scratch) {
  static_assert(kMaxLikeliest <= kGroups && kGroups <= kMostGroups, "one group a draft");
  for (int i = threadIdx.x; i < kGroups; i += blockDim.x) scratch.of_block[i] = 0;
  __syncthreads();
  atomicMax(&scratch.of_block[threadIdx.x % kGroups], ordered(largest));
  cluster_sync();
  for (int i = threadIdx.x; i < kGroups; i += blockDim.x) {
    u32 greatest = 0;
    for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++)
      greatest = max(greatest, in_block(scratch.of_block, rank)[i]);
    scratch.of_row[i] = greatest;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kGroups; i += blockDim.x) {
    u32 mine = scratch.of_row[i];
    int place = 0;
    for (int j = 0; j < kGroups; j++) {
      u32 other = scratch.of_row[j];
      place += other > mine || (other == mine && j < i);
    }
    if (place == most - 1) scratch.threshold = mine;
  }
  __syncthreads();
  return from_ordered(scratch.threshold);
}
