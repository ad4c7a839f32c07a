// How a prefix of tokens fares in the race of K drafts without replacement.
//
// Every token has an exponential clock with its probability as rate, and the drafts are the first K
// to ring. They escape from H if a clock outside rings while fewer than K inside have rung:
//   1 - Q(H) = (1 - q(H)) sum over n < K of S_n,   S_n = integral of e^(-(1-q(H)) t) Pr(N_t = n) dt,
// with N_t the number of clocks in H that have rung by t. S_0 and S_1 have closed forms; the others
// are a sum over nodes of t = exp(x - exp(-x)) for evenly spaced x. The law of N_t is that of the
// heavy tokens, added one by one, and of the light ones, by their power sums.
//
// Rates are in units of what is left after the likeliest tokens, and light ones are at most 1/256. For
// K <= 32 the step, the ends of the sum over nodes and the four moments leave an error of at most
// about 2e-7, and of 2e-8 for K <= 16. Nodes are single numbers; what may be of any size is double.
#pragma once
#include "race_tables.cuh"

constexpr int kMoments = 4;

// Heavy tokens of a row in order of p/q, and sums over the first h of them, or the others.
struct HeavyTokens {
  int size;
  int end[kMaxHeavy];  // the first end of a bin that has the token before it
  float p_weight[kMaxHeavy];
  unsigned short source[kMaxHeavy];  // place in the row's list
  double rate[kMaxHeavy];
  double once[kMaxHeavy + 1];     // S_1 of the first h
  double outside[kMaxHeavy + 1];  // rates of the others

  // How many are in the prefix.
  __device__ int before(int prefix_end) const {
    int low = 0, high = size;
    while (low < high) {
      int middle = (low + high) / 2;
      if (end[middle] <= prefix_end)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

// The exponent of a weight, of whatever size; -infinity for a p of zero.
__device__ inline double exponent(float logit, double scale, const Weight& weight) {
  return (static_cast<double>(logit) - weight.base) * scale - weight.shift;
}

// Fill in all but the sums, in an order that does not depend on that of the list; all threads of a
// block. `end_of(t)` tells the first end beyond a place.
template <class EndOf>
__device__ void sort_heavy(const RaceHead& head, EndOf end_of, HeavyTokens& heavy) {
  int size = head.num_heavy;
  const RowUnits& units = head.units.row;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    HeavyToken token = head.heavy[i];
    double p = exponent(token.p_logit, head.p_scale, units.p);
    double q = exponent(token.q_logit, head.q_scale, units.q);
    int place = 0;
    for (int j = 0; j < size; j++) {
      HeavyToken other = head.heavy[j];
      if (other.place != token.place) {
        place += other.place < token.place;
        continue;
      }
      double other_q = exponent(other.q_logit, head.q_scale, units.q);
      double ratio = exponent(other.p_logit, head.p_scale, units.p) - other_q;
      place += ratio != p - q ? ratio < p - q : other_q != q ? other_q < q : j < i;
    }
    heavy.end[place] = end_of(token.place);
    heavy.source[place] = static_cast<unsigned short>(i);
    heavy.p_weight[place] = units.p.of(token.p_logit, {head.p_scale, 0.0f, nullptr});  // as it was counted
    heavy.rate[place] = exp2(q - kWholeBits);
  }
  if (threadIdx.x == 0) heavy.size = size;
}

// The sums, once the others are there; `once` is there after the next barrier, `outside` at once.
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

// The sum over nodes for K drafts, and what all prefixes have in common.
struct Race {
  int drafts;
  int num_nodes;
  double step, total, light_total;
};

__device__ inline Race make_race(int drafts, double total, double light_total) {
  double step = fmin(0.3, 0.95 / sqrt(1.0 * drafts));
  double last = log((18.0 + 1.7 * drafts) * total);
  int num_nodes = drafts > 2 ? static_cast<int>(ceil((last + 1.5) / step)) + 1 : 0;
  return {drafts, num_nodes, step, total, light_total};
}

// Power sums of z of a prefix's light tokens.
struct LightPrefix {
  float moment[kMoments];
};

// Pr(no more than n heavy tokens of a prefix have rung) at one node, for K drafts or fewer: with fewer,
// the others count as rung from the beginning.
template <int K>
struct HeavyRung {
  float at_most[K];
  float none = 1.0f, one = 1.0f;  // Pr(none has rung), Pr(no more than one)

  __device__ __forceinline__ explicit HeavyRung(int drafts) {
#pragma unroll
    for (int n = 0; n < K; n++) at_most[n] = n >= K - drafts ? 1.0f : 0.0f;
  }

  __device__ __forceinline__ void add(float silent) {
#pragma unroll
    for (int n = K - 1; n > 0; n--)
      at_most[n] = at_most[n - 1] + silent * (at_most[n] - at_most[n - 1]);
    at_most[0] *= silent;
    one = none + silent * (one - none);
    none *= silent;
  }

  // What the polynomials of `with_light` are multiplied by: Pr(N = n) less those of n < 2, times
  // `silent`, the probability that no clock outside and no light one inside has rung.
  __device__ __forceinline__ void write_factors(float silent, float* factors) const {
#pragma unroll
    for (int n = 0; n < K; n++)
      factors[n] = silent * (at_most[K - 1 - n] - (n == 0 ? one : n == 1 ? none : 0.0f));
  }
};

// Sum over n < K of the light tokens that may have rung by `tau` 256ths: elementary symmetric polynomials
// of their odds e^(rate t) - 1, from Newton's identities, times the factors of each.
template <int K>
__device__ __forceinline__ float with_light(const LightPrefix& light, float tau,
                                            const float (&factors)[K]) {
  float tau2 = tau * tau;
  float first = tau * light.moment[0], second = tau2 * light.moment[1];
  float third = tau2 * tau * light.moment[2], fourth = tau2 * tau2 * light.moment[3];
  // Power sums of the odds by those of the rates.
  float sum1 = first + second * (1.0f / 2) + third * (1.0f / 6) + fourth * (1.0f / 24);
  float sum2 = second + third + fourth * (7.0f / 12);
  float sum3 = third + fourth * 1.5f;
  float before1 = 1.0f, before2 = 0.0f, before3 = 0.0f, before4 = 0.0f;
  float result = factors[0];
#pragma unroll
  for (int n = 1; n < K; n++) {
    float next = (sum1 * before1 - sum2 * before2 + sum3 * before3 - fourth * before4) * (1.0f / n);
    before4 = before3;
    before3 = before2;
    before2 = before1;
    before1 = next;
    result += next * factors[n];
  }
  return result;
}

__device__ __forceinline__ float exp_of(double x) {
  return fast_exp2(static_cast<float>(x) * 1.44269504f);
}
