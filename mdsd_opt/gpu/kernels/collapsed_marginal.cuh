// The marginal of the selected draft, with one ratio to q in every group, and the hull rule on groups.
//
// Let R and F be the marginal's mass of a prefix, and the probability that all drafts are in it. A
// marginal can be selected exactly if R is convex against q and at least F: with s uniform, the
// vertices of the lower convex hull of (q, R - s F) cut the groups into blocks, and a draft of the
// topmost block that holds one is taken. Accepting it with probability min(1, p / p_I), and drawing
// from (p - p_I)+ otherwise, gives p. Groups only decide how close p_I comes to the optimum: it is to
// be at least p below the optimal prefix, and at most p above it, which needs ratios rounded to the
// edges of bins; as far as there is room for that.
//
// Ratios must not fall. Means do, by the rounding of small sums and where heavy tokens are beside
// light ones: of each side of the cut there are three sequences that rise, the least of the means to
// come, the greatest of those so far, and one rounded outwards. Between two of them lies the mass that
// is asked for, or beyond the last, which a level is put on.
//
// All threads of a block take part. What is in global memory they read and write side by side, the
// plan's arrays one after the other; a stretch of groups of its own a thread has in shared memory only.
#pragma once
#include "block.cuh"
#include "row_plan.cuh"

constexpr u32 kPlannerWarps = 8;  // of a block, at most

// Numbers in the order of doubles.
__device__ __forceinline__ u64 key_of(double value) {
  long long bits = __double_as_longlong(value);
  return bits ^ (bits >> 63 | 1ll << 63);
}
__device__ __forceinline__ double value_of(u64 key) {
  long long bits = key ^ 1ull << 63;  // right, if it is not negative
  return __longlong_as_double(bits < 0 ? ~key : bits);
}

// The same with an index in place of the last bits, which are less than 1e-12 of a value: of equal ones that
// with the least index is the least.
constexpr u32 kIndexMask = 4095;
__device__ __forceinline__ u64 key_at(double value, u32 index) {
  return (key_of(value) & ~static_cast<u64>(kIndexMask)) | index;
}
__device__ __forceinline__ int index_of(u64 key) { return static_cast<u32>(key) & kIndexMask; }

// Numbers in the order of floats that are not negative, those of the cut's upper side behind the others, and
// none of them zero.
__device__ __forceinline__ u32 key_on_side(float value, bool is_above) {
  return max(__float_as_uint(value), 1u) | static_cast<u32>(is_above) << 31;
}

constexpr u32 kNoSide = ~(1u << 31);

// A float that is not negative, without a conversion; of 0 and infinity numbers that will do.
__device__ __forceinline__ double widened(float value) {
  return __longlong_as_double((static_cast<u64>(__float_as_uint(value)) << 29) + (896ull << 52));
}

// Of doubles that are not negative, by their bits: many devices have few units for doubles.
__device__ __forceinline__ bool is_zero(double value) { return __double_as_longlong(value) == 0; }
__device__ __forceinline__ double larger(double a, double b) {
  return __longlong_as_double(max(__double_as_longlong(a), __double_as_longlong(b)));
}

struct PlannerMemory {
  union {
    u32 steps[3][kMaxGroups + 1];      // bits of least and greatest means, and of those rounded outwards,
    double curves[2][kMaxGroups + 1];  // and then R, and q from the topmost draft's group on
    u64 q_sums[2][kMaxGroups + 1];     // before either: sums of q, two parts of each
  };
  union {
    double ratio[kMaxGroups + 1];
    u64 p_sums[kMaxGroups + 1];  // before: those of p
  };
  union {
    double q_from[kMaxGroups + 1];  // of all groups from an end on
    u64 q_rest[kMaxGroups + 1];     // before: the third part
  };
  double q[kMaxGroups + 1];
  u32 of_warp[4][kPlannerWarps];
  u64 best[2][kPlannerWarps], sums[2][kPlannerWarps];
};

// First group of a block, and the first behind it.
struct GroupBlock {
  int start, stop;
};

class Planner {
 public:
  __device__ Planner(RowPlan& plan, PlannerMemory& memory)
      : plan_(plan), memory_(memory), size_(plan.num_groups) {
    int each = (size_ + blockDim.x - 1) / blockDim.x | 1;  // lanes are then in different banks
    begin_ = min(static_cast<int>(threadIdx.x) * each, size_);
    stop_ = min(begin_ + each, size_);
  }

