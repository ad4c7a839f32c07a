// The likeliest tokens of a row, ties towards the lowest id.
#pragma once
#include "block.cuh"
#include "logits.cuh"

constexpr int kMaxLikeliest = 64;
constexpr int kMaxCandidates = 8192;

// Probabilities below 1e-300 count as zero; log2 of that.
constexpr float kLeastExponent = -996.578f;

// Orders tokens by logit, then by lowest id; all ranks differ, and 0 is no token.
__device__ __forceinline__ u64 rank_of(int token, float logit) {
  u32 bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);  // -0 equals 0
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (static_cast<u64>(bits) << 32) | (0xFFFFFFFFu - static_cast<u32>(token));
}

__device__ __forceinline__ int token_of(u64 rank) {
  return static_cast<int>(0xFFFFFFFFu - static_cast<u32>(rank));
}

// Orders logits as unsigned integers.
__device__ __forceinline__ u32 ordered(float logit) {
  return static_cast<u32>(rank_of(0, logit) >> 32);
}

__device__ __forceinline__ float from_ordered(u32 bits) {
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits);
}

__device__ __forceinline__ float logit_of(u64 rank) {
  return from_ordered(static_cast<u32>(rank >> 32));
}

struct LikeliestMemory {
  u64 of_thread[1024];
  u64 candidates[kMaxCandidates];
  u64 likeliest[kMaxLikeliest];  // of the block, then in block 0 of the row
  u64 threshold;
  u32 num_candidates;
};

// Rank of a token that can be drafted, else 0.
template <class Q>
__device__ __forceinline__ u64 draft_rank(const Side<Q>& q, float least, int token, float logit) {
  bool left_out = !(logit >= least) || q.filter.leaves_out(token, logit);
  return left_out ? 0 : rank_of(token, logit);
}

template <class Q>
__device__ float least_logit(const Side<Q>& q, float largest) {
  return fmaxf(__fadd_rn(largest, kLeastExponent / q.high), -3e38f);
}

// Write the `most` largest of the candidates to `likeliest`, in order, and zeros after the last. Only
// zeros are ever equal; each has a place of its own, so that no two threads write to the same.
__device__ inline void sort_candidates(const u64* candidates, int size, u64* likeliest, int most) {
  for (int i = threadIdx.x; i < most; i += blockDim.x)
    if (i >= size) likeliest[i] = 0;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    u64 rank = candidates[i];
    int place = 0;
    for (int j = 0; j < size && place < most; j++)
      place += candidates[j] > rank || (candidates[j] == rank && j < i);
    if (place < most) likeliest[place] = rank;
  }
}

// Find the row's `most` likeliest tokens; after the next barrier of the cluster they are in block
// 0's memory.likeliest for all to read.
//
// The most-th largest of the threads' own maxima is a threshold that at least `most` tokens reach,
// and few others do; those are ranked by counting.
template <class P, class Q>
__device__ void find_likeliest(const P* p_row, const Side<Q>& q, float least, Share share, int most,
                               LikeliestMemory& memory) {
  u64 best = 0;
  for_each_token(p_row, q.row, share, [&](int token, float, float logit) {
    u64 rank = draft_rank(q, least, token, logit);
    best = rank > best ? rank : best;
  });
  memory.of_thread[threadIdx.x] = best;
  if (threadIdx.x == 0) {
    memory.threshold = 1;
    memory.num_candidates = 0;
  }
  __syncthreads();
  int place = 0;
  for (u32 t = 0; t < blockDim.x; t++) place += memory.of_thread[t] > best;
  if (place == most - 1 && best > 0) memory.threshold = best;
  __syncthreads();
  u64 threshold = memory.threshold;
  if (best >= threshold) {
    for_each_token(p_row, q.row, share, [&](int token, float, float logit) {
      u64 rank = draft_rank(q, least, token, logit);
      if (rank >= threshold) memory.candidates[atomicAdd(&memory.num_candidates, 1u)] = rank;
    });
  }
  __syncthreads();
  sort_candidates(memory.candidates, memory.num_candidates, memory.likeliest, most);
  cluster_sync();
  if (MDSD_CLUSTER_SIZE == 1) return;
  if (cluster_rank() == 0) {
    for (int i = threadIdx.x; i < most * MDSD_CLUSTER_SIZE; i += blockDim.x)
      memory.candidates[i] = in_block(memory.likeliest, i / most)[i % most];
    __syncthreads();
    sort_candidates(memory.candidates, most * MDSD_CLUSTER_SIZE, memory.likeliest, most);
  }
}
