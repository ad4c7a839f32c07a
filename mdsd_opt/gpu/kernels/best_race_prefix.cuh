// Optimal acceptance of K drafts without replacement: 1 + min over prefixes of P - Q [Hu25], with Q
// by the race of race_curve.cuh. Where all possible drafts are drawn, it is their probability.
//
// An end of a bin takes a warp to evaluate. Q is convex in q, so that between two ends it is below
// their chord: of every 16th end the chords tell which others may be better than the best so far, and
// which bins may hold something better; only these are evaluated. The same holds inside a bin, where P
// is above its tangents.
//
// Where K - 1 tokens hold nearly everything, their ratios are next to zero and in one bin. Such bins
// are divided once more, by their heavy tokens: the light ones first, then the heavy ones one by one.
// A prefix inside the bin has no more drafts in it than one of these sets, and at least its heavy p.
#pragma once
#include "prefix_bounds.cuh"
#include "race_curve.cuh"

constexpr int kCoarse = 16;  // bins between ends that are always evaluated
constexpr int kNumEnds = kRatioBins + 1;
constexpr double kNotEvaluated = -1.0;

// Places are the ends of bins, and behind those one for each heavy token: before it, but after all
// light ones of its bin. Marks of ends are set by words, those of heavy tokens by bytes: no word has
// both.
constexpr int kFirstHeavy = (kNumEnds + 3) / 4 * 4;
constexpr int kNumPlaces = kFirstHeavy + kMaxHeavy;

// Factors of heavy tokens that there is room for.
constexpr int kMostFactors = 4000;

struct BestRacePrefixMemory {
  u32 sums[kRaceSums][kNumEnds];  // up to the ends of bins
  double escape[kNumPlaces];
  unsigned short wanted[kNumPlaces];  // places to be evaluated, in order
  alignas(4) unsigned char is_wanted[kNumPlaces];
  HeavyTokens heavy;
  u32 sum_scratch[kRaceSums][kMaxWarps];
  int count_scratch[kMaxWarps];
  BlockScratch scratch;
  int first_open, last_open;
  float tau[32];
  alignas(16) float factors[kMostFactors];
};

// The curves of P and Q at the ends of bins, for one K.
struct RaceCurve {
  BestRacePrefixMemory& memory;
  RatioScale scale;
  Race race;
  double p_unit;

  static constexpr double kLightUnit = 1.0 / (static_cast<double>(kUnitsOfWeight) * kLightShare);

  __device__ int end_of(int place) const {
    return place < kNumEnds ? place : memory.heavy.end[place - kFirstHeavy];
  }
  __device__ int num_heavy(int place) const {
    return place < kNumEnds ? memory.heavy.before(place) : place - kFirstHeavy;
  }
  __device__ double p(int place) const {
    int end = end_of(place);
    double p = memory.sums[0][end] * p_unit;
    if (place >= kFirstHeavy) p -= heavy_p(place - kFirstHeavy, memory.heavy.before(end));
    return p;
  }
  __device__ double heavy_p(int first, int stop) const {
    double p = 0.0;
    for (int h = first; h < stop; h++) p += memory.heavy.p_weight[h] * (kUnitsOfWeight * p_unit);
    return p;
  }
  __device__ bool is_evaluated(int place) const { return memory.escape[place] >= 0.0; }
  __device__ double gain(int place) const { return 1.0 - memory.escape[place] - p(place); }

  // Rates of the tokens between two ends.
  __device__ double q_between(int begin, int end) const {
    double rates = (memory.sums[1][end] - memory.sums[1][begin]) * kLightUnit;
    int stop = memory.heavy.before(end);
    for (int h = memory.heavy.before(begin); h < stop; h++) rates += memory.heavy.rate[h];
    return rates;
  }

  // What a prefix that ends inside a bin may gain at most, by the chord of Q from `from` to `to`.
  __device__ double possible_gain(int bin, double q_inside, int from, int to) const {
    // From ratios of weights to those of p and rates.
    double odds = p_unit * kUnitsOfWeight * kLightShare;
    double lower = scale.lower_edge(bin) * odds, upper = scale.upper_edge(bin) * odds;
    double meeting = meeting_point(p(bin + 1) - p(bin), q_inside, lower, upper);
    double chord = (memory.escape[from] - memory.escape[to]) / q_between(from, to);
    double begin = 1.0 - memory.escape[from] - p(bin) + chord * q_between(from, bin);
    double inside = begin + (chord - lower) * meeting;
    double end = begin + chord * q_inside - (p(bin + 1) - p(bin));
    return fmax(inside, end);
  }

