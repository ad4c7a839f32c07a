// What is decided on in one row: groups of tokens in order of p/q, and the marginal of the selected
// draft on them, which has one ratio to q in every group.
//
// A group is what the row's table has in a bin. Heavy tokens of drafts without replacement
// (race_tables.cuh) are groups of their own, behind what is left of their bin: a bin may hold nearly
// all of q in a few of them.
#pragma once
#include "race_tables.cuh"

constexpr int kMaxDrafts = 64;
constexpr int kMaxGroups = kRatioBins + kMaxHeavy;

// Weights of q above this are heavy, without replacement.
constexpr float kHeavyFrom = 1.0f;

// Units of probability: whole, so that sums need no order. A number of [1, 2) has 2^52 of them in its lowest
// bits, so that none is converted; what is a little more than one counts for half or twice of that little.
constexpr double kMassUnits = 4503599627370496.0;  // 2^52
constexpr double kMassUnit = 1.0 / kMassUnits;
constexpr u64 kOneBits = 0x3FF0000000000000ull;

__device__ __forceinline__ u64 in_mass_units(double share) {
  return __double_as_longlong(fmax(share, 0.0) + 1.0) - kOneBits;
}
// Of a product of numbers that are not negative.
__device__ __forceinline__ u64 in_mass_units(double a, double b) {
  return __double_as_longlong(__fma_rn(a, b, 1.0)) - kOneBits;
}
__device__ __forceinline__ double share_of(u64 mass) {
  return __longlong_as_double(mass + kOneBits) - 1.0;
}

// A sum of shares, in mass units, what these leave or exceed in units of that, and once more: where nearly
// all of q is in a few tokens, the others are still told apart.
struct FineSum {
  u64 part[3];

  __device__ __forceinline__ void add(double share) {
    double whole = share + 1.0, rest = share - (whole - 1.0);
    part[0] += __double_as_longlong(whole) - kOneBits;
#pragma unroll
    for (int i = 1; i < 3; i++) {
      whole = __fma_rn(rest, kMassUnits, 1.5);
      rest = __fma_rn(rest, kMassUnits, 1.5 - whole);
      part[i] += __double_as_longlong(whole) - __double_as_longlong(1.5);
    }
  }
  __device__ __forceinline__ void add(const FineSum& other) {
#pragma unroll
    for (int i = 0; i < 3; i++) part[i] += other.part[i];
  }
  // Of two sums, the difference in mass units.
  __device__ __forceinline__ double minus(const FineSum& other) const {
    double difference = static_cast<long long>(part[2] - other.part[2]);
#pragma unroll
    for (int i = 1; i >= 0; i--)
      difference = __fma_rn(difference, kMassUnit, static_cast<long long>(part[i] - other.part[i]));
    return difference;
  }
};

__device__ __forceinline__ int bin_of(float place) {
  return static_cast<int>(bin_bits_of(place) - kToBinBits);
}

// A token as the tables count it, and what they list of it if it is heavy.
struct WeighedToken {
  float place, p_logit, q_logit, p_weight, q_weight;
};

template <class P, class Q>
__device__ __forceinline__ WeighedToken weighed(const Logits<P>& p, const Logits<Q>& q,
                                                const RowUnits& units, int token, float x, float y,
                                                float shape) {
  bool p_is_out = p.leaves_out(token, x);
  float p_weight = p_is_out ? 0.0f : units.p.of(x, p.scale);
  float q_weight = q.leaves_out(token, y) ? 0.0f : units.q.of(y, q.scale);
  return {ordered_place(place_of(p_weight, q_weight, shape)), p_is_out ? -infinity() : x, y, p_weight, q_weight};
}

// A draft; `token` is -1 if it is missing or q cannot have drawn it.
struct DraftedToken {
  int token;
  WeighedToken weight;
};

// A heavy token as every pass finds it again.
struct HeavyGroup {
  float place, p_logit, q_logit;
  int group;
  double q;
};

// p_I / q, of weights.
struct Ratio {
  float high, low;
};

enum PlanKind {
  kSelects,  // a draft is selected
  kCertain,  // there is nothing to select: the output is drawn from the target
  kConcentrated,  // as before, as nearly all of q is in so few tokens that they are always drafted
  kNoRow     // no distribution
};

struct RowPlan {
  int kind, num_groups, num_heavy;
  int is_race;            // without replacement
  int needs_residual;     // the selected draft was rejected
  u32 p_total;            // of the row's units of p
  float finer;            // units of what is left of p are so much smaller
  double p_unit, q_unit;  // probabilities by weight
  double most_ratio;      // of p_I to q, that is of any use
  double rate;            // if the drafts are certain
  double most;            // no lossless rule accepts more often
  u64 p[kMaxGroups];  // in mass units
  double q[kMaxGroups];
  FineSum q_sum[kMaxGroups + 1];                   // of q up to the ends of groups
  float lowest[kMaxGroups], highest[kMaxGroups];   // p/q, between which its tokens lie
  double contained[kMaxGroups + 1];  // probability that all drafts are in the groups up to an end
  Ratio ratio[kMaxGroups];
  HeavyGroup heavy[kMaxHeavy];
  unsigned short group_of_bin[kRatioBins];

  __device__ bool is_heavy(const WeighedToken& token) const { return is_race && token.q_weight > kHeavyFrom; }
  // What is listed of a heavy token.
  __device__ const HeavyGroup& heavy_of(const WeighedToken& token) const {
    int low = 0, high = num_heavy;
    while (low < high) {
      int middle = (low + high) / 2;
      if (heavy[middle].place < token.place)
        low = middle + 1;
      else
        high = middle;
    }
    while (low < num_heavy - 1 &&
           (heavy[low].p_logit != token.p_logit || heavy[low].q_logit != token.q_logit))
      low++;
    return heavy[low];
  }
  __device__ int group_of(const WeighedToken& token) const {
    return is_heavy(token) ? heavy_of(token).group : group_of_bin[bin_of(token.place)];
  }
  __device__ double q_of(const WeighedToken& token) const {
    return is_heavy(token) ? heavy_of(token).q : token.q_weight * q_unit;
  }
  // p_I of a heavy token as a weight of p, by its q: weights far from one are not accurate enough.
  __device__ double selected(const HeavyGroup& heavy) const {
    Ratio own = ratio[heavy.group];
    return (static_cast<double>(own.high) + own.low) * (heavy.q / q_unit);
  }
};

// Units of a row, given the heads of its launch.
__device__ __forceinline__ const RowUnits& units_in(const void* heads, bool is_race, long long item) {
  return is_race ? static_cast<const RaceHead*>(heads)[item].units.row
                 : static_cast<const RowHead*>(heads)[item].units;
}

// Drafts of a row that are not missing.
__device__ inline int drafts_there(const DraftedToken* drafted, int num_drafts) {
  int there = 0;
  for (int i = 0; i < num_drafts; i++) there += drafted[i].token >= 0;
  return there;
}