  // Fill in the plan's ratios, and how fine the units of what is left of p may be, a power of two. After
  // `find_cut`.
  __device__ __forceinline__ void collapse() {
    make_steps();
    u64 mass = 0;
#pragma unroll 2
    for (int side = 0; side < 2; side++) mass += fill(side == 0);
    u64 left = total_of(follow_curves(mass));
    if (threadIdx.x != 0) return;
    // Units of (p - p_I)+ may be so much smaller, with a margin for the rounding of weights.
    float most = left * (1.0f / kPartsOfRest) + 2e-6f, finer = 1.0f;
    while (2.0f * finer * most < 0.5f) finer *= 2.0f;
    plan_.finer = finer;
  }

  // The block at a level that holds a group with mass, after `collapse`, whose ratios it takes the place
  // of: a slope at which the lowest
  // points on both sides of it are on one line. Newton steps, kept inside a bracket: as slopes rise, so do
  // both ends.
  __device__ __forceinline__ GroupBlock block_of(int top, double level) {
    const double* r = memory_.curves[0];
    double *q = memory_.curves[1], *point = memory_.ratio;
#pragma unroll 4
    for (int end = threadIdx.x; end <= size_; end += blockDim.x) {
      point[end] = __fma_rn(-level, plan_.contained[end], r[end]);
      q[end] = q_between(top, end);
    }
    __syncthreads();
    double low = -static_cast<double>(infinity()), high = static_cast<double>(infinity());
    GroupBlock block{top, top + 1}, lowest{0, top + 1}, highest{top, size_};
    for (int round = 0; round < 64; round++) {
      double slope = (point[block.stop] - point[block.start]) / (q[block.stop] - q[block.start]);
      if (!(slope > low && slope < high)) {
        slope = 0.5 * (low + high);
        if (!(slope > low && slope < high)) break;  // as near as rounding lets us come
      }
      u64 left = kNoKey, right = kNoKey;  // the widest of equals: the first one here, the last behind
      auto key = [&](int end, int index) { return key_at(__fma_rn(-slope, q[end], point[end]), index); };
#pragma unroll 2
      for (int end = lowest.start + threadIdx.x; end <= highest.start; end += blockDim.x)
        left = min(left, key(end, end));
#pragma unroll 2
      for (int end = lowest.stop + threadIdx.x; end <= highest.stop; end += blockDim.x)
        right = min(right, key(end, kIndexMask - end));
      left = least(left);
      right = least(right);
      GroupBlock next{index_of(left), static_cast<int>(kIndexMask) - index_of(right)};
      if (next.start == block.start && next.stop == block.stop) break;
      block = next;
      if ((left | kIndexMask) < (right | kIndexMask)) {
        low = slope;
        lowest = block;
      } else {
        high = slope;
        highest = block;
      }
    }
    return block;
  }

  __device__ __forceinline__ double q_between(int begin, int end) const {
    return plan_.q_sum[end].minus(plan_.q_sum[begin]) * per_q_unit_;
  }
  // q of all groups from an end on, and up to it.
  __device__ __forceinline__ double q_from(int end) const { return memory_.q_from[end]; }
  __device__ __forceinline__ double q_up_to(int end) const { return q_between(0, end); }

