// Optimal acceptance of drafts that are fixed, all of them or all but one [Hu25].
//
// With T the likeliest draft tokens: the top K accept P(T); the top K - 1 and one draw from the
// rest, q' = q / (1 - q(T)), accept P(T) + sum over the rest of min(p, q').
//
// A row is read once for T and the sums of weights, and once for each K. There q weighs 2^32 units or a
// little less for the rest, whatever T holds; what T adds is taken off again, as sums of 32 bits may run
// over and back.
#pragma once
#include "group_threshold.cuh"
#include "weighed_tokens.cuh"

// More tokens than this from the threshold of groups on are not sorted.
constexpr int kMostListed = 1024;

// A factor of q that is off by less will do to tell which of p and q' is less.
constexpr float kFactorSlack = 5e-7f;

// Sums in units, of p and q, and of the lesser of p and q'.
struct LeastSums {
  u32 p, q, least_p, least_q;

  __device__ __forceinline__ void add(float p_weight, float q_weight, float factor, float dither) {
    u32 p_units = units_of(p_weight, dither), q_units = units_of(q_weight, dither);
    bool q_is_less = factor * q_weight < p_weight;
    p += p_units;
    q += q_units;
    least_p += q_is_less ? 0 : p_units;
    least_q += q_is_less ? q_units : 0;
  }
};

struct PackedFixedDraftsMemory {
  GroupScratch groups;
  TotalScratch<2> sums;
  TotalScratch<1> rest;
  TotalScratch<5, u32> units;
  float below[MDSD_BLOCK_SIZE];  // each thread's part of q below the threshold
  LeastSums fixed[kMaxLikeliest];
  u64 listed[kMostListed], likeliest[kMostListed];  // of the row, in block 0: as they come, in order
  u32 num_listed;
  float p_shift, p_sum;  // of all tokens, as weights that are shifted so
};

// As `unit_shift`, a whole number, so that 2^-shift is exact.
__device__ inline float whole_unit_shift(float sum) {
  int exponent = static_cast<int>(__float_as_uint(1.01f * sum) >> 23) - 127;
  return exponent + 1 - kWholeBits;
}
__device__ inline float in_weights(float sum, float shift) {
  return sum * __uint_as_float(static_cast<u32>(127 - static_cast<int>(shift)) << 23);
}

// kFiltered as for `for_each_kept_pack`.
template <bool kFiltered, class P, class Q>
class FixedDraftSearch {
 public:
  __device__ FixedDraftSearch(const Logits<P>& p, const Logits<Q>& q, int vocab_size,
                              PackedFixedDraftsMemory& memory)
      : p_(p), q_(q), vocab_size_(vocab_size), memory_(memory) {}

  // Find the `most` likeliest drafts, by weights relative to nothing; false if these do not do.
  __device__ bool find(int most) {
    PackedFixedDraftsMemory& first = *in_block(&memory_, 0);
    Share share = share_of_block(vocab_size_, kShareStep);
    FirstPass own = first_pass<kFiltered>(p_, q_, share);
    float largest = own.largest;
    if (threadIdx.x == 0) memory_.num_listed = 0;
    float threshold = group_threshold<kShareStep / kPack<P, Q>>(largest, most, memory_.groups);
    float below = own.q_sum;
    if (largest >= threshold) {
      below = 0.0f;
      auto list = [&](int token, float y) {
        if (!(y >= threshold)) {
          below += weight_of(y);
          return;
        }
        u32 place = atomicAdd(&first.num_listed, 1u);
        if (place < kMostListed) first.listed[place] = rank_of(token, y);
      };
      for_each_kept_pack<kFiltered, 1>(
          p_, q_, share,
          [&](int token, const auto&, const auto& y) {
            for (int i = 0; i < kPack<P, Q>; i++) list(token + i, y[i]);
          },
          [&](int token, float, float y) { list(token, y); });
    }
    memory_.below[threadIdx.x] = below;
    float sums[2] = {own.p_sum, own.q_sum};
    cluster_totals<Sum>(sums, memory_.sums, 0);
    if (!(in_range(sums[0]) && in_range(sums[1]) && in_range(weight_of(threshold)))) return false;
    if (first.num_listed > kMostListed) return false;
    if (threadIdx.x == 0) {
      memory_.p_shift = whole_unit_shift(sums[0]);
      memory_.p_sum = in_weights(sums[0], memory_.p_shift);
    }
    if (cluster_rank() == 0)
      sort_candidates(memory_.listed, memory_.num_listed, memory_.likeliest, memory_.num_listed);
    cluster_sync();
    return true;
  }

