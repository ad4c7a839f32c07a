// The largest logits of a pair of rows, and whether the rows are distributions at all.
#pragma once
#include "block.cuh"
#include "logits.cuh"

struct Maxima {
  float target, draft;
  bool is_bad;  // a NaN, +inf, or nothing but -inf
};

struct MaximaScratch {
  float target[kMaxWarps], draft[kMaxWarps];
  int is_bad[kMaxWarps];
};

// Every thread of the cluster gets the same answer. The caller lets all blocks of the cluster pass
// a barrier before `scratch` is used again and before any block exits.
template <class P, class Q>
__device__ Maxima row_maxima(const P* p, const Q* q, Share share, MaximaScratch& scratch) {
  float target = -infinity(), draft = -infinity();
  bool is_bad = false;
  for_each_token(p, q, share, [&](int, float target_logit, float draft_logit) {
    target = fmaxf(target, target_logit);  // leaves NaNs out
    draft = fmaxf(draft, draft_logit);
    is_bad |= !(target_logit < infinity()) || !(draft_logit < infinity());
  });
  target = warp_max(target);
  draft = warp_max(draft);
  is_bad = warp_max(is_bad ? 1.0f : 0.0f) > 0.0f;
  u32 warps = blockDim.x >> 5;
  if ((threadIdx.x & 31) == 0) {
    scratch.target[threadIdx.x >> 5] = target;
    scratch.draft[threadIdx.x >> 5] = draft;
    scratch.is_bad[threadIdx.x >> 5] = is_bad;
  }
  cluster_sync();
  Maxima all{-infinity(), -infinity(), false};
  for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) {
    const MaximaScratch& other = *in_block(&scratch, rank);
    for (u32 w = 0; w < warps; w++) {
      all.target = fmaxf(all.target, other.target[w]);
      all.draft = fmaxf(all.draft, other.draft[w]);
      all.is_bad |= other.is_bad[w] != 0;
    }
  }
  all.is_bad |= all.target == -infinity() || all.draft == -infinity();
  return all;
}