  // The end of the groups that no rule does better on, and so the plan's `most`; sums of q up to ends.
  __device__ __forceinline__ void find_cut() {
    u64 *p_sum = memory_.p_sums, *q_sum[3] = {memory_.q_sums[0], memory_.q_sums[1], memory_.q_rest};
#pragma unroll 4
    for (int g = threadIdx.x; g < size_; g += blockDim.x) {
      memory_.q[g] = plan_.q[g];
      p_sum[g] = plan_.p[g];
    }
    __syncthreads();
    u64 p = 0;
    FineSum q{{0, 0, 0}};
#pragma unroll 4
    for (int g = begin_; g < stop_; g++) {
      p += p_sum[g];
      q.add(memory_.q[g]);
    }
    p = before(p);
#pragma unroll
    for (u64& sum : q.part) sum = before(sum);
    if (threadIdx.x == 0) q_sum[0][0] = q_sum[1][0] = q_sum[2][0] = 0;
#pragma unroll 4
    for (int g = begin_; g < stop_; g++) {
      p_sum[g] = p += p_sum[g];
      q.add(memory_.q[g]);
#pragma unroll
      for (int i = 0; i < 3; i++) q_sum[i][g + 1] = q.part[i];
    }
    __syncthreads();
    FineSum total{{q_sum[0][size_], q_sum[1][size_], q_sum[2][size_]}};
    u64 cut = key_at(0.0, 0);
#pragma unroll 4
    for (int g = threadIdx.x; g < size_; g += blockDim.x)
      cut = min(cut, key_at(share_of(p_sum[g]) - plan_.contained[g + 1], g + 1));
    cut = least(cut);  // its barrier lets the last sum be overwritten
    per_q_unit_ = 1.0 / total.minus({{0, 0, 0}});
    cut_ = index_of(cut);
#pragma unroll 4
    for (int end = threadIdx.x; end < size_; end += blockDim.x) {
      FineSum here{{q_sum[0][end], q_sum[1][end], q_sum[2][end]}};
      plan_.q_sum[end] = here;
      memory_.q_from[end] = total.minus(here) * per_q_unit_;
    }
    if (threadIdx.x == 0) {
      plan_.q_sum[size_] = total;
      memory_.q_from[size_] = 0.0;
    }
    __syncthreads();
    if (threadIdx.x == 0) plan_.most = fmin(fmax(1.0 + value_of(cut & ~static_cast<u64>(kIndexMask)), 0.0), 1.0);
  }

 private:
  static constexpr u64 kNoKey = ~0ull;

  static constexpr float kPartsOfRest = 2147483648.0f;  // 2^31

  // The sequences, each rising on either side of the cut, in single precision. A marginal's ratio times the
  // q from there on cannot exceed one, which bounds them all. Means are not rounded to what is above what
  // any marginal may have.
  __device__ __forceinline__ void make_steps() {
    const float most_ratio = static_cast<float>(plan_.most_ratio);
    u32 most_mean = 0, most_rounded = 0, least_mean = ~0u, least_rounded = ~0u;
#pragma unroll 4
    for (int g = threadIdx.x; g < size_; g += blockDim.x) {
      u32 mean_key = 0, rounded_key = 0;
      float p = plan_.p[g] * static_cast<float>(kMassUnit), lowest = plan_.lowest[g], highest = plan_.highest[g];
      if (!is_zero(memory_.q[g])) {
        bool is_above = g >= cut_;
        float bound = fast_reciprocal(static_cast<float>(q_from(g)));
        float mean = p * fast_reciprocal(static_cast<float>(memory_.q[g]));
        float rounded = is_above ? fminf(mean, lowest) : fmaxf(mean, fminf(highest, most_ratio));
        mean_key = key_on_side(fminf(mean, bound), is_above);
        rounded_key = key_on_side(fminf(rounded, bound), is_above);
      }
      memory_.steps[0][g] = mean_key;
      memory_.steps[2][g] = rounded_key;
    }
    __syncthreads();
#pragma unroll 4
    for (int g = begin_; g < stop_; g++) {
      u32 mean_key = memory_.steps[0][g], rounded_key = memory_.steps[2][g];
      most_mean = max(most_mean, mean_key);
      most_rounded = max(most_rounded, rounded_key);
      least_mean = min(least_mean, mean_key - 1);  // groups that are empty have none
      least_rounded = min(least_rounded, rounded_key - 1);
    }
    u32 keys[4] = {~most_mean, ~most_rounded, least_mean, least_rounded};
    beside(keys);
    most_mean = ~keys[0];
    most_rounded = ~keys[1];
    least_mean = keys[2];
    least_rounded = keys[3];
#pragma unroll 4
    for (int g = begin_; g < stop_; g++) {
      most_mean = max(most_mean, memory_.steps[0][g]);
      memory_.steps[1][g] = most_mean & kNoSide;
      if (g >= cut_) continue;
      most_rounded = max(most_rounded, memory_.steps[2][g]);
      memory_.steps[2][g] = most_rounded & kNoSide;
    }
#pragma unroll 4
    for (int g = stop_ - 1; g >= begin_; g--) {
      least_mean = min(least_mean, memory_.steps[0][g] - 1);
      memory_.steps[0][g] = (least_mean + 1) & kNoSide;
      if (g < cut_) continue;
      least_rounded = min(least_rounded, memory_.steps[2][g] - 1);
      memory_.steps[2][g] = (least_rounded + 1) & kNoSide;
    }
  }