  // What the drafts accept, one of them drawn from the rest unless all are fixed, for each K. That takes
  // one pass over the row, and another one where the factor was off; a loop inside the other would keep
  // more than there are registers for.
  __device__ void tell(bool last_is_drawn, const int* counts, int num_counts, double* rates) {
    float shift = 0.0f, factor = 0.0f;
#pragma unroll 1
    for (int pass = 0; pass < 2 * num_counts; pass++) {
      int num_fixed = counts[pass / 2] - (last_is_drawn ? 1 : 0);
      if (pass % 2 == 0) {
        float rest = rest_from(in_block(&memory_, 0)->likeliest[last_is_drawn ? num_fixed : 0]);
        shift = whole_unit_shift(rest);
        factor = memory_.p_sum / in_weights(rest, shift);
      }
      u32 fixed;
      RowUnits units{{0.0f, memory_.p_shift}, {0.0f, shift}, kPackedRow};
      LeastSums sums = sums_of(units, factor, num_fixed, fixed, pass % 2);
      float p_sum = sums.p, q_sum = sums.q;
      bool is_off = last_is_drawn && !(fabsf(__fmaf_rn(factor, q_sum, -p_sum)) <= kFactorSlack * p_sum);
      factor = p_sum / q_sum;
      if (is_off && pass % 2 == 0) continue;
      double all = sums.p, rate = fixed / all;
      if (last_is_drawn) {
        double least = static_cast<double>(fixed) + sums.least_p;
        rate = fmin(least / all + sums.least_q / static_cast<double>(sums.q), 1.0);
      }
      if (cluster_rank() == 0 && threadIdx.x == 0) rates[pass / 2] = rate;
      pass |= 1;
    }
  }

 private:
  __device__ float weight_of(float y) const { return fast_exp2(__fmul_rn(y, q_.scale.high)); }

  // The weight of a token of this rank and of all that are less likely.
  __device__ float rest_from(u64 rank) {
    float rest[1] = {memory_.below[threadIdx.x]};
    for (u32 i = threadIdx.x; cluster_rank() == 0 && i < memory_.num_listed; i += blockDim.x)
      if (memory_.likeliest[i] <= rank) rest[0] += weight_of(logit_of(memory_.likeliest[i]));
    cluster_totals<Sum>(rest, memory_.rest, 0);
    return rest[0];
  }

  // Of p of all tokens, and of what else there is of the rest; `fixed` gets p of the fixed drafts.
  __device__ LeastSums sums_of(const RowUnits& units, float factor, int num_fixed, u32& fixed, int turn) {
    int i = threadIdx.x;
    bool is_of_fixed = cluster_rank() == 0 && i < num_fixed;
    if (is_of_fixed) {
      int token = token_of(memory_.likeliest[i]);
      float x = p_.kept(token, number(p_.row[token])), y = number(q_.row[token]);
      LeastSums own{};
      own.add(units.p.of_packed(x, p_.scale), units.q.of_packed(y, q_.scale), factor, dither_of(token));
      memory_.fixed[i] = own;
    }
    LeastSums sums{};
    int vocab_size = vocab_size_;
    asm volatile("" : "+r"(vocab_size));  // or the share and its addresses would be kept from K to K
    Share share = share_of_block(vocab_size, kShareStep);
    for_each_weighed_pack<kFiltered>(p_, q_, share, units,
                                     [&](float p_weight, float q_weight, float, float, float dither) {
                                       sums.add(p_weight, q_weight, factor, dither);
                                     });
    u32 all[5] = {sums.p, sums.q, sums.least_p, sums.least_q, 0};
    if (is_of_fixed) {
      const LeastSums& own = memory_.fixed[i];
      all[1] -= own.q;
      all[2] -= own.least_p;
      all[3] -= own.least_q;
      all[4] = own.p;
    }
    cluster_totals<Sum>(all, memory_.units, turn);
    fixed = all[4];
    return {all[0], all[1], all[2], all[3]};
  }

  Logits<P> p_;
  Logits<Q> q_;
  int vocab_size_;
  PackedFixedDraftsMemory& memory_;
};

template <bool kFiltered, class P, class Q>
__device__ void rates_of_fixed_drafts(const Logits<P>& p, const Logits<Q>& q, int vocab_size,
                                      bool last_is_drawn, const int* counts, int num_counts,
                                      double* rates, int* is_open, PackedFixedDraftsMemory& memory) {
  int most = 1;
  for (int j = 0; j < num_counts; j++) most = max(most, counts[j]);
  FixedDraftSearch<kFiltered, P, Q> search(p, q, vocab_size, memory);
  bool is_found = search.find(most);
  if (cluster_rank() == 0 && threadIdx.x == 0) *is_open = !is_found;
  if (is_found) search.tell(last_is_drawn, counts, num_counts, rates);
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}

// One cluster a row; see `ratio_tables` for the arguments. `last_is_drawn` is 0 for the top K. Rows that are
// no distribution, are not aligned or have other weights than single precision are left open.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    packed_fixed_drafts(const P* target, long long target_outer, long long target_inner,
                        const Q* draft, long long draft_outer, long long draft_inner,
                        long long inner, int vocab_size, float target_high, float target_low,
                        const Filter* target_filters, float draft_high, float draft_low,
                        const Filter* draft_filters, int last_is_drawn, const int* counts,
                        int num_counts, double* rates, int* is_bad, int* is_open) {
  auto& memory = *reinterpret_cast<PackedFixedDraftsMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, target_filters});
  Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, draft_filters});
  bool is_first = cluster_rank() == 0 && threadIdx.x == 0;
  if (is_first) is_bad[row] = 0;
  rates += row * num_counts;
  is_open += row;
  if (!is_packed(p, q)) {
    if (is_first) *is_open = 1;
  } else if (is_filtered(p, q)) {
    rates_of_fixed_drafts<true>(p, q, vocab_size, last_is_drawn, counts, num_counts, rates, is_open, memory);
  } else {
    rates_of_fixed_drafts<false>(p, q, vocab_size, last_is_drawn, counts, num_counts, rates, is_open, memory);
  }
}
