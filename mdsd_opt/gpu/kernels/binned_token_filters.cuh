// Which tokens top-k, top-p, min-p and a temperature of zero leave in, as a filter for every row.
//
// Filters come in this order, each on what the last one left, and ties with the last token that is
// kept are kept. All three are thresholds of the logit: the least v with fewer than k tokens above
// it; the least v such that what is above it has less than top_p of the mass; and the logit of min_p
// times the largest probability.
//
// The first two are found without sorting. Tokens are counted, and weighed, in 2,048 bins of their weights'
// logarithms, which are in order of the logits; what is in the bin of v is listed and compared.
#pragma once
#include "likeliest.cuh"
#include "weighed_tokens.cuh"

// More tokens of one bin than this are not listed; `token_filters` takes such a row.
constexpr int kMostOfBin = 1024;
constexpr int kOpenFilter = -2;

// Bins of an octave, and the octaves up to a weight of 2^8; the lowest bin has whatever is below.
constexpr float kBinsOfOctave = 32.0f;
constexpr float kOctaves = kRatioBins / kBinsOfOctave;

struct FilterSettings {
  int one_hot;  // a temperature of zero
  int top_k;    // 0 for none
  double top_p, log2_min_p;  // 1 and -infinity for none
};

// What is known of v on one side, in the block that looks for it.
struct FilterSearch {
  int bin;
  double above, limit;  // counts or masses: of the bins above, and what v has less than above it
  u32 num_listed;
  float listed[kMostOfBin];
  u32 least_listed, least;  // as ordered integers: v of this search, and the greatest v of all
  u64 kept;                 // what the bin of top-k's v weighs from that on, in fine units
};

struct BinnedTokenFiltersMemory {
  BinSums<4, 1> sums;  // the number of tokens on either side, and their weights
  u32 of_row[kRatioBins];
  UnitScratch units;
  TotalScratch<2> largest;
  FilterSearch search[2];
  u64 scan[kMaxWarps];
  int found;
  u64 above;
};

__device__ __forceinline__ u32 bin_bits_of_exponent(float exponent) {
  float octave = fminf(fmaxf(exponent + (kOctaves - kWholeBits), 0.0f), kOctaves - 1.0f / kBinsOfOctave);
  return __float_as_uint(__fmaf_rn(octave, kBinsOfOctave, kToBin));
}

// What a listed token adds, in 2^-20 of the units of sums.
constexpr u32 kOfUnit = 1u << 20;
__device__ __forceinline__ u64 fine_units_of(float weight) {
  return __float2ull_rn(weight * (kUnitsOfWeight * kOfUnit));
}

// One block: find the lowest bin with less than a limit above it: `share` of the sum, if not 0, or `count`.
// Top-k, if it came before, has left the bins from its own on, and of that one what is kept.
__device__ inline void find_bin(BinnedTokenFiltersMemory& memory, int sum, int count, double share,
                                FilterSearch& search) {
  for (int b = threadIdx.x; b < kRatioBins; b += blockDim.x) {
    u32 of_bin = 0;
    for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) of_bin += in_block(memory.sums.of[sum], rank)[b];
    memory.of_row[b] = b > search.bin ? of_bin : b == search.bin ? static_cast<u32>(search.kept / kOfUnit) : 0;
  }
  if (threadIdx.x == 0) memory.found = -1;
  __syncthreads();
  int each = kRatioBins / blockDim.x, first = kRatioBins - 1 - static_cast<int>(threadIdx.x) * each;
  u64 mine = 0, total;
  for (int b = first; b > first - each; b--) mine += memory.of_row[b];
  u64 above = sum_before(mine, memory.scan, total), above_found = 0;
  double limit = share > 0.0 ? share * total : count;
  int found = -1;
  for (int b = first; b > first - each; b--) {
    if (memory.of_row[b] > 0 && above < limit) {
      found = kRatioBins - 1 - b;
      above_found = above;
    }
    above += memory.of_row[b];
  }
  if (found >= 0) atomicMax(&memory.found, found);
  __syncthreads();
  if (found >= 0 && found == memory.found) {
    search.bin = kRatioBins - 1 - found;
    search.above = above_found;
    search.limit = limit;
    search.num_listed = 0;
    search.least_listed = 0xFFFFFFFFu;
    search.kept = 0;
  }
  __syncthreads();
}