  // The same by the heavy tokens of a bin. A prefix has all light ones before the heavy ones that are in it,
  // but for some: that gains their p, which is between tangents of P, less their q at the chord of Q.
  __device__ double possible_gain_by_heavy(int bin) const {
    int first = memory.heavy.before(bin), stop = memory.heavy.before(bin + 1);
    double odds = p_unit * kUnitsOfWeight * kLightShare;
    double lower = scale.lower_edge(bin) * odds, upper = scale.upper_edge(bin) * odds;
    double light_p = fmax(p(bin + 1) - p(bin) - heavy_p(first, stop), 0.0);
    double light_q = (memory.sums[1][bin + 1] - memory.sums[1][bin]) * kLightUnit;
    double kept = meeting_point(light_p, light_q, lower, upper), q = light_q, most = 0.0;
    for (int h = first; h <= stop; h++) {
      int place = h < stop ? kFirstHeavy + h : bin + 1;
      double chord = q > 0.0 ? (memory.escape[bin] - memory.escape[place]) / q : 0.0;
      double some = light_p - lower * kept - chord * (light_q - kept), all = light_p - chord * light_q;
      most = fmax(most, gain(place) + fmax(fmax(some, all), 0.0));
      if (h < stop) q += memory.heavy.rate[h];
    }
    return most;
  }

  __device__ LightPrefix light(int end) const {
    LightPrefix light;
#pragma unroll
    for (int r = 0; r < kMoments; r++)
      light.moment[r] = memory.sums[r + 1][end] * (1.0f / kUnitsOfWeight);
    return light;
  }

  // Rates outside a prefix.
  __device__ double outside(int end, int h) const {
    double inside = memory.sums[1][end] * kLightUnit;
    return fmax(race.light_total - inside, 0.0) + memory.heavy.outside[h];
  }

  // Probability of escape from a prefix, given the part of it that the nodes tell.
  __device__ double escape(int place, double others) const {
    int end = end_of(place), h = num_heavy(place);
    double sum = 1.0 / race.total;
    if (race.drafts > 1) {
      LightPrefix prefix = light(end);
      double ratio = 1.0 / (kLightShare * race.total), factor = 1.0, once = 0.0;
#pragma unroll
      for (int r = 0; r < kMoments; r++) {  // of rate / (total (total - rate)), a geometric series
        factor *= ratio;
        once += factor * prefix.moment[r];
      }
      sum += memory.heavy.once[h] + once / race.total;
    }
    return fmin(fmax(outside(end, h) * sum + others, 0.0), 1.0);
  }
};

// One node of the sum a lane, from number `first` on.
struct RaceNode {
  double time, weight;
  float tau;

  __device__ RaceNode(const Race& race, int first) {
    int number = first + (threadIdx.x & 31);
    double x = race.step * number - 1.5, fall = exp(-x);
    time = exp(x - fall) / race.total;
    bool is_there = number < race.num_nodes;  // else polynomials of the time might be infinite
    weight = is_there ? race.step * time * (1.0 + fall) : 0.0;
    tau = is_there ? static_cast<float>(time / kLightShare) : 0.0f;
  }
  // The clocks outside are silent, and no light one inside has rung; times the weight and `outside`.
  __device__ float silent(double quiet, double outside) const {
    // Where the factor is huge, nothing is silent any more.
    return exp_of(-quiet * time) * static_cast<float>(fmin(weight * outside, 1e30));
  }
};

// Evaluate the wanted places, each warp a stretch of them; its lanes are the nodes.
template <int K>
__device__ void evaluate_by_nodes(const RaceCurve& curve, int num_wanted) {
  BestRacePrefixMemory& memory = curve.memory;
  const Race& race = curve.race;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  int begin = num_wanted * warp / warps, stop = num_wanted * (warp + 1) / warps;
  for (int i = begin + lane; i < stop; i += 32) memory.escape[memory.wanted[i]] = 0.0;
  __syncwarp();
  for (int group = 0; group < race.num_nodes; group += 32) {
    RaceNode node(race, group);
    HeavyRung<K> rung(race.drafts);
    int h = 0;
    for (int i = begin; i < stop; i++) {
      int place = memory.wanted[i], end = curve.end_of(place), stop_h = curve.num_heavy(place);
#pragma unroll 1
      for (; h < stop_h; h++)
        rung.add(exp_of(-memory.heavy.rate[h] * node.time));
      float factors[K];
      rung.write_factors(
          node.silent(race.light_total + memory.heavy.outside[h], curve.outside(end, h)), factors);
      float sum = warp_total<Sum>(with_light(curve.light(end), node.tau, factors));
      if (lane == 0) memory.escape[place] += sum;
    }
  }
  __syncwarp();
  for (int i = begin + lane; i < stop; i += 32) {
    int place = memory.wanted[i];
    memory.escape[place] = curve.escape(place, memory.escape[place]);
  }
}