  // In place of a thread's four keys, the least of all threads before it of the first two, and of all
  // behind it of the others.
  __device__ __forceinline__ void beside(u32 (&keys)[4]) {
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 place = i < 2 ? lane : 31 - lane;  // in the order of the scan
      auto neighbour = [&](u32 distance) {
        return i < 2 ? __shfl_up_sync(kAllLanes, keys[i], distance)
                     : __shfl_down_sync(kAllLanes, keys[i], distance);
      };
#pragma unroll
      for (u32 distance = 1; distance < 32; distance *= 2)  // a lane without a neighbour gets its own
        keys[i] = min(keys[i], neighbour(distance));
      if (place == 31) memory_.of_warp[i][warp] = keys[i];
      u32 next = neighbour(1);
      keys[i] = place > 0 ? next : ~0u;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool is_beside = i < 2 ? lane < warp : lane > warp && lane < warps;
      u32 others = is_beside ? memory_.of_warp[i][lane] : ~0u;
      keys[i] = min(keys[i], __reduce_min_sync(kAllLanes, others));
    }
  }

  // Give the groups inside the cut, or those above it, the mass that is theirs: ratios between those of two
  // sequences. Returns the mass of the thread's groups.
  __device__ __forceinline__ u64 fill(bool inside) {
    const double huge = widened(infinity());  // times a q of zero it is zero
    u64 mass = in_mass_units(inside ? plan_.contained[cut_] : 1.0 - plan_.contained[cut_]);
    u64 sums[3] = {0, 0, 0}, filled = 0;
    auto step = [&](int sequence, int g) {
      return widened(__uint_as_float(memory_.steps[inside ? sequence : (sequence + 2) % 3][g]));
    };
    int begin = inside ? begin_ : max(begin_, cut_), end = inside ? min(stop_, cut_) : stop_;
#pragma unroll 4
    for (int g = begin; g < end; g++) {
      double q = memory_.q[g];
#pragma unroll
      for (int s = 0; s < 3; s++) sums[s] += in_mass_units(step(s, g), q);
    }
    u64 reached[3];
#pragma unroll
    for (int s = 0; s < 3; s++) reached[s] = total_of(sums[s]);
    // The level that a stretch is put on is an optimum over how many groups it concerns.
    bool needs_level = inside ? reached[2] <= mass : reached[0] >= mass;
    double level = huge;
    if (needs_level) {
      u64 left = inside ? before(sums[2]) - reached[2] + mass : before(sums[0]) - mass;
#pragma unroll 1
      for (int g = begin; g < end; g++) {
        u64 own = in_mass_units(step(inside ? 2 : 0, g), memory_.q[g]);
        if (inside) left += own;
        double q = inside ? q_up_to(g + 1) : q_from(g);
        if (!is_zero(q)) level = fmin(level, static_cast<long long>(left) / q);
        if (!inside) left += own;
      }
      level = value_of(least(key_of(level))) * kMassUnit;
    }
    int from = reached[1] <= mass ? 1 : 0;
    u64 least_mass = from == 1 ? reached[1] : reached[0];
    double share = static_cast<long long>(mass - least_mass);
    share /= static_cast<long long>((from == 1 ? reached[2] : reached[1]) - least_mass);
    share = fmin(fmax(share, 0.0), 1.0);
    double lowest = 0.0, highest = huge;
    if (inside && needs_level) {
      from = share = 1;
      lowest = level;
    } else if (needs_level) {
      from = share = 0;
      highest = fmax(-level, 0.0);
    }
#pragma unroll 4
    for (int g = begin; g < end; g++) {
      double a = step(from, g), ratio = __fma_rn(share, step(from + 1, g) - a, a);
      if (needs_level) ratio = fmin(fmax(ratio, lowest), highest);
      memory_.ratio[g] = ratio;
      filled += in_mass_units(ratio, memory_.q[g]);
    }
    return filled;
  }

  // R at the ends, in place of two sequences, given the mass of the thread's groups, and the plan's ratios.
  // Where R is below F it is lifted, and the ratio is that of the lifted curve. Returns what may be left of p.
  __device__ __forceinline__ u32 follow_curves(u64 mass) {
    double *r = memory_.curves[0], *contained = memory_.curves[1];
    double per_weight = plan_.q_unit / plan_.p_unit;
    float weight = static_cast<float>(plan_.p_unit / plan_.q_unit);
    u64 sum = before(mass);  // its barrier lets the sequences be overwritten
#pragma unroll 4
    for (int end = threadIdx.x; end <= size_; end += blockDim.x) contained[end] = plan_.contained[end];
    __syncthreads();
    auto lifted = [&](double r_there, int end) {
      return is_zero(q_from(end)) ? 1.0 : larger(r_there, contained[end]);
    };
    double r_there = share_of(sum), lower = lifted(r_there, begin_);
    u64 lower_lift = __double_as_longlong(lower) - __double_as_longlong(r_there);
    if (threadIdx.x == 0) r[0] = 0.0;
    u32 left = 0;
#pragma unroll 4
    for (int g = begin_; g < stop_; g++) {
      double q = memory_.q[g], ratio = memory_.ratio[g];
      sum += in_mass_units(ratio, q);
      r_there = share_of(sum);
      double upper = lifted(r_there, g + 1);
      u64 upper_lift = __double_as_longlong(upper) - __double_as_longlong(r_there);
      if (is_zero(q))
        ratio = 0.0;
      else if (upper_lift | lower_lift)
        ratio = fmax(upper - lower, 0.0) / q;
      r[g + 1] = lower = upper;
      lower_lift = upper_lift;
      memory_.ratio[g] = ratio * per_weight;
    }
    __syncthreads();
#pragma unroll 4
    for (int g = threadIdx.x; g < size_; g += blockDim.x) {
      double ratio = memory_.ratio[g];
      float high = static_cast<float>(ratio);
      plan_.ratio[g] = {high, static_cast<float>(ratio - widened(high))};
      left += what_is_left(g, high * weight, static_cast<float>(memory_.q[g]));
    }
    return left;
  }

  // What a group of tokens with ratios between its edges may leave of p, in parts, rounded up.
  __device__ __forceinline__ u32 what_is_left(int group, float ratio, float q) const {
    float p = plan_.p[group] * static_cast<float>(kMassUnit), highest = plan_.highest[group];
    float most = highest < plan_.lowest[group] ? p : fminf((highest - ratio) * q, p);
    return __float2uint_ru(fmaxf(most, __fmaf_rn(-ratio, q, p)) * kPartsOfRest);
  }

  // The least key of all threads. Two scratches take turns, here and below, so that a slow reader is not
  // overtaken.
  __device__ __forceinline__ u64 least(u64 mine) {
    mine = least_of_lanes(mine);
    best_turn_ ^= 1;
    u64* of_warp = memory_.best[best_turn_];
    u32 lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) of_warp[threadIdx.x >> 5] = mine;
    __syncthreads();
    return least_of_lanes(lane < warps ? of_warp[lane] : kNoKey);
  }

  __device__ __forceinline__ static u64 least_of_lanes(u64 mine) {
    u32 mine_high = static_cast<u32>(mine >> 32), mine_low = static_cast<u32>(mine);
    u32 high = __reduce_min_sync(kAllLanes, mine_high);
    u32 low = __reduce_min_sync(kAllLanes, mine_high == high ? mine_low : ~0u);
    return static_cast<u64>(high) << 32 | low;
  }

  // Of numbers of which the sum is below 2^59.
  __device__ __forceinline__ u64 total_of(u64 value) {
    sum_turn_ ^= 1;
    u64* of_warp = memory_.sums[sum_turn_];
    u32 lane = threadIdx.x & 31;
    value = warp_sum<2>(value);
    if (lane == 0) of_warp[threadIdx.x >> 5] = value;
    __syncthreads();
    return warp_sum<2>(lane < blockDim.x >> 5 ? of_warp[lane] : 0);
  }

  __device__ __forceinline__ u64 before(u64 value) {
    u64 total;
    sum_turn_ ^= 1;
    return sum_before(value, memory_.sums[sum_turn_], total);
  }

  RowPlan& plan_;
  PlannerMemory& memory_;
  int size_, begin_, stop_;  // all groups, and this thread's
  int cut_ = 0;
  double per_q_unit_ = 0.0;  // one by q of all groups, in mass units
  int best_turn_ = 0, sum_turn_ = 0;
};
