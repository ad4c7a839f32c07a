// The output of rows whose selected draft was rejected, and how much is left for such rows: (p - p_I)+.
#pragma once
#include "philox.cuh"
#include "row_plan.cuh"

// A heavy token on its way to what is left of it.
struct HeavyRest {
  float p_logit, q_logit, dither;
};

struct ResidualTokensMemory {
  Ratio ratio[kRatioBins];
  HeavyRest heavy[kMaxHeavy];
  u32 num_heavy;
  u32 sums[2][kMaxWarps], of_block;
};

// What is left of p, in units of 2^-32 of the row's p, or finer ones.
template <class P, class Q>
struct Residual {
  const Logits<P>& p;
  const Logits<Q>& q;
  const RowUnits& units;
  const RowPlan& plan;
  ResidualTokensMemory& memory;
  float shape, units_of_rest;
  bool has_heavy;

  __device__ __forceinline__ u32 in_units(float rest, float dither) const {
    return rounded_down(__fmaf_rn(rest, units_of_rest, dither));
  }

  __device__ __forceinline__ u32 of_light(float p_weight, float q_weight, float place,
                                          float dither) const {
    Ratio ratio = memory.ratio[bin_bits_of(place) - kToBinBits];
    float rest = __fmaf_rn(-ratio.low, q_weight, __fmaf_rn(-ratio.high, q_weight, p_weight));
    return in_units(rest, dither);
  }
  __device__ u32 of_heavy(const WeighedToken& token, float dither) const {
    double selected = plan.num_heavy > 0 ? plan.selected(plan.heavy_of(token)) : 0.0;
    return in_units(static_cast<float>(token.p_weight - selected), dither);
  }
  __device__ __forceinline__ u32 of(int token) const {
    WeighedToken found =
        weighed(p, q, units, token, number(p.row[token]), number(q.row[token]), shape);
    float dither = dither_of(token);
    if (has_heavy && found.q_weight > kHeavyFrom) return of_heavy(found, dither);
    return of_light(found.p_weight, found.q_weight, found.place, dither);
  }
  __device__ u32 of_listed(const HeavyRest& listed) const {
    float p_weight = units.p.of(listed.p_logit, p.scale), q_weight = units.q.of(listed.q_logit, q.scale);
    float place = ordered_place(place_of(p_weight, q_weight, shape));
    return of_heavy({place, listed.p_logit, listed.q_logit, p_weight, q_weight}, listed.dither);
  }
};

// Of a block's share of the row, by each thread's part. Heavy tokens, where there are any, are listed
// first.
template <bool kHasHeavy, class P, class Q>
__device__ __forceinline__ u32 residual_of_share(const Residual<P, Q>& residual, Share share) {
  ResidualTokensMemory& memory = residual.memory;
  u32 mine = 0;
  auto add = [&](float p_weight, float q_weight, float x, float y, float dither) {
    float place = place_of(p_weight, q_weight, residual.shape);
    u32 rest = residual.of_light(p_weight, q_weight, place, dither);
    if (kHasHeavy && q_weight > kHeavyFrom)
      memory.heavy[atomicAdd(&memory.num_heavy, 1u)] = {x, y, dither};
    else
      mine += rest;
  };
  for_each_weighed_token(residual.p, residual.q, share, residual.units, add);
  if (!kHasHeavy) return mine;
  __syncthreads();
  for (u32 i = threadIdx.x; i < memory.num_heavy; i += blockDim.x)
    mine += residual.of_listed(memory.heavy[i]);
  return mine;
}

constexpr int kElsewhere = -1;

// Draw a token of a block's share, tokens in order of their ids, each thread a stretch of them: that at
// `wanted` units from the share's begin. One thread gets it.
template <class P, class Q>
__device__ int token_at(const Residual<P, Q>& residual, Share share, u32 wanted, u32* scratch) {
  int each = (share.end - share.begin + blockDim.x - 1) / blockDim.x;
  int begin = min(share.begin + static_cast<int>(threadIdx.x) * each, share.end);
  int end = min(begin + each, share.end);
  u32 mine = 0, of_block;
#pragma unroll 1
  for (int token = begin; token < end; token++) mine += residual.of(token);
  u32 sum = sum_before(mine, scratch, of_block);
  if (wanted < sum || wanted - sum >= mine) return kElsewhere;
#pragma unroll 1
  for (int token = begin; token < end; token++) {
    sum += residual.of(token);
    if (wanted < sum) return token;
  }
  return kElsewhere;
}

// One cluster a row, after `draft_selection`. `rates` and `gaps`, unless they are null, get the probability
// that the selected draft is accepted, and how much higher the optimum is at most; without them only
// rows that ask for a residual are read. kHasHeavy is for drafts without replacement.
template <class P, class Q, bool kHasHeavy>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    residual_tokens(const P* target, long long target_outer, long long target_inner,
                    const Q* draft, long long draft_outer, long long draft_inner, long long inner,
                    int vocab_size, float target_high, float target_low,
                    const Filter* target_filters, float draft_high, float draft_low,
                    const Filter* draft_filters, long long first_row, float shape,
                    const void* heads, const RowPlan* plans,
                    const double* uniforms, const u64* key, u64 seed, u64 first_number, u32 step,
                    long long* tokens, double* rates, double* gaps) {
  ResidualTokensMemory& memory = *reinterpret_cast<ResidualTokensMemory*>(shared_memory());
  long long item = blockIdx.x / MDSD_CLUSTER_SIZE, row = first_row + item;
  const RowPlan& plan = plans[item];
  if (plan.kind == kNoRow || !(plan.needs_residual || rates)) return;
  Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, target_filters});
  Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, draft_filters});
  Share share = share_of_block(vocab_size, kShareStep);
  for (int b = threadIdx.x; b < kRatioBins; b += blockDim.x)
    memory.ratio[b] = plan.ratio[plan.group_of_bin[b]];
  if (threadIdx.x == 0) memory.num_heavy = 0;
  __syncthreads();
  RowUnits units = units_in(heads, kHasHeavy, item);
  Residual<P, Q> residual{p, q, units, plan, memory, shape, kUnitsOfWeight * plan.finer,
                          kHasHeavy};
  u32 of_block, before = 0, all = 0;
  sum_before(residual_of_share<kHasHeavy>(residual, share), memory.sums[0], of_block);
  if (threadIdx.x == 0) memory.of_block = of_block;
  cluster_sync();
  for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) {
    u32 other = *in_block(&memory.of_block, rank);
    if (rank < cluster_rank()) before += other;
    all += other;
  }
  if (rates && cluster_rank() == 0 && threadIdx.x == 0) {
    double rate = plan.kind == kSelects ? fmax(1.0 - all / (plan.p_total * static_cast<double>(plan.finer)), 0.0) : plan.rate;
    rates[item] = rate;
    gaps[item] = fmax(plan.most - rate, 0.0);
  }
  if (plan.needs_residual && all > 0) {  // else only rounding failed the test
    Draws draws(uniforms, key, seed, first_number, step);
    u32 wanted = min(static_cast<u32>(draws.of(item, kResidual) * all), all - 1);
    if (wanted >= before && wanted - before < of_block) {
      int token = token_at(residual, share, wanted - before, memory.sums[1]);
      if (token != kElsewhere) tokens[item] = token;
    }
  }
  cluster_sync();  // others may still be reading this block's memory
}
