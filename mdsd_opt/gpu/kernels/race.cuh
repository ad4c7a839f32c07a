// How a prefix of tokens fares in the race of K drafts without replacement.
//
// Every token has an exponential clock with its probability as rate, and the drafts are the first K
// to ring. They escape from H if a clock outside rings while fewer than K inside have rung:
//   1 - Q(H) = (1 - q(H)) sum over n < K of S_n,   S_n = integral of e^(-(1-q(H)) t) Pr(N_t = n) dt,
// with N_t the number of clocks in H that have rung by t. S_0 and S_1 have closed forms; the others
// are a sum over nodes of t = exp(x - exp(-x)) for evenly spaced x. The law of N_t is that of the
// heavy tokens, added one by one, and of the light ones, by their power sums.
//
// Rates are in units of what is left after the K - 1 likeliest tokens. For K <= 32 the step, the
// ends of the sum over nodes and the four moments leave an error of at most about 2e-7, and of 2e-8
// for K <= 16.
#pragma once
#include "race_histogram.cuh"

constexpr int kSegment = 8;  // consecutive bins that one warp works on
constexpr u32 kNoEscape = 0xFFFFFFFFu;
constexpr double kEscapeUnits = 2147483648.0;  // 2^31: probabilities as whole numbers

// Heavy tokens of a row in order of their keys, and sums over the first h of them, or the others.
struct HeavyTokens {
  int size;
  int key[kMaxHeavy];
  double rate[kMaxHeavy];
  double once[kMaxHeavy + 1];     // S_1 of the first h
  double outside[kMaxHeavy + 1];  // rates of the others

