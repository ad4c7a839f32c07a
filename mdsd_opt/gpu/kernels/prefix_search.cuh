// min over prefixes H of P(H) - Q(H)^K, for several K at once, from the sums of ratio bins.
//
// The tokens are ordered by p/q; the objective is known at the ends of all bins. Inside a bin the
// curve of P against Q is convex, so above both its end tangents, and -Q^K is concave: the objective
// is at least its value at the ends or where the tangents meet. Bins whose bound beats the best end
// by more than the slack are open and divided further. All of this is done by block 0 of a cluster.
#pragma once
#include "ratio_histogram.cuh"

constexpr int kMaxCounts = 8;

// Open bins are left closed for a gain of less than this.
constexpr double kSlack = 5e-7;

// What a pass adds up: its level, and which cells are divided.
struct Plan {
  int level;  // -1: nothing is left to do
  int num_cells[2];
  int cells[2][kMaxCells];  // bins of the first pass, and parts of those
  u64 p_base[2][kMaxCells], q_base[2][kMaxCells];  // sums of all that come before the cell
  u64 p_gap[2][kMaxCells], q_gap[2][kMaxCells];    // and after the previous cell
  int next_bin;  // where to look for further open bins
};

// Block 0's state. Prefix sums are inclusive; those of level 0 stay, levels 1 and 2 take turns.
struct Search {
  Plan plan;
  u64 p_prefix[2][kBins], q_prefix[2][kBins];
  u64 p_total, q_total;
  u64 gain[kMaxCounts];   // bits of -min; as bits, doubles that are not negative keep their order
  u64 bound[kMaxCounts];  // the same for what a finest part might still gain
  u64 scratch[2][kMaxWarps];
  int count_scratch[kMaxWarps];
};


__device__ inline u64 as_bits(double gain) {
  return static_cast<u64>(__double_as_longlong(fmax(gain, 0.0)));
}

__device__ inline double as_gain(u64 bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}

// First key of a bin or part, and how many keys it has.
__device__ inline int first_key_of_part(const Plan& plan, int part) {
  return (plan.cells[0][part / kParts] << kBinShift) + ((part % kParts) << kPartBits);
}

__device__ inline int first_key(const Plan& plan, int level, int index) {
  if (level == 0) return index << kBinShift;
  if (level == 1) return first_key_of_part(plan, index);
  return first_key_of_part(plan, plan.cells[1][index / kParts]) + index % kParts;
}

__device__ inline int num_keys(int level) { return 1 << (kPartBits * (2 - level)); }

// Sums of the tokens before a bin or part, and inside.
struct Masses {
  u64 p_before, q_before, p_inside, q_inside;
};

__device__ inline Masses masses_of(const Search& search, int level, int index) {
  const u64* p = search.p_prefix[level > 0];
  const u64* q = search.q_prefix[level > 0];
  u64 p_before = 0, q_before = 0;
  if (level > 0 && index % kParts == 0) {
    p_before = search.plan.p_base[level - 1][index / kParts];
    q_before = search.plan.q_base[level - 1][index / kParts];
  } else if (index > 0) {
    p_before = p[index - 1];
    q_before = q[index - 1];
  }
  return {p_before, q_before, p[index] - p_before, q[index] - q_before};
}

// Turn sums into prefix sums, counting in what lies between the cells.
__device__ inline void accumulate_prefixes(Search& search, int level) {
  u64* p = search.p_prefix[level > 0];
  u64* q = search.q_prefix[level > 0];
  int each = kBins / blockDim.x, begin = threadIdx.x * each;
  u64 p_sum = 0, q_sum = 0;
  for (int b = begin; b < begin + each; b++) {
    if (level > 0 && b % kParts == 0 && b / kParts < search.plan.num_cells[level - 1]) {
      p_sum += search.plan.p_gap[level - 1][b / kParts];
      q_sum += search.plan.q_gap[level - 1][b / kParts];
    }
    p_sum += p[b];
    q_sum += q[b];
    p[b] = p_sum;
    q[b] = q_sum;
  }
  u64 p_total, q_total;
  u64 p_before = sum_before(p_sum, search.scratch[0], p_total);
  u64 q_before = sum_before(q_sum, search.scratch[1], q_total);
  for (int b = begin; b < begin + each; b++) {
    p[b] += p_before;
    q[b] += q_before;
  }
  if (level == 0 && threadIdx.x == 0) {
    search.p_total = p_total;
    search.q_total = q_total;
  }
  __syncthreads();
}

// What a prefix that ends inside a bin or part might gain at most, for one K.
__device__ inline double possible_gain(const Search& search, const Masses& masses, double lowest,
                                       double highest, int k) {
  double p_total = static_cast<double>(search.p_total);
  double q_total = static_cast<double>(search.q_total);
  double factor = q_total / p_total;  // from ratios of weights to ratios of probabilities
  double p_inside = masses.p_inside / p_total, q_inside = masses.q_inside / q_total;
  lowest *= factor;
  highest *= factor;
  double q_kink = q_inside;
  if (highest < static_cast<double>(infinity()))
    q_kink = fmin(fmax((highest * q_inside - p_inside) / (highest - lowest), 0.0), q_inside);
  double p_kink = lowest * q_kink;
  return power(masses.q_before / q_total + q_kink, k) - masses.p_before / p_total - p_kink;
}

