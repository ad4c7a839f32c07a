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
// All threads of a block take part.
#pragma once
#include "block.cuh"
#include "row_plan.cuh"

constexpr u32 kPlannerWarps = 8;  // of a block, at most

struct Best {
  double value;
  int index;
};

__device__ inline bool is_better(Best a, Best b) {
  return a.value < b.value || (a.value == b.value && a.index < b.index);
}

// What a thread's groups give, and whether they are on the cut's upper side.
struct Part {
  double value;
  bool is_above;
};

struct PlannerMemory {
  double steps[3][kMaxGroups + 1];  // the three sequences; then the ratios, R and F
  double q_from[kMaxGroups + 1];  // of all groups from an end on
  Part of_warp[4][kPlannerWarps];
  Best best[2][kPlannerWarps];
  u64 sums[2][kPlannerWarps];
};

// First group of a block, and the first behind it.
struct GroupBlock {
  int start, stop;
};

class Planner {
 public:
  __device__ Planner(RowPlan& plan, PlannerMemory& memory)
      : plan_(plan), memory_(memory), size_(plan.num_groups) {
    int each = (size_ + blockDim.x - 1) / blockDim.x;
    begin_ = min(static_cast<int>(threadIdx.x) * each, size_);
    stop_ = min(begin_ + each, size_);
  }

  // Fill in the plan's ratios, after `find_cut`.
  __device__ __forceinline__ void collapse() {
    make_steps();
#pragma unroll 1
    for (int side = 0; side < 2; side++) fill(side == 0);
    follow_curves();
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      double ratio = memory_.steps[0][g] * (plan_.q_unit / plan_.p_unit);
      float high = static_cast<float>(ratio);
      plan_.ratio[g] = {high, static_cast<float>(ratio - high)};
    }
  }

  // So much smaller may units of (p - p_I)+ be, a power of two: by what may be left of a group of tokens
  // with ratios between its edges, and a margin for the rounding of weights.
  __device__ __forceinline__ float finer_units() {
    u64 mine = 0;
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      double p = plan_.p[g] * kMassUnit, q = share_of_q(g), ratio = memory_.steps[0][g];
      double lowest = plan_.lowest[g], highest = plan_.highest[g], left = p;
      if (lowest == highest)
        left = p - ratio * q;
      else if (lowest < highest && highest < static_cast<double>(infinity()))
        left = fmax(p - lowest * q, 0.0) * (fmax(highest - ratio, 0.0) / (highest - lowest));
      mine += in_mass_units(fmin(fmax(left, p - ratio * q), p));
    }
    double most = total_of(mine) * kMassUnit + 2e-6, finer = 1.0;
    while (2.0 * finer * most < 0.5) finer *= 2.0;
    return static_cast<float>(finer);
  }

  // The block at a level that holds a group with mass, after `collapse`, whose ratios it takes the place
  // of: a slope at which the lowest
  // points on both sides of it are on one line. Newton steps, kept inside a bracket.
  __device__ __forceinline__ GroupBlock block_of(int top, double level) {
    const double* r = memory_.steps[1];
    double *q = memory_.steps[2], *point = memory_.steps[0];  // q from the topmost draft's group on
#pragma unroll 1
    for (int end = threadIdx.x; end <= size_; end += blockDim.x) {
      point[end] = r[end] - level * q[end];  // where F is
      q[end] = q_between(top, end);
    }
    __syncthreads();
    double low = -static_cast<double>(infinity()), high = static_cast<double>(infinity());
    GroupBlock block{top, top + 1};
    for (int round = 0; round < 64; round++) {
      double slope = (point[block.stop] - point[block.start]) / (q[block.stop] - q[block.start]);
      if (!(slope > low && slope < high)) {
        slope = 0.5 * (low + high);
        if (!(slope > low && slope < high)) break;  // as near as rounding lets us come
      }
      Best left{static_cast<double>(infinity()), size_}, right{static_cast<double>(infinity()), 0};
      int end = threadIdx.x, threads = blockDim.x;
#pragma unroll 2
      for (; end <= top; end += threads) {  // the widest of equals: the first one here, the last behind
        double here = point[end] - slope * q[end];
        if (here < left.value) left = {here, end};
      }
#pragma unroll 2
      for (; end <= size_; end += threads) {
        double here = point[end] - slope * q[end];
        if (here <= right.value) right = {here, -end};
      }
      left = least(left);
      right = least(right);
      GroupBlock next{left.index, -right.index};
      if (next.start == block.start && next.stop == block.stop) break;
      block = next;
      if (left.value < right.value)
        low = slope;
      else
        high = slope;
    }
    return block;
  }

  __device__ __forceinline__ double q_between(int begin, int end) const {
    return plan_.q_sum[end].minus(plan_.q_sum[begin]) * per_q_;
  }
  // q of all groups from an end on, and up to it.
  __device__ __forceinline__ double q_from(int end) const { return memory_.q_from[end]; }
  __device__ __forceinline__ double q_up_to(int end) const { return q_between(0, end); }

  // The end of the groups that no rule does better on, and so the plan's `most`; sums of q up to ends.
  __device__ __forceinline__ void find_cut() {
    u64 p = 0, total;
    FineSum q{{0, 0, 0}};
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      p += plan_.p[g];
      q.add(plan_.q[g]);
    }
    p = before(p, total);