// The same, each thread a place. What depends on the heavy tokens alone, places of the same ones share: of
// every number of them one warp first finds the factors of all nodes, its lanes.
template <int K>
__device__ void evaluate_by_places(const RaceCurve& curve, int num_wanted) {
  BestRacePrefixMemory& memory = curve.memory;
  const Race& race = curve.race;
  const HeavyTokens& heavy = memory.heavy;
  int lane = threadIdx.x & 31;
  for (int i = threadIdx.x; i < num_wanted; i += blockDim.x) memory.escape[memory.wanted[i]] = 0.0;
  for (int group = 0; group < race.num_nodes; group += 32) {
    int num_nodes = min(race.num_nodes - group, 32);
    int stride = num_nodes * K + 4;  // those of another number are in other banks
    int at_once = kMostFactors / stride;
    RaceNode node(race, group);
    HeavyRung<K> rung(race.drafts);
#pragma unroll 1
    for (int from = 0; from <= heavy.size; from += at_once) {
      int to = min(from + at_once, heavy.size + 1);
      __syncthreads();  // those of before have been read
      if (threadIdx.x < 32) {
        memory.tau[lane] = node.tau;
#pragma unroll 2
        for (int h = from; h < to; h++) {
          if (h > 0) rung.add(exp_of(-heavy.rate[h - 1] * node.time));
          double outside = race.light_total + heavy.outside[h];
          float* factors = memory.factors + (h - from) * stride + lane * K;
          if (lane < num_nodes) rung.write_factors(node.silent(outside, outside), factors);
        }
      }
      __syncthreads();
#pragma unroll 1
      for (int i = threadIdx.x; i < num_wanted; i += blockDim.x) {
        int place = memory.wanted[i], end = curve.end_of(place), h = curve.num_heavy(place);
        if (h < from || h >= to) continue;
        LightPrefix light = curve.light(end);
        const Words* words = reinterpret_cast<const Words*>(memory.factors + (h - from) * stride);
        float sum = 0.0f;
#pragma unroll 2
        for (int n = 0; n < num_nodes; n++, words += K / 4) {
          float factors[K];
#pragma unroll
          for (int j = 0; j < K; j++) factors[j] = __uint_as_float(words[j / 4].word[j % 4]);
          sum += with_light(light, memory.tau[n], factors);
        }
        // Light tokens of the prefix are not outside.
        double outside = fmax(race.light_total + heavy.outside[h], 1e-300);
        memory.escape[place] += sum * (curve.outside(end, h) / outside);
      }
    }
  }
  for (int i = threadIdx.x; i < num_wanted; i += blockDim.x) {
    int place = memory.wanted[i];
    memory.escape[place] = curve.escape(place, memory.escape[place]);
  }
}

// They are there after the next barrier.
template <int K>
__device__ __forceinline__ void evaluate(const RaceCurve& curve, int num_wanted) {
  if constexpr (K == 4 || K == 8)  // more have too many factors
    evaluate_by_places<K>(curve, num_wanted);
  else
    evaluate_by_nodes<K>(curve, num_wanted);
}

// List those of the marked places that are not there yet, heavy tokens before the end of their bin;
// returns how many.
__device__ inline int collect_wanted(BestRacePrefixMemory& memory) {
  int each = (kNumEnds + blockDim.x - 1) / blockDim.x;
  int begin = min(static_cast<int>(threadIdx.x) * each, kNumEnds), stop = min(begin + each, kNumEnds);
  auto for_each_wanted = [&](auto visit) {
    int h = memory.heavy.before(begin - 1);
    for (int end = begin; end < stop; end++) {
      for (; h < memory.heavy.size && memory.heavy.end[h] == end; h++)
        if (memory.is_wanted[kFirstHeavy + h]) visit(kFirstHeavy + h);
      if (memory.is_wanted[end]) visit(end);
    }
  };
  int mine = 0, total;
  for_each_wanted([&](int place) { mine += !(memory.escape[place] >= 0.0); });
  int next = sum_before(mine, memory.count_scratch, total);
  for_each_wanted([&](int place) {
    if (!(memory.escape[place] >= 0.0)) memory.wanted[next++] = static_cast<unsigned short>(place);
  });
  __syncthreads();
  return total;
}

