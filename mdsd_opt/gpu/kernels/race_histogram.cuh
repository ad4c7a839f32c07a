// What drafts without replacement need to know of the tokens of every bin of log2(p/q): the sum of
// p, and power sums of the light tokens' q. Heavy tokens are few and listed one by one.
//
// Draft weights count from the K-th likeliest token, the heaviest of those that may be left when the
// last draft is drawn, so that nothing is lost where K - 1 tokens hold nearly everything. A key is
// that of ratio_histogram.cuh without its last bit: 10 bits of bin, then twice 6 bits of part.
#pragma once
#include "likeliest.cuh"
#include "ratio_histogram.cuh"

constexpr int kMoments = 4;
constexpr int kRaceSums = 1 + kMoments;  // p, then the moments
constexpr int kRaceBins = 1024;
constexpr int kRaceCells = kRaceBins / kParts;
constexpr int kRaceBinShift = 2 * kPartBits;

// Tokens of at most this part of what is left after the K - 1 likeliest are light.
constexpr int kLightShare = 256;
constexpr int kMaxRaceDrafts = 32;
constexpr int kMaxHeavy = kLightShare + kMaxRaceDrafts;

// Moments above the first count in units of 2^-40.
constexpr float kMomentUnits = 1099511627776.0f;

// Sums of 64 bits in two halves, as in `Histogram`.
struct RaceSums {
  u32 low[kRaceSums][kRaceBins], high[kRaceSums][kRaceBins];

  __device__ u64 get(int sum, int bin) const { return joined(low[sum][bin], high[sum][bin]); }
  __device__ void set(int sum, int bin, u64 value) {
    low[sum][bin] = static_cast<u32>(value);
    high[sum][bin] = static_cast<u32>(value >> 32);
  }
};

// Which bins and parts are divided further, as `OpenCells`.
struct OpenRaceCells {
  unsigned char of_bin[kRaceBins];
  unsigned char of_part[kRaceBins];
};

// Index among the sums of a level, or -1.
__device__ __forceinline__ int race_bin_of(int key, const OpenRaceCells& open, int level) {
  int bin = key >> kRaceBinShift;
  if (level == 0) return bin;
  u32 cell = open.of_bin[bin];
  if (cell == kClosed) return -1;
  int part = cell * kParts + ((key >> kPartBits) & (kParts - 1));
  if (level == 1) return part;
  cell = open.of_part[part];
  return cell == kClosed ? -1 : static_cast<int>(cell * kParts + (key & (kParts - 1)));
}

// How the weights of a row's drafts are to be read.
struct RaceScale {
  int bits;
  u64 light_limit;  // a heavier token is heavy
  double unit;      // of weights, so that the K-th likeliest token and those after it sum to one
};

// A weight that does not overflow for the likeliest tokens either; these are heavy, whatever it is.
__device__ __forceinline__ u64 draft_weight(Exponent exponent, int bits) {
  exponent.whole = fminf(exponent.whole, static_cast<float>(62 - bits));
  return weight(exponent, bits);
}

// A token's rate, of whatever size.
__device__ __forceinline__ double draft_rate(Exponent exponent, RaceScale scale) {
  double power = fast_exp2(exponent.part) * (exp2(1.0 * scale.bits) * scale.unit);
  return power * exp2(static_cast<double>(exponent.whole));
}

// Heavy tokens of a block as they were found.
struct FoundTokens {
  u32 size;
  u64 order[kMaxHeavy];  // by key, then by token
  double rate[kMaxHeavy];
};

// Sums of a thread that go to the same bin, as long as they do.
struct RunningMoments {
  int bin = -1;
  u64 sums[kRaceSums] = {};

  __device__ __forceinline__ void flush(RaceSums& all) {
    if (bin < 0) return;
#pragma unroll
    for (int s = 0; s < kRaceSums; s++) add_to(&all.low[s][bin], &all.high[s][bin], sums[s]);
  }

  __device__ __forceinline__ void move(RaceSums& all, int to) {
    if (to == bin) return;
    flush(all);
    bin = to;
#pragma unroll
    for (int s = 0; s < kRaceSums; s++) sums[s] = 0;
  }
};

// Fill a block's sums, which must have been cleared, with its share of the row; and list its heavy
// tokens, if asked to.
template <class P, class Q>
__device__ __forceinline__ void accumulate_race(const Side<P>& p, const Side<Q>& q, Share share,
                                                Grid grid, int p_bits, RaceScale scale,
                                                const OpenRaceCells& open, int level,
                                                RaceSums& all, FoundTokens* found) {
  RunningMoments running;
  float per_limit = 1.0f / static_cast<float>(scale.light_limit);
  for_each_token(p.row, q.row, share, [&](int token, float target_logit, float draft_logit) {
    Exponent q_exponent = q.exponent(token, draft_logit);
    u64 q_weight = draft_weight(q_exponent, scale.bits);
    if (q_weight == 0) return;  // never drafted, or next to never: in no set that matters
    Exponent p_exponent = p.exponent(token, target_logit);
    int key = key_of(p_exponent, q_exponent, grid) >> 1;
    if (found && q_weight > scale.light_limit) {
      u32 place = atomicAdd(&found->size, 1u);
      found->order[place] = (static_cast<u64>(key) << 32) | static_cast<u32>(token);
      found->rate[place] = draft_rate(q_exponent, scale);
    }
    int bin = race_bin_of(key, open, level);
    if (bin < 0) return;
    running.move(all, bin);
    running.sums[0] += weight(p_exponent, p_bits);
    if (q_weight > scale.light_limit) return;
    float x = __fmul_rn(static_cast<float>(q_weight), per_limit);
    float square = __fmul_rn(x, x);
    running.sums[1] += q_weight;
    running.sums[2] += __float2ull_rn(__fmul_rn(square, kMomentUnits));
    running.sums[3] += __float2ull_rn(__fmul_rn(__fmul_rn(square, x), kMomentUnits));
    running.sums[4] += __float2ull_rn(__fmul_rn(__fmul_rn(square, square), kMomentUnits));
  });
  running.flush(all);
}

__device__ inline void clear(RaceSums& all) {
  for (int b = threadIdx.x; b < kRaceBins; b += blockDim.x)
    for (int s = 0; s < kRaceSums; s++) all.low[s][b] = all.high[s][b] = 0;
}

// The bins that a block of the cluster works on.
constexpr int kBinsOfBlock = kRaceBins / MDSD_CLUSTER_SIZE;
static_assert(kBinsOfBlock % kParts == 0, "a block works on whole cells");

// Add up the cluster's sums, every block those of its own bins, in place.
__device__ inline void add_up(RaceSums& all) {
  int begin = cluster_rank() * kBinsOfBlock;
  for (int b = begin + threadIdx.x; b < begin + kBinsOfBlock; b += blockDim.x) {
    for (int s = 0; s < kRaceSums; s++) {
      u64 total = 0;
      for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) total += in_block(&all, rank)->get(s, b);
      all.set(s, b, total);
    }
  }
}