// One block: find v among the listed tokens, by what each of them adds.
template <class Measure>
__device__ void compare_listed(FilterSearch& search, double units, Measure measure) {
  int size = search.num_listed;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    float v = search.listed[i];
    u64 above = 0;
    for (int j = 0; j < size; j++) above += search.listed[j] > v ? measure(search.listed[j]) : 0;
    if (search.above * units + above < search.limit * units) atomicMin(&search.least_listed, ordered(v));
  }
  __syncthreads();
}

// Which block looks for v of the target, 0, or of the draft, 1.
__device__ inline u32 block_of(u32 side) { return MDSD_CLUSTER_SIZE > 1 ? side : 0; }

template <class P, class Q>
class FilterSearches {
 public:
  __device__ FilterSearches(const Logits<P>& p, const Logits<Q>& q, Share share, const RowUnits& units,
                            BinnedTokenFiltersMemory& memory)
      : p_(p), q_(q), share_(share), units_(units), memory_(memory) {}

  // Fill the bins, and find the largest logits.
  __device__ void fill(bool has_top_k, bool has_top_p, float (&largest)[2]) {
    SharedWord mine = memory_.sums.mine();
    for_each_weighed_token(
        p_, q_, share_, units_, [&](float p_weight, float q_weight, float x, float y, float dither) {
          u32 p_bin = bin_of_p(x), q_bin = bin_of_q(y);
          largest[0] = fmaxf(largest[0], x);
          largest[1] = fmaxf(largest[1], y);
          if (has_top_k) {
            BinSums<4, 1>::template add<0>(mine, p_bin, x > -infinity());
            BinSums<4, 1>::template add<1>(mine, q_bin, y > -infinity());
          }
          if (has_top_p) {
            BinSums<4, 1>::template add<2>(mine, p_bin, units_of(p_weight, dither));
            BinSums<4, 1>::template add<3>(mine, q_bin, units_of(q_weight, dither));
          }
        });
    cluster_totals<Greatest>(largest, memory_.largest, 0);
  }

  // The v of top-k (share 0) or top-p; false if there are too many tokens in its bin.
  __device__ bool find(int first_sum, int count, double share) {
    for (u32 side = 0; side < 2; side++)
      if (cluster_rank() == block_of(side))
        find_bin(memory_, first_sum + side, count, share, memory_.search[side]);
    cluster_sync();
    FilterSearch& p_search = *in_block(memory_.search, block_of(0));
    FilterSearch& q_search = *in_block(memory_.search + 1, block_of(1));
    u32 p_bin = kToBinBits + p_search.bin, q_bin = kToBinBits + q_search.bin;
    auto list = [](FilterSearch& search, float logit) {
      u32 place = atomicAdd(&search.num_listed, 1u);
      if (place < kMostOfBin) search.listed[place] = logit;
    };
    for_each_weighed_token(p_, q_, share_, units_, [&](float, float, float x, float y, float) {
      if (bin_of_p(x) == p_bin && x > -infinity()) list(p_search, x);
      if (bin_of_q(y) == q_bin && y > -infinity()) list(q_search, y);
    });
    cluster_sync();
    if (max(p_search.num_listed, q_search.num_listed) > kMostOfBin) return false;
    if (cluster_rank() == block_of(0)) compare(memory_.search[0], units_.p, p_.scale, share > 0.0);
    if (cluster_rank() == block_of(1)) compare(memory_.search[1], units_.q, q_.scale, share > 0.0);
    cluster_sync();  // what was read of both searches is overwritten by the next
    return true;
  }

