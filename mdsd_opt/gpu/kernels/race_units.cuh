// The unit of q for drafts without replacement: what is left of the row after its likeliest tokens, so
// that nothing is lost where K - 1 tokens hold nearly everything.
//
// The likeliest are not sorted out. What is left is the sum of all tokens up to a threshold of groups, which
// only the few threads with tokens above it have to form anew. It need not be exact: tokens above the
// threshold are listed one by one if they are heavy.
#pragma once
#include "group_threshold.cuh"
#include "likeliest.cuh"
#include "row_units.cuh"

constexpr int kMaxRaceDrafts = 32;

// Tokens of at most this part of what is left are light.
constexpr float kLightShare = 256.0f;

// So many tokens may be above the threshold.
constexpr float kMostAbove = 64.0f;

constexpr int kManyDrafts = 1 << 30;

struct RaceUnits {
  RowUnits row;      // q weighs 256 for what is left, or a little less
  int support;       // drafts that are possible, kManyDrafts if there are more than are drawn
  double possible;   // and their share of p, if there are not
};

struct RaceUnitScratch {
  MaximaScratch maxima;
  TotalScratch<4> totals;
  TotalScratch<1> greatest;
  GroupScratch groups;
};

// Tokens up to a threshold: their sum, and how many there are above it.
struct Left {
  float sum, above;
};

// The exponent of the unit of q: `most - 1` tokens at least do not count, those at the threshold only
// as often as needed. Whatever lies above the threshold and is still light must fit in, too.
__device__ inline float left_shift(Left left, float weight_at_threshold, int most) {
  float missing = fmaxf(most - 1 - left.above, 0.0f);
  float sum = left.sum - missing * weight_at_threshold;
  return unit_shift(sum / (1.0f - (left.above + missing) / kLightShare));
}

template <class P, class Q>
class RaceUnitSearch {
 public:
  __device__ RaceUnitSearch(const Logits<P>& p, const Logits<Q>& q, Share share, int most,
                            RaceUnitScratch& scratch)
      : p_(p), q_(q), share_(share), most_(most), scratch_(scratch) {}

  // Relative to nothing; false if that does not do.
  template <bool kFiltered>
  __device__ bool packed(RaceUnits& units) {
    FirstPass own = first_pass<kFiltered>(p_, q_, share_);
    float largest = own.largest;
    float threshold = group_threshold<kShareStep / kPack<P, Q>>(largest, most_, scratch_.groups);
    Left left{own.q_sum, 0.0f};
    if (largest > threshold) {
      left.sum = 0.0f;
      auto count = [&](float y) {
        left.sum += y > threshold ? 0.0f : weight_of(y);
        left.above += y > threshold;
      };
      for_each_kept_pack<kFiltered, 1>(
          p_, q_, share_,
          [&](int, const auto&, const auto& y) {
            for (float logit : y) count(logit);
          },
          [&](int, float, float y) { count(y); });
    }
    float sums[4] = {own.p_sum, left.sum, left.above, own.q_sum};
    total(sums);
    left = {sums[1], sums[2]};
    if (!(in_range(sums[0]) && in_range(left.sum) && in_range(sums[3]))) return false;
    if (!(left.above <= kMostAbove && in_range(weight_of(threshold)))) return false;
    units = {{{0.0f, unit_shift(sums[0])},
              {0.0f, left_shift(left, weight_of(threshold), most_)},
              kPackedRow},
             kManyDrafts,
             1.0};
    return true;
  }