#pragma unroll
    for (u64& sum : q.part) sum = before(sum, total);
    if (threadIdx.x == 0) plan_.q_sum[0] = {{0, 0, 0}};
    Best cut{0.0, 0};
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      p += plan_.p[g];
      q.add(plan_.q[g]);
      plan_.q_sum[g + 1] = q;
      Best here{p * kMassUnit - plan_.contained[g + 1], g + 1};
      if (is_better(here, cut)) cut = here;
    }
    cut = least(cut);  // its barrier lets sums of q be read
    per_q_ = 1.0;
    per_q_ = 1.0 / q_up_to(size_);
    cut_ = cut.index;
#pragma unroll 1
    for (int end = threadIdx.x; end <= size_; end += blockDim.x)
      memory_.q_from[end] = q_between(end, size_);  // read after a barrier of `beside`
    if (threadIdx.x == 0) plan_.most = fmin(fmax(1.0 + cut.value, 0.0), 1.0);
  }

 private:
  __device__ __forceinline__ double share_of_q(int group) const { return plan_.q[group] * per_q_; }

  __device__ __forceinline__ double mean(int group) const {
    return plan_.p[group] * kMassUnit / share_of_q(group);
  }
  // Outwards, but not above what any marginal may have.
  __device__ __forceinline__ double rounded(int group, double mean) const {
    if (group >= cut_) return fmin(mean, plan_.lowest[group]);
    return fmax(mean, fmin(plan_.highest[group], fmax(plan_.most_ratio, mean)));
  }

  // The sequences, each rising on either side of the cut. A marginal's ratio times the q from there on
  // cannot exceed one, which bounds them all.
  __device__ __forceinline__ void make_steps() {
    const double inf = static_cast<double>(infinity());
    // Of a thread's groups on the side of the last of them, and on that of the first.
    double most_mean = 0.0, most_rounded = 0.0, least_mean = inf, least_rounded = inf;
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      if (g == cut_) most_mean = most_rounded = 0.0;
      if (plan_.q[g] == 0.0) continue;
      double here = mean(g), outwards = rounded(g, here);
      memory_.steps[0][g] = here;
      most_mean = fmax(most_mean, here);
      most_rounded = fmax(most_rounded, outwards);
      if (g >= cut_ && begin_ < cut_) continue;
      least_mean = fmin(least_mean, here);
      least_rounded = fmin(least_rounded, outwards);
    }
    auto greater = [](double a, double b) { return a > b ? a : b; };
    auto smaller = [](double a, double b) { return a < b ? a : b; };
    // Earlier threads, if the last of their groups are on my first's side, and later ones, if their
    // first is on my last's.
    bool is_first_above = begin_ >= cut_, is_last_above = stop_ > cut_;
    most_mean = beside<-1>({most_mean, is_last_above}, is_first_above, 0.0, 0, greater);
    most_rounded = beside<-1>({most_rounded, is_last_above}, is_first_above, 0.0, 1, greater);
    least_mean = beside<1>({least_mean, is_first_above}, is_last_above, inf, 2, smaller);
    least_rounded = beside<1>({least_rounded, is_first_above}, is_last_above, inf, 3, smaller);
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      if (g == cut_) most_mean = most_rounded = 0.0;
      if (plan_.q[g] > 0.0) {
        double here = memory_.steps[0][g];
        most_mean = fmax(most_mean, here);
        most_rounded = fmax(most_rounded, rounded(g, here));
      }
      double bound = 1.0 / fmax(q_from(g), 1e-300);
      memory_.steps[g < cut_ ? 1 : 2][g] = fmin(most_mean, bound);
      if (g < cut_) memory_.steps[2][g] = fmin(most_rounded, bound);
    }