// Mark an end, which two bins share.
__device__ inline void want(BestRacePrefixMemory& memory, int end) {
  u32* word = reinterpret_cast<u32*>(memory.is_wanted) + end / 4;
  atomicOr(word, 1u << 8 * (end % 4));
}

struct RaceResult {
  double gain, bound;
};

// Search one table for one number of drafts; all threads of a block get the result. `open` tells
// whether bins that are open are to be left so, and counted from first_open to last_open.
template <int K>
__device__ RaceResult search_race(const RaceCurve& curve, double gain, double bound, bool open) {
  BestRacePrefixMemory& memory = curve.memory;
  for (int place = threadIdx.x; place < kNumPlaces; place += blockDim.x) {
    memory.escape[place] = kNotEvaluated;
    memory.is_wanted[place] = place < kNumEnds && place % kCoarse == 0;
  }
  if (threadIdx.x == 0) {
    memory.first_open = kRatioBins;
    memory.last_open = -1;
  }
  __syncthreads();
  evaluate<K>(curve, collect_wanted(memory));
  __syncthreads();
  double coarse = gain;
  for (int end = threadIdx.x * kCoarse; end < kNumEnds; end += blockDim.x * kCoarse)
    coarse = fmax(coarse, curve.gain(end));
  coarse = memory.scratch.greatest(coarse, 0);
  for (int bin = threadIdx.x; bin < kRatioBins; bin += blockDim.x) {
    int from = bin / kCoarse * kCoarse, to = from + kCoarse;
    // Nothing inside gains more than all of the stretch's q without its p.
    if (!(1.0 - memory.escape[to] - curve.p(bin) > coarse)) continue;
    double q_inside = curve.q_between(bin, bin + 1);
    if (!(q_inside > 0.0) || !(curve.possible_gain(bin, q_inside, from, to) > coarse)) continue;
    want(memory, bin);
    want(memory, bin + 1);
    int stop = memory.heavy.before(bin + 1);
    for (int h = memory.heavy.before(bin); h < stop; h++) memory.is_wanted[kFirstHeavy + h] = 1;
  }
  __syncthreads();
  evaluate<K>(curve, collect_wanted(memory));
  __syncthreads();
  for (int place = threadIdx.x; place < kNumPlaces; place += blockDim.x)
    if (curve.is_evaluated(place)) gain = fmax(gain, curve.gain(place));
  gain = memory.scratch.greatest(gain, 1);
  for (int bin = threadIdx.x; bin < kRatioBins; bin += blockDim.x) {
    if (!curve.is_evaluated(bin) || !curve.is_evaluated(bin + 1)) continue;
    double q_inside = curve.q_between(bin, bin + 1);
    int h = memory.heavy.before(bin + 1);
    bool is_divided = h > memory.heavy.before(bin) && curve.is_evaluated(kFirstHeavy + h - 1);
    if (!(q_inside > 0.0)) continue;
    double possible = curve.possible_gain(bin, q_inside, bin, bin + 1);
    if (is_divided) possible = fmin(possible, curve.possible_gain_by_heavy(bin));
    if (open && possible > gain + kSlack) {
      atomicMin(&memory.first_open, bin);
      atomicMax(&memory.last_open, bin);
    } else {
      bound = fmax(bound, possible);
    }
  }
  return {gain, fmax(memory.scratch.greatest(bound, 0), gain)};
}

__device__ inline void settle(RaceResult result, double& rate, double& gap) {
  rate = fmin(fmax(1.0 - 0.5 * (result.gain + result.bound), 0.0), 1.0);
  gap = result.bound - result.gain + kSlack;
}

// Numbers of drafts that an instance takes: up to K, and more than the next smaller one does.
template <int K>
__device__ __forceinline__ bool takes(int drafts) {
  return drafts <= K && (K == 2 || 2 * drafts > K);
}

