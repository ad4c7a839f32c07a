// A logit that a row's likeliest tokens reach, and few others, without sorting. The tokens are in up to 128
// groups, whatever threads they are read by; the K-th largest of the groups' maxima is reached by at least
// K tokens.
#pragma once
#include "likeliest.cuh"
#include "row_units.cuh"

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

// A thread's sums of weights, relative to nothing, and its largest draft logit, of the packs it reads.
struct FirstPass {
  float p_sum = 0.0f, q_sum = 0.0f, largest = -infinity();
};

template <bool kFiltered, class P, class Q>
__device__ __forceinline__ FirstPass first_pass(const Logits<P>& p, const Logits<Q>& q, Share share) {
  FirstPass sums;
  auto add = [&](float y) {
    sums.q_sum += fast_exp2(__fmul_rn(y, q.scale.high));
    sums.largest = fmaxf(sums.largest, y);
  };
  for_each_kept_pack<kFiltered, 2>(
      p, q, share,
      [&](int, const auto& x, const auto& y) {
        add_pack<false>(x, p.scale.high, sums.p_sum);
#pragma unroll
        for (float logit : y) add(logit);
      },
      [&](int, float x, float y) {
        sums.p_sum += fast_exp2(__fmul_rn(x, p.scale.high));
        add(y);
      });
  return sums;
}