#pragma unroll 1
    for (int g = stop_ - 1; g >= begin_; g--) {
      if (g == cut_ - 1) least_mean = least_rounded = inf;
      if (plan_.q[g] > 0.0) {
        double here = memory_.steps[0][g];
        least_mean = fmin(least_mean, here);
        least_rounded = fmin(least_rounded, rounded(g, here));
      }
      double bound = 1.0 / fmax(q_from(g), 1e-300);
      memory_.steps[g < cut_ ? 0 : 1][g] = fmin(least_mean, bound);
      if (g >= cut_) memory_.steps[0][g] = fmin(least_rounded, bound);
    }
  }

  // The values of all threads before this one (kWay -1), or behind it (1), that are on one side, joined;
  // sides only rise from thread to thread.
  template <int kWay, class Join>
  __device__ __forceinline__ double beside(Part mine, bool is_above, double nothing, int turn,
                                           Join join) {
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u32 place = kWay < 0 ? lane : 31 - lane;  // in the order of the scan
    auto neighbour = [&](auto value, u32 distance) {
      return kWay < 0 ? __shfl_up_sync(kAllLanes, value, distance)
                      : __shfl_down_sync(kAllLanes, value, distance);
    };
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
      double value = neighbour(mine.value, distance);
      bool is_same = neighbour(static_cast<int>(mine.is_above), distance) == mine.is_above;
      if (place >= distance && is_same) mine.value = join(mine.value, value);
    }
    if (place == 31) memory_.of_warp[turn][warp] = mine;
    Part next{neighbour(mine.value, 1), neighbour(static_cast<int>(mine.is_above), 1) != 0};
    double found = place > 0 && next.is_above == is_above ? next.value : nothing;
    __syncthreads();
    for (u32 w = 0; w < warps; w++) {
      Part other = memory_.of_warp[turn][w];
      bool is_beside = kWay < 0 ? w < warp : w > warp;
      if (is_beside && other.is_above == is_above) found = join(found, other.value);
    }
    return found;
  }

  // Give the groups inside the cut, or those above it, the mass that is theirs: of the sequences, the
  // first becomes their ratios.
  __device__ __forceinline__ void fill(bool inside) {
    const double inf = static_cast<double>(infinity());
    double mass = inside ? plan_.contained[cut_] : 1.0 - plan_.contained[cut_];
    u64 sums[3] = {0, 0, 0}, outer = 0, all;
    int begin = inside ? begin_ : max(begin_, cut_), end = inside ? min(stop_, cut_) : stop_;
#pragma unroll 1
    for (int g = begin; g < end; g++)
#pragma unroll
      for (int s = 0; s < 3; s++) sums[s] += units(s, g);
    double reached[3];
#pragma unroll
    for (int s = 0; s < 3; s++) reached[s] = total_of(sums[s]) * kMassUnit;
    // The level that a stretch is put on is an optimum over how many groups it concerns.
    bool needs_level = inside ? reached[2] <= mass : reached[0] >= mass;
    Best level{inf, 0};
    if (needs_level) outer = before(inside ? sums[2] : sums[0], all);
#pragma unroll 1
    for (int g = begin; needs_level && g < end; g++) {
      if (inside) {
        outer += units(2, g);
        double others = reached[2] - outer * kMassUnit;
        if (q_up_to(g + 1) > 0.0)
          level.value = fmin(level.value, (mass - others) / q_up_to(g + 1));
      } else {
        double others = outer * kMassUnit;
        if (q_from(g) > 0.0) level.value = fmin(level.value, -(mass - others) / q_from(g));
        outer += units(0, g);
      }
    }
    if (needs_level) level = least(level);
    int from = reached[1] <= mass ? 1 : 0;
    double least_mass = from == 1 ? reached[1] : reached[0];
    double share = (mass - least_mass) / ((from == 1 ? reached[2] : reached[1]) - least_mass);
    share = fmin(fmax(share, 0.0), 1.0);
    double lowest = 0.0, highest = inf;
    if (inside && needs_level) {
      from = share = 1;
      lowest = level.value;
    } else if (needs_level) {
      from = share = 0;
      highest = fmax(-level.value, 0.0);
    }
#pragma unroll 1
    for (int g = begin; g < end; g++) {
      double a = memory_.steps[from][g], b = memory_.steps[from + 1][g];
      double ratio = share == 1.0 ? b : a + share * (b - a);
      memory_.steps[0][g] = fmin(fmax(ratio, lowest), highest);
    }
  }

  __device__ __forceinline__ u64 units(int step, int group) const {
    return plan_.q[group] > 0.0 ? in_mass_units(memory_.steps[step][group] * share_of_q(group)) : 0;
  }

  // R and F at the ends, in place of two sequences. Where R is below F it is lifted, and the ratio is
  // that of the lifted curve.
  __device__ __forceinline__ void follow_curves() {
    double *ratio = memory_.steps[0], *r = memory_.steps[1], *f = memory_.steps[2];
    u64 sum = 0, total;
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) sum += units(0, g);
    sum = before(sum, total);  // its barrier lets the sequences be overwritten
    if (threadIdx.x == 0) r[0] = f[0] = 0.0;