  // How many have a smaller key.
  __device__ int before(int end) const {
    int low = 0, high = size;
    while (low < high) {
      int middle = (low + high) / 2;
      if (key[middle] < end)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

struct Race {
  int most;            // drafts, of all counts
  int num_nodes;
  double step, total;  // of all rates
  double light_rate;   // the largest a light token can have
  double light_total;  // rates of all light tokens
};

__device__ inline Race make_race(int most, double total, double light_rate, double light_total) {
  double step = fmin(0.3, 0.95 / sqrt(1.0 * most));
  double last = log((18.0 + 1.7 * most) * total);
  int num_nodes = most > 2 ? static_cast<int>(ceil((last + 1.5) / step)) + 1 : 0;
  return {most, num_nodes, step, total, light_rate, light_total};
}

// Every block of a cluster gets all heavy tokens in the same order.
__device__ inline void sort_heavy(FoundTokens& found, HeavyTokens& heavy) {
  int size = 0;
  for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) {
    const FoundTokens& other = *in_block(&found, rank);
    int theirs = other.size;
    size += theirs;
    for (int i = threadIdx.x; i < theirs; i += blockDim.x) {
      u64 order = other.order[i];
      int place = 0;
      for (u32 r = 0; r < MDSD_CLUSTER_SIZE; r++) {
        const FoundTokens& rivals = *in_block(&found, r);
        for (u32 j = 0; j < rivals.size; j++) place += rivals.order[j] < order;
      }
      heavy.key[place] = static_cast<int>(order >> 32);
      heavy.rate[place] = other.rate[i];
    }
  }
  if (threadIdx.x == 0) heavy.size = size;
}

// Sums over heavy tokens; `once` needs the total of the light ones, and is there after the next
// barrier.
__device__ inline void sum_heavy(HeavyTokens& heavy, double light_total) {
  int size = heavy.size;
  double total = light_total;
  for (int i = 0; i < size; i++) total += heavy.rate[i];
  for (int h = threadIdx.x; h <= size; h += blockDim.x) {
    double outside = 0.0;
    for (int i = size - 1; i >= h; i--) outside += heavy.rate[i];
    heavy.outside[h] = outside;
    if (h == size) continue;
    double others = light_total;  // not total - rate, which cancels
    for (int i = 0; i < size; i++)
      if (i != h) others += heavy.rate[i];
    heavy.once[h + 1] = heavy.rate[h] / total / others;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    heavy.once[0] = 0.0;
    for (int h = 0; h < size; h++) heavy.once[h + 1] += heavy.once[h];
  }
}

// Moments of the light tokens of a prefix, in units of powers of `light_rate`.
struct LightPrefix {
  double moment[kMoments];

  __device__ LightPrefix(const RaceSums& sums, int bin, RaceScale scale) {
    moment[0] = static_cast<double>(sums.get(1, bin)) / static_cast<double>(scale.light_limit);
#pragma unroll
    for (int r = 1; r < kMoments; r++)
      moment[r] = static_cast<double>(sums.get(r + 1, bin)) / static_cast<double>(kMomentUnits);
  }

  // S_1: the sum of rate / (total (total - rate)), as a geometric series.
  __device__ double once(const Race& race) const {
    double ratio = race.light_rate / race.total, factor = 1.0, sum = 0.0;
#pragma unroll
    for (int r = 0; r < kMoments; r++) {
      factor *= ratio;
      sum += factor * moment[r];
    }
    return sum / race.total;
  }

  // Elementary symmetric polynomials of the odds e^(rate t) - 1, from Newton's identities, times
  // `none`.
  __device__ void symmetric(double tau, double none, int most, double* polynomials) const {
    double first = tau * moment[0], second = tau * tau * moment[1];
    double third = tau * tau * tau * moment[2], fourth = tau * tau * tau * tau * moment[3];
    // Power sums of the odds by those of the rates.
    double sum1 = first + second / 2 + third / 6 + fourth / 24;
    double sum2 = second + third + fourth * (7.0 / 12.0);
    double sum3 = third + fourth * 1.5;
    double before1 = none, before2 = 0.0, before3 = 0.0, before4 = 0.0;
    polynomials[0] = none;
    for (int n = 1; n < most; n++) {
      double next = (sum1 * before1 - sum2 * before2 + sum3 * before3 - fourth * before4) / n;
      before4 = before3;
      before3 = before2;
      before2 = before1;
      before1 = next;
      polynomials[n] = next;
    }
  }
};

// Pr(no more than n heavy tokens of a prefix have rung) at one node.
struct HeavyRung {
  double at_most[kMaxRaceDrafts];

  __device__ explicit HeavyRung(int most) {
    for (int n = 0; n < most; n++) at_most[n] = 1.0;
  }

  __device__ void add(double rate, double time, int most) {
    double silent = exp(-rate * time);
    for (int n = most - 1; n > 0; n--)
      at_most[n] = at_most[n - 1] + silent * (at_most[n] - at_most[n - 1]);
    at_most[0] *= silent;
  }
};

__device__ inline double warp_sum(double value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

// Write the escape probabilities of the prefixes that end with each of the bins first .. first +
// kSegment - 1, or kNoEscape for bins without drafts. One warp; its lanes are the nodes. `drafts`
// are the numbers of drafts, 0 for none; `end_key` tells where a bin ends.
template <class EndKey, class HasDrafts>
__device__ void escape_of_bins(const RaceSums& sums, const HeavyTokens& heavy, const Race& race,
                               RaceScale scale, const int* drafts, int num_counts, int first,
                               EndKey end_key, HasDrafts has_drafts,
                               u32 (*escapes)[kRaceBins]) {
  int lane = threadIdx.x & 31;
  u32 taken = 0;
  for (int b = 0; b < kSegment; b++)
    if (has_drafts(first + b)) taken |= 1u << b;
  double kept[2] = {0.0, 0.0};  // the lane's bins are lane / 8 and lane / 8 + 4, its count lane % 8
  int num_groups = taken ? (race.num_nodes + 31) / 32 : 0;
  for (int group = 0; group < num_groups; group++) {
    int node = group * 32 + lane;
    double x = race.step * node - 1.5;
    double time = exp(x - exp(-x)) / race.total;
    double node_weight = node < race.num_nodes ? race.step * time * (1.0 + exp(-x)) : 0.0;
    HeavyRung rung(race.most);
    int h = 0;
    for (int b = 0; b < kSegment; b++) {
      if (!(taken >> b & 1)) continue;
      for (int end = end_key(first + b); h < heavy.size && heavy.key[h] < end; h++)
        rung.add(heavy.rate[h], time, race.most);
      // The clocks outside are silent, and no light one inside has rung.
      double none = node_weight * exp(-(race.light_total + heavy.outside[h]) * time);
      double light[kMaxRaceDrafts];
      LightPrefix(sums, first + b, scale).symmetric(race.light_rate * time, none, race.most, light);
      double closed = light[0] * rung.at_most[1] + light[1] * rung.at_most[0];  // S_0 and S_1
      for (int j = 0; j < num_counts; j++) {
        int k = drafts[j];
        if (k <= 2) continue;
        double sum = -closed;
        for (int n = 0; n < k; n++) sum += light[n] * rung.at_most[k - 1 - n];
        sum = warp_sum(sum);
        if (lane == (b & 3) * kMaxCounts + j) kept[b >> 2] += sum;
      }
    }
  }
  int j = lane % kMaxCounts;
  if (j >= num_counts || drafts[j] == 0) return;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int b = lane / kMaxCounts + 4 * i, bin = first + b;
    if (!(taken >> b & 1)) {
      escapes[j][bin] = kNoEscape;
      continue;
    }
    LightPrefix light(sums, bin, scale);
    int h = heavy.before(end_key(bin));
    double inside = race.light_rate * light.moment[0];
    double outside = fmax(race.light_total - inside, 0.0) + heavy.outside[h];
    double sum = 1.0 / race.total + kept[i];
    if (drafts[j] > 1) sum += heavy.once[h] + light.once(race);
    double escape = fmin(fmax(outside * sum, 0.0), 1.0);
    escapes[j][bin] = static_cast<u32>(escape * kEscapeUnits + 0.5);
  }
}