// Sums and heavy tokens of a table; `before` are the sums before its first bin. Returns the curve
// for no drafts yet.
__device__ inline RaceCurve open_table(BestRacePrefixMemory& memory, const u32* table,
                                       const u32* before, RaceHead& head, RatioScale scale,
                                       bool is_first) {
  u32 totals[2];
#pragma unroll
  for (int s = 0; s < kRaceSums; s++) {
    u32 total = sum_up(table + s * kRatioBins, before ? before[s] : 0, memory.sums[s],
                       memory.sum_scratch[s]);
    if (s < 2) totals[s] = total;
  }
  if (!is_first) {
    totals[0] = head.p_total;
    totals[1] = head.light_total;
  } else if (threadIdx.x == 0) {
    head.p_total = totals[0];
    head.light_total = totals[1];
  }
  BinRange range = scale.range;
  sort_heavy(
      head,
      [&](float t) {
        int bin = static_cast<int>(bin_bits_of(t) - kToBinBits);
        if (range.size == 0) return bin + 1;
        if (bin < range.first) return 0;
        if (!range.holds(t)) return kNumEnds;
        return static_cast<int>(bin_bits_of(range.place_inside(t)) - kToBinBits) + 1;
      },
      memory.heavy);
  __syncthreads();
  double light_total = totals[1] * RaceCurve::kLightUnit;
  sum_heavy(memory.heavy, light_total);
  double total = light_total + memory.heavy.outside[0];
  return {memory, scale, {0, 0, 0.0, total, light_total}, 1.0 / totals[0]};
}

// One block a row, after `race_tables`; as `best_prefix`, for the counts that the instance takes.
template <int K>
__global__ void __launch_bounds__(256, 2)
    best_race_prefix(const u32* tables, RaceHead* heads, float shape, const int* counts,
                     int num_counts, double* rates, double* gaps, RaceWindow* windows, u32* num_windows) {
  BestRacePrefixMemory& memory = *reinterpret_cast<BestRacePrefixMemory*>(shared_memory());
  long long row = blockIdx.x;
  RaceHead& head = heads[row];
  if (head.units.row.kind == kBadRow) return;
  RaceCurve curve = open_table(memory, tables + row * (kRaceSums * kRatioBins), nullptr, head,
                               {{0, 0}, shape}, true);
  for (int j = 0; j < num_counts; j++) {
    int drafts = counts[j];
    if (!takes<K>(drafts)) continue;
    double& rate = rates[row * num_counts + j];
    double& gap = gaps[row * num_counts + j];
    if (drafts >= head.units.support) {
      if (threadIdx.x == 0) {
        rate = head.units.possible;
        gap = kSlack;
      }
      continue;
    }
    curve.race = make_race(drafts, curve.race.total, curve.race.light_total);
    RaceResult result = search_race<K>(curve, 0.0, 0.0, true);
    if (threadIdx.x != 0) continue;
    settle(result, rate, gap);
    int first = memory.first_open, last = memory.last_open;
    if (last < 0) continue;
    RaceWindow window{
        static_cast<int>(row), j, {first, last - first + 1}, {}, result.gain, result.bound};
    for (int s = 0; s < kRaceSums; s++) window.before[s] = memory.sums[s][first];
    windows[atomicAdd(num_windows, 1u)] = window;
  }
}

// One block a window, after `zoomed_race_tables`.
template <int K>
__global__ void __launch_bounds__(256, 2)
    best_zoomed_race_prefix(const u32* tables, RaceHead* heads, float shape, const int* counts,
                     int num_counts, double* rates, double* gaps, const RaceWindow* windows, const u32* num_windows, u32 first_window) {
  BestRacePrefixMemory& memory = *reinterpret_cast<BestRacePrefixMemory*>(shared_memory());
  if (first_window + blockIdx.x >= *num_windows) return;
  const RaceWindow& window = windows[first_window + blockIdx.x];
  int drafts = counts[window.count_index];
  if (!takes<K>(drafts)) return;
  RaceHead& head = heads[window.row];
  RaceCurve curve =
      open_table(memory, tables + static_cast<long long>(blockIdx.x) * (kRaceSums * kRatioBins),
                 window.before, head, {window.range, shape}, false);
  curve.race = make_race(drafts, curve.race.total, curve.race.light_total);
  RaceResult result = search_race<K>(curve, window.gain, window.bound, false);
  long long to = static_cast<long long>(window.row) * num_counts + window.count_index;
  if (threadIdx.x == 0) settle(result, rates[to], gaps[to]);
}