// Account for the prefixes at the ends of all bins or parts, and at the finest level for what is
// left inside.
__device__ inline void evaluate(Search& search, Grid grid, int level, const int* counts,
                                int num_counts) {
  int used = level == 0 ? kBins : search.plan.num_cells[level - 1] * kParts;
  double p_total = static_cast<double>(search.p_total);
  double q_total = static_cast<double>(search.q_total);
  double gain[kMaxCounts], bound[kMaxCounts];
  for (int j = 0; j < num_counts; j++) gain[j] = bound[j] = 0.0;
  for (int b = threadIdx.x; b < used; b += blockDim.x) {
    Masses masses = masses_of(search, level, b);
    if (masses.q_inside == 0) continue;
    double p_mass = (masses.p_before + masses.p_inside) / p_total;
    double q_mass = (masses.q_before + masses.q_inside) / q_total;
    for (int j = 0; j < num_counts; j++) gain[j] = fmax(gain[j], power(q_mass, counts[j]) - p_mass);
    if (level < 2) continue;
    int key = first_key(search.plan, level, b);
    double lowest = grid.lowest_ratio(key), highest = grid.highest_ratio(key + num_keys(level));
    for (int j = 0; j < num_counts; j++)
      bound[j] = fmax(bound[j], possible_gain(search, masses, lowest, highest, counts[j]));
  }
  for (int j = 0; j < num_counts; j++) {
    atomicMax(&search.gain[j], as_bits(gain[j]));
    if (level == 2) atomicMax(&search.bound[j], as_bits(bound[j]));
  }
  __syncthreads();
}

__device__ inline bool is_open(const Search& search, Grid grid, int level, int index,
                               const int* counts, int num_counts) {
  Masses masses = masses_of(search, level, index);
  if (masses.q_inside == 0) return false;
  int key = first_key(search.plan, level, index);
  double lowest = grid.lowest_ratio(key), highest = grid.highest_ratio(key + num_keys(level));
  for (int j = 0; j < num_counts; j++) {
    double gain = possible_gain(search, masses, lowest, highest, counts[j]);
    if (gain > as_gain(search.gain[j]) + kSlack) return true;
  }
  return false;
}

// Plan to divide the first open bins (level 0) or parts (level 1) from `from` on; return how many
// there are.
__device__ inline int plan_division(Search& search, Grid grid, int level, int from,
                                    const int* counts, int num_counts) {
  Plan& plan = search.plan;
  int used = level == 0 ? kBins : plan.num_cells[0] * kParts;
  int each = kBins / blockDim.x, begin = threadIdx.x * each;
  u64 open = 0;
  int found = 0;
  for (int i = 0; i < each; i++) {
    int index = begin + i;
    if (index < from || index >= used) continue;
    if (is_open(search, grid, level, index, counts, num_counts)) {
      open |= 1ull << i;
      found++;
    }
  }
  int total;
  int place = sum_before(found, search.count_scratch, total);
  int num_cells = min(total, kMaxCells);
  for (int i = 0; i < each && place < kMaxCells; i++) {
    if (!(open >> i & 1)) continue;
    int index = begin + i;
    Masses masses = masses_of(search, level, index);
    plan.cells[level][place] = index;
    plan.p_base[level][place] = masses.p_before;
    plan.q_base[level][place] = masses.q_before;
    place++;
  }
  __syncthreads();
  const u64* p = search.p_prefix[level];
  const u64* q = search.q_prefix[level];
  for (int c = threadIdx.x; c < num_cells; c += blockDim.x) {
    int previous = c == 0 ? -1 : plan.cells[level][c - 1];
    plan.p_gap[level][c] = plan.p_base[level][c] - (c == 0 ? 0 : p[previous]);
    plan.q_gap[level][c] = plan.q_base[level][c] - (c == 0 ? 0 : q[previous]);
  }
  if (threadIdx.x == 0 && total > 0) {
    plan.num_cells[level] = num_cells;
    if (level == 0) plan.next_bin = total > kMaxCells ? plan.cells[0][kMaxCells - 1] + 1 : kBins;
    plan.level = level + 1;
  }
  return total;
}

// Choose the next pass: open parts before further bins.
//
// There are never many open parts. Let r be the ratio and w the relative width of a part, 3e-4. A
// prefix that ends inside falls below both of the part's ends while K Q^(K-1), the slope of Q^K,
// crosses [r, r (1 + w)], which for K >= 2 gains at most w^2 r Q / (2 K - 2) <= w^2, less than the
// slack. For K = 1 the slope is one, so that only parts with ratios around one can be open.
__device__ inline void plan_next(Search& search, Grid grid, int level, const int* counts,
                                 int num_counts) {
  Plan& plan = search.plan;
  int next_bin = plan.next_bin;
  if (level == 1 && plan_division(search, grid, 1, 0, counts, num_counts) > 0) return;
  if (next_bin < kBins && plan_division(search, grid, 0, next_bin, counts, num_counts) > 0) return;
  if (threadIdx.x == 0) plan.level = -1;
}

__device__ inline void begin_search(Search& search) {
  if (threadIdx.x == 0) {
    search.plan.next_bin = 0;
  }
  if (threadIdx.x < kMaxCounts) search.gain[threadIdx.x] = search.bound[threadIdx.x] = 0;
}

// Take block 0's plan over.
__device__ inline int read_plan(const Search& search, OpenCells& open) {
  const Plan& plan = *in_block(&search.plan, 0);
  int level = plan.level;
  if (level <= 0) return level;
  for (int b = threadIdx.x; b < kBins; b += blockDim.x) open.of_bin[b] = open.of_part[b] = kClosed;
  __syncthreads();
  for (int c = threadIdx.x; c < plan.num_cells[0]; c += blockDim.x)
    open.of_bin[plan.cells[0][c]] = static_cast<unsigned char>(c);
  if (level == 2)
    for (int c = threadIdx.x; c < plan.num_cells[1]; c += blockDim.x)
      open.of_part[plan.cells[1][c]] = static_cast<unsigned char>(c);
  return level;
}