  // Whatever the row is like.
  __device__ RaceUnits any() {
    Maxima maxima = row_maxima(p_.row, q_.row, share_, scratch_.maxima);
    if (maxima.is_bad) return {{{0.0f, 0.0f}, {0.0f, 0.0f}, kBadRow}, 0, 0.0};
    least_ = fmaxf(__fadd_rn(maxima.draft, kLeastExponent / q_.scale.high), -3e38f);
    float largest = -infinity();
    for_each_token(p_.row, q_.row, share_, [&](int token, float, float y) {
      if (is_possible(token, y)) largest = fmaxf(largest, y);
    });
    float threshold = group_threshold<kShareStep / kGroup>(largest, most_, scratch_.groups);
    RaceUnits units{{{maxima.target, 0.0f}, {threshold, 0.0f}, kAnyRow}, kManyDrafts, 1.0};
    float sums[4] = {0.0f, 0.0f, kMostAbove + 1.0f, 0.0f};
    if (threshold > -infinity()) add_up(units, sums);
    if (!(sums[2] <= kMostAbove)) {
      units.row.q.base = exact_threshold(units.support);
      add_up(units, sums);
    }
    units.row.p.shift = unit_shift(sums[0]);
    units.row.q.shift =
        left_shift({sums[1], sums[2]}, 1.0f, min(most_, max(units.support - 1, 1)));
    if (units.support <= most_) units.possible = possible_share(units);
    return units;
  }

 private:
  __device__ float weight_of(float y) const { return fast_exp2(__fmul_rn(y, q_.scale.high)); }
  __device__ bool is_possible(int token, float y) const {
    return y >= least_ && !q_.leaves_out(token, y);
  }

  __device__ void total(float (&sums)[4]) {
    cluster_totals<Sum>(sums, scratch_.totals, turn_);
    turn_ ^= 1;
  }

  // Sums of p, of q up to the threshold, which is q's base, and of the tokens above it.
  __device__ void add_up(const RaceUnits& units, float (&sums)[4]) {
    sums[0] = sums[1] = sums[2] = 0.0f;
    for_each_token(p_.row, q_.row, share_, [&](int token, float x, float y) {
      if (!p_.leaves_out(token, x)) sums[0] += units.row.p.of(x, p_.scale);
      if (!is_possible(token, y)) return;
      if (y > units.row.q.base)
        sums[2] += 1.0f;
      else
        sums[1] += units.row.q.of(y, q_.scale);
    });
    total(sums);
  }

  // Level by level from the top, until more tokens than are drawn reach it, or there are none left.
  __device__ float exact_threshold(int& support) {
    float level = infinity(), reached = 0.0f;
    for (;;) {
      float next[1] = {-infinity()}, same[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      for_each_token(p_.row, q_.row, share_, [&](int token, float, float y) {
        if (is_possible(token, y) && y < level) next[0] = fmaxf(next[0], y);
      });
      cluster_totals<Greatest>(next, scratch_.greatest, 0);
      if (!(next[0] >= least_)) {
        support = static_cast<int>(reached);
        return level;
      }
      level = next[0];
      for_each_token(p_.row, q_.row, share_, [&](int token, float, float y) {
        if (is_possible(token, y) && y == level) same[0] += 1.0f;
      });
      total(same);
      reached += same[0];
      if (reached > most_) return level;
    }
  }

  __device__ double possible_share(const RaceUnits& units) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for_each_token(p_.row, q_.row, share_, [&](int token, float x, float y) {
      if (p_.leaves_out(token, x)) return;
      float weight = units.row.p.of(x, p_.scale);
      sums[0] += is_possible(token, y) ? weight : 0.0f;
      sums[1] += is_possible(token, y) ? 0.0f : weight;
    });
    total(sums);
    return static_cast<double>(sums[0]) / (static_cast<double>(sums[0]) + sums[1]);
  }

  const Logits<P>& p_;
  const Logits<Q>& q_;
  Share share_;
  int most_;
  RaceUnitScratch& scratch_;
  float least_ = 0.0f;
  int turn_ = 0;
};

template <class P, class Q>
__device__ RaceUnits race_units(const Logits<P>& p, const Logits<Q>& q, Share share, int most,
                                RaceUnitScratch& scratch) {
  RaceUnitSearch<P, Q> search(p, q, share, most, scratch);
  RaceUnits units;
  bool is_found = is_packed(p, q) && (is_filtered(p, q) ? search.template packed<true>(units)
                                                        : search.template packed<false>(units));
  return is_found ? units : search.any();
}