#pragma unroll 1
    for (int g = begin_; g < stop_; g++) {
      double r_before = sum * kMassUnit, lower = fmax(r_before, plan_.contained[g]);
      sum += units(0, g);
      double r_after = sum * kMassUnit, upper = fmax(r_after, plan_.contained[g + 1]);
      if (!(q_from(g) > 0.0)) lower = 1.0;
      if (!(q_from(g + 1) > 0.0)) upper = 1.0;
      if (plan_.q[g] == 0.0)
        ratio[g] = 0.0;
      else if (upper != r_after || lower != r_before)
        ratio[g] = fmax(upper - lower, 0.0) / share_of_q(g);
      r[g + 1] = upper;
      f[g + 1] = plan_.contained[g + 1];
    }
  }

  // The least value of all threads', and of equal ones that with the least index. Two scratches take
  // turns, here and below, so that a slow reader is not overtaken.
  __device__ __forceinline__ Best least(Best mine) {
    mine = least_of_lanes(mine);
    Best* of_warp = memory_.best[best_turn_];
    best_turn_ ^= 1;
    u32 lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) of_warp[threadIdx.x >> 5] = mine;
    __syncthreads();
    return least_of_lanes(of_warp[min(lane, warps - 1)]);
  }

  // That of a warp's lanes, by integers in the order of the values.
  __device__ __forceinline__ static Best least_of_lanes(Best mine) {
    u64 bits = __double_as_longlong(mine.value + 0.0), sign = 1ull << 63;
    u64 key = bits & sign ? ~bits : bits | sign;
    u32 mine_high = static_cast<u32>(key >> 32), mine_low = static_cast<u32>(key);
    u32 high = __reduce_min_sync(kAllLanes, mine_high);
    u32 low = __reduce_min_sync(kAllLanes, mine_high == high ? mine_low : ~0u);
    bool is_least = mine_high == high && mine_low == low;
    int index = __reduce_min_sync(kAllLanes, is_least ? mine.index : 0x7FFFFFFF);
    key = static_cast<u64>(high) << 32 | low;
    return {__longlong_as_double(key & sign ? key ^ sign : ~key), index};
  }

  __device__ __forceinline__ u64 total_of(u64 value) {
    sum_turn_ ^= 1;
    u64* of_warp = memory_.sums[sum_turn_];
    u32 lane = threadIdx.x & 31;
    value = warp_sum(value);
    if (lane == 0) of_warp[threadIdx.x >> 5] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x >> 5 ? of_warp[lane] : 0);
  }

  __device__ __forceinline__ u64 before(u64 value, u64& total) {
    sum_turn_ ^= 1;
    return sum_before(value, memory_.sums[sum_turn_], total);
  }

  RowPlan& plan_;
  PlannerMemory& memory_;
  int size_, begin_, stop_;  // all groups, and this thread's
  int cut_ = 0;
  double per_q_ = 0.0;  // one by q of all groups
  int best_turn_ = 0, sum_turn_ = 0;
};
