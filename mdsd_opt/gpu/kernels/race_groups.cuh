// The groups of a row's plan for drafts without replacement: its bins and heavy tokens, and at their
// ends the probability of containment by the race of race_curve.cuh.
//
// Where a few tokens hold all of q but 1e-30, what is left is lost beside them. They are as good as
// certain to be drafted: the output is then drawn from the target, and often one of them.
#pragma once
#include "best_race_prefix.cuh"
#include "row_plan.cuh"

// What is left after K - 1 tokens is too little beside them, if they hold so many times as much.
constexpr double kMostConcentrated = 1e30;

// Lower bound of the probability that the output is a draft if it is drawn from the target: of the
// likeliest tokens, as many as are drafted but one, each rings before all that are not among them with a
// probability that is its part of both. All threads; the first gets the result.
__device__ inline double certain_rate(BestRacePrefixMemory& memory, const RaceCurve& curve) {
  const HeavyTokens& heavy = memory.heavy;
  for (int h = threadIdx.x; h < heavy.size; h += blockDim.x) {
    int place = 0;
    for (int j = 0; j < heavy.size; j++)
      place += heavy.rate[j] > heavy.rate[h] || (heavy.rate[j] == heavy.rate[h] && j < h);
    memory.is_wanted[h] = place < curve.race.drafts - 1;
  }
  __syncthreads();
  if (threadIdx.x != 0) return 0.0;
  double left = curve.race.light_total, rate = 0.0;
  for (int h = 0; h < heavy.size; h++)
    if (!memory.is_wanted[h]) left += heavy.rate[h];
  for (int h = 0; h < heavy.size; h++)
    if (memory.is_wanted[h])
      rate += curve.heavy_p(h, h + 1) * (heavy.rate[h] / (heavy.rate[h] + left));
  return fmin(rate, 1.0);
}

// Groups of the light tokens of every bin.
__device__ inline void fill_light(const BestRacePrefixMemory& memory, const RaceCurve& curve,
                                  double odds, RowPlan& plan) {
  for (int b = threadIdx.x; b < kRatioBins; b += blockDim.x) {
    int first = memory.heavy.before(b), stop = memory.heavy.before(b + 1), group = b + first;
    u32 p = memory.sums[0][b + 1] - memory.sums[0][b], q = memory.sums[1][b + 1] - memory.sums[1][b];
    plan.group_of_bin[b] = static_cast<unsigned short>(group);
    plan.p[group] = in_mass_units(p * curve.p_unit - curve.heavy_p(first, stop));
    plan.q[group] = q * RaceCurve::kLightUnit / curve.race.total;
    plan.lowest[group] = static_cast<float>(curve.scale.lower_edge(b) * odds);
    // Beside heavy tokens there is no room to be rounded upwards.
    plan.highest[group] = first == stop ? static_cast<float>(curve.scale.upper_edge(b) * odds) : 0.0f;
    plan.contained[group + 1] = 1.0 - memory.escape[first < stop ? kFirstHeavy + first : b + 1];
  }
}

// Groups of heavy tokens. Those of equal logits are in that of the first of them.
__device__ inline void fill_heavy(const BestRacePrefixMemory& memory, const RaceCurve& curve,
                                  const RaceHead& head, RowPlan& plan) {
  const HeavyTokens& heavy = memory.heavy;
  for (int h = threadIdx.x; h < heavy.size; h += blockDim.x) {
    const HeavyToken& token = head.heavy[heavy.source[h]];
    auto is_equal = [&](int other) {
      const HeavyToken& rival = head.heavy[heavy.source[other]];
      return rival.place == token.place && rival.p_logit == token.p_logit &&
             rival.q_logit == token.q_logit;
    };
    int first = h, stop = h + 1, group = heavy.end[h] + h;
    while (first > 0 && is_equal(first - 1)) first--;
    while (stop < heavy.size && is_equal(stop)) stop++;
    double p = h == first ? curve.heavy_p(first, stop) : 0.0;
    double own = heavy.rate[h] / curve.race.total, q = h == first ? (stop - first) * own : 0.0;
    bool is_last = stop == heavy.size || heavy.end[stop] != heavy.end[h];
    plan.heavy[h] = {token.place, token.p_logit, token.q_logit, heavy.end[h] + first, own};
    plan.p[group] = in_mass_units(p);
    plan.q[group] = q;
    plan.lowest[group] = plan.highest[group] = q > 0.0 ? static_cast<float>(p / q) : 0.0f;
    plan.contained[group + 1] = 1.0 - memory.escape[is_last ? heavy.end[h] : kFirstHeavy + stop];
  }
}

// One block a row, after `race_tables` and `drafted_tokens`: fill in the plan but for its ratios, if it is
// for as many drafts as the instance takes.
template <int K>
__global__ void __launch_bounds__(256, 2)
    race_groups(const u32* tables, RaceHead* heads, float shape, const DraftedToken* drafted,
                int num_drafts, RowPlan* plans) {
  BestRacePrefixMemory& memory = *reinterpret_cast<BestRacePrefixMemory*>(shared_memory());
  long long row = blockIdx.x;
  RaceHead& head = heads[row];
  RowPlan& plan = plans[row];
  int there = drafts_there(drafted + row * num_drafts, num_drafts), drafts = max(there, 1);
  if (!takes<K>(drafts)) return;
  if (head.units.row.kind == kBadRow) {
    if (threadIdx.x == 0) plan.kind = kNoRow;
    return;
  }
  RaceCurve curve = open_table(memory, tables + row * (kRaceSums * kRatioBins), nullptr, head,
                               {{0, 0}, shape}, true);
  curve.race = make_race(drafts, curve.race.total, curve.race.light_total);
  double total = curve.race.total, odds = kUnitsOfWeight * kLightShare * curve.p_unit * total;
  bool are_all = there >= head.units.support, is_concentrated = total > kMostConcentrated;
  double rate = are_all ? head.units.possible : 0.0;
  if (is_concentrated && !are_all) rate = certain_rate(memory, curve);
  if (there == 0) rate = 0.0;
  if (threadIdx.x == 0) {
    plan.kind = there == 0 || are_all ? kCertain : is_concentrated ? kConcentrated : kSelects;
    plan.num_groups = kRatioBins + memory.heavy.size;
    plan.num_heavy = memory.heavy.size;
    plan.is_race = 1;
    plan.p_total = head.p_total;
    plan.p_unit = kUnitsOfWeight * curve.p_unit;
    plan.q_unit = 1.0 / (kLightShare * total);
    plan.most_ratio = drafts * total;
    plan.rate = plan.most = rate;
    plan.contained[0] = 0.0;
  }
  __syncthreads();
  for (int place = threadIdx.x; place < kNumPlaces; place += blockDim.x) {
    memory.escape[place] = kNotEvaluated;
    memory.is_wanted[place] =
        place < kNumEnds || (place >= kFirstHeavy && place < kFirstHeavy + memory.heavy.size);
  }
  __syncthreads();
  if (!(there == 0 || are_all)) evaluate<K>(curve, collect_wanted(memory));
  __syncthreads();
  fill_light(memory, curve, odds, plan);
  fill_heavy(memory, curve, head, plan);
}