 private:
  __device__ __forceinline__ u32 bin_of_p(float x) const {
    return bin_bits_of_exponent(units_.p.exponent(x, p_.scale));
  }
  __device__ __forceinline__ u32 bin_of_q(float y) const {
    return bin_bits_of_exponent(units_.q.exponent(y, q_.scale));
  }

  __device__ void compare(FilterSearch& search, Weight weight, Sampling scale, bool by_mass) {
    auto units = [&](float logit) { return fine_units_of(weight.of(logit, scale)); };
    if (by_mass)
      compare_listed(search, kOfUnit, units);
    else
      compare_listed(search, 1.0, [](float) { return u64{1}; });
    if (threadIdx.x == 0) search.least = max(search.least, search.least_listed);
    for (u32 i = threadIdx.x; !by_mass && i < search.num_listed; i += blockDim.x)
      if (ordered(search.listed[i]) >= search.least_listed)
        atomicAdd(&search.kept, units(search.listed[i]));
  }

  const Logits<P>& p_;
  const Logits<Q>& q_;
  Share share_;
  const RowUnits& units_;
  BinnedTokenFiltersMemory& memory_;
};

__device__ inline Filter filter_from(u32 least, float largest, double log2_min_p, Sampling scale) {
  float threshold = least > 0 ? from_ordered(least) : -infinity();
  if (log2_min_p > -static_cast<double>(infinity())) {
    double exact = static_cast<double>(scale.high) + scale.low;
    threshold = fmaxf(threshold, static_cast<float>(largest + log2_min_p / exact));
  }
  return {threshold, -1};
}

// One cluster a row; see `ratio_tables` for the arguments. The scales' filters are null here. Rows with a
// temperature of zero, or too many tokens in a bin, get kOpenFilter and are left to `token_filters`.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    binned_token_filters(const P* target, long long target_outer, long long target_inner,
                         const Q* draft, long long draft_outer, long long draft_inner,
                         long long inner, int vocab_size, float target_high, float target_low,
                         const Filter* target_none, float draft_high, float draft_low,
                         const Filter* draft_none, int target_one_hot, int draft_one_hot, int top_k,
                         double top_p, double log2_min_p, Filter* target_filters,
                         Filter* draft_filters) {
  auto& memory = *reinterpret_cast<BinnedTokenFiltersMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  bool is_found = true, writes_p = threadIdx.x == 0 && cluster_rank() == block_of(0);
  bool writes_q = threadIdx.x == 0 && cluster_rank() == block_of(1);
  if (target_one_hot || draft_one_hot) {
    if (writes_p) target_filters[row] = {-infinity(), kOpenFilter};
    return;
  }
  Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, nullptr});
  Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, nullptr});
  Share share = share_of_block(vocab_size, kShareStep);
  memory.sums.clear();
  if (threadIdx.x < 2) {
    memory.search[threadIdx.x].bin = -1;
    memory.search[threadIdx.x].least = 0;
  }
  RowUnits units = row_units(p, q, share, false, memory.units);
  float largest[2] = {-infinity(), -infinity()};
  if (units.kind != kBadRow) {
    FilterSearches<P, Q> searches(p, q, share, units, memory);
    searches.fill(top_k > 0, top_p < 1.0, largest);
    if (top_k > 0) is_found = searches.find(0, top_k, 0.0);
    if (is_found && top_p < 1.0) is_found = searches.find(2, 0, top_p);
    const FilterSearch* search = memory.search;
    if (writes_p) target_filters[row] = filter_from(search[0].least, largest[0], log2_min_p, p.scale);
    if (writes_q) draft_filters[row] = filter_from(search[1].least, largest[1], log2_min_p, q.scale);
    if (writes_p && !is_found) target_filters[row].only = kOpenFilter;
  } else {  // read with the row, for nothing
    if (writes_p) target_filters[row] = {-infinity(), -1};
    if (writes_q) draft_filters[row] = {-infinity(), -1};
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
