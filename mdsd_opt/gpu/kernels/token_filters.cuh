// The filters of binned_token_filters.cuh of any row, by all weights. Thresholds are found digit by digit,
// without sorting.
#pragma once
#include "binned_token_filters.cuh"
#include "cluster_sum.cuh"

constexpr int kDigits = 2048;  // values of a digit at most

// Sums of 64 bits in two halves: an addition of 32 bits to shared memory is one instruction.
__device__ __forceinline__ void add_to(u32* low, u32* high, u64 value) {
  if (value == 0) return;
  u32 lower = static_cast<u32>(value), upper = static_cast<u32>(value >> 32);
  u32 old = atomicAdd(low, lower);
  upper += old > ~lower;  // the carry
  if (upper) atomicAdd(high, upper);
}

__device__ inline u64 joined(u32 low, u32 high) { return (static_cast<u64>(high) << 32) | low; }

struct TokenFiltersMemory {
  u32 low[kDigits], high[kDigits];
  u64 sums[kDigits];
  u64 scan[kMaxWarps];
  u64 cluster_sums[2][kMaxWarps];
  MaximaScratch maxima;
  int digit;  // as counted from the top
  u64 above;
};

// The least key with a sum of less than `limit` over all greater keys; `measure(token, logit)` is
// what a token adds, 0 if it is out.
template <class T, class Measure>
__device__ u32 least_key_below(const T* row, Share share, u64 limit, TokenFiltersMemory& memory,
                               Measure measure) {
  u32 found = 0;
  u64 above = 0;
  for (int round = 0; round < 3; round++) {
    int shift = round == 0 ? 21 : round == 1 ? 10 : 0, size = round == 2 ? 1024 : 2048;
    for (int b = threadIdx.x; b < kDigits; b += blockDim.x) memory.low[b] = memory.high[b] = 0;
    if (threadIdx.x == 0) memory.digit = 0;
    __syncthreads();
    for_each_token(row, row, share, [&](int token, float logit, float) {
      u32 key = ordered(logit);
      u32 known = round == 0 ? 0 : key >> (round == 1 ? 21 : 10);
      if (known != found) return;
      u64 value = measure(token, logit);
      int digit = size - 1 - static_cast<int>((key >> shift) & (size - 1));  // from the top
      add_to(&memory.low[digit], &memory.high[digit], value);
    });
    cluster_sync();
    u64* first = in_block(memory.sums, 0);
    int part = kDigits / MDSD_CLUSTER_SIZE, begin = cluster_rank() * part;
    for (int b = begin + threadIdx.x; b < begin + part; b += blockDim.x) {
      u64 sum = 0;
#pragma unroll 1  // or the addresses in all blocks would be kept
      for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++)
        sum += joined(in_block(memory.low, rank)[b], in_block(memory.high, rank)[b]);
      first[b] = sum;
    }
    cluster_sync();
    if (cluster_rank() == 0) {
      int each = kDigits / blockDim.x, start = threadIdx.x * each;
      u64 mine = 0, total;
      for (int b = start; b < start + each; b++) mine += memory.sums[b];
      u64 before = sum_before(mine, memory.scan, total) + above;
      for (int b = start; b < start + each; b++) {
        if (memory.sums[b] > 0 && before < limit) atomicMax(&memory.digit, b);
        u64 next = before + memory.sums[b];
        memory.sums[b] = before;
        before = next;
      }
      __syncthreads();
      if (threadIdx.x == 0) memory.above = memory.sums[memory.digit];
    }
    cluster_sync();
    int digit = *in_block(&memory.digit, 0);
    above = *in_block(&memory.above, 0);
    found = (found << (round == 0 ? 0 : round == 1 ? 11 : 10)) | static_cast<u32>(size - 1 - digit);
    cluster_sync();  // all have read it
  }
  return found;
}

template <class T>
__device__ Filter find_filter(const T* row, Share share, int bits, Sampling sampling, float largest,
                              FilterSettings settings, ClusterSum& cluster_sum,
                              TokenFiltersMemory& memory) {
  if (settings.one_hot) {
    u64 tokens = 0;  // counted from the end, the lowest id of the largest logit is the greatest
    for_each_token(row, row, share, [&](int token, float logit, float) {
      if (logit == largest) tokens = max(tokens, static_cast<u64>(0xFFFFFFFFu - token));
    });
    return {infinity(), token_of(cluster_sum.greatest(tokens))};
  }
  u32 least = 0;
  if (settings.top_k > 0)
    least = least_key_below(row, share, settings.top_k, memory, [&](int, float logit) {
      return static_cast<u64>(logit > -infinity());
    });
  if (settings.top_p < 1.0) {
    Side<T> side = make_side(row, sampling, 0, largest);
    u64 mine = 0;
    auto mass = [&](int token, float logit) {
      return ordered(logit) < least ? 0 : weight(side.exponent(token, logit), bits);
    };
    for_each_token(row, row, share, [&](int token, float logit, float) { mine += mass(token, logit); });
    double total = static_cast<double>(cluster_sum.of(mine));
    least = max(least, least_key_below(row, share, static_cast<u64>(ceil(settings.top_p * total)),
                                       memory, mass));
  }
  return filter_from(least, largest, settings.log2_min_p, sampling);
}

// One cluster a row of those that `binned_token_filters` left open; see there for the arguments.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    token_filters(const P* target, long long target_outer, long long target_inner, const Q* draft,
                  long long draft_outer, long long draft_inner, long long inner, int vocab_size, float target_high, float target_low, const Filter* target_none,
                  float draft_high, float draft_low, const Filter* draft_none, int bits, int target_one_hot,
                  int draft_one_hot, int top_k, double top_p, double log2_min_p,
                  Filter* target_filters, Filter* draft_filters) {
  TokenFiltersMemory& memory = *reinterpret_cast<TokenFiltersMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  if (target_filters[row].only != kOpenFilter) return;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
  if (!maxima.is_bad) {
    ClusterSum cluster_sum(memory.cluster_sums);
    Filter p = find_filter(p_row, share, bits, {target_high, target_low, nullptr},
                           maxima.target, {target_one_hot, top_k, top_p, log2_min_p}, cluster_sum,
                           memory);
    Filter q = find_filter(q_row, share, bits, {draft_high, draft_low, nullptr}, maxima.draft,
                           {draft_one_hot, top_k, top_p, log2_min_p}, cluster_sum, memory);
    if (cluster_rank() == 0 && threadIdx.x == 0) {
      target_filters[row] = p;
      draft_filters[row] = q;
    }
  } else if (cluster_rank() == 0 && threadIdx.x == 0) {  // read with the row, for nothing
    target_filters[row] = draft_filters[row] = {-infinity(), -1};
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
