// min over prefixes H of P(H) - Q(H) for drafts without replacement, for several K at once.
//
// The objective is known at the ends of all bins. Inside a bin the curve of P against q is above
// both its end tangents, and that of Q below its chord, as Q is q-convex: the objective is at least
// its value at the ends or where the tangents meet. Block 0 of a cluster plans what to divide.
#pragma once
#include "prefix_search.cuh"
#include "race.cuh"

// What a pass adds up: its level, and which cells are divided.
struct RacePlan {
  int level;  // -1: nothing is left to do
  int num_cells[2];
  int cells[2][kRaceCells];  // bins of the first pass, and parts of those
  int next_bin, next_part;   // where to look for further open ones
  u64 base[2][kRaceCells][kRaceSums];      // sums of all that come before the cell
  u32 escape[2][kRaceCells][kMaxCounts];   // and that prefix's escape probabilities

  __device__ int first_key(int at_level, int index) const {
    if (at_level == 0) return index << kRaceBinShift;
    int part = at_level == 1 ? index : cells[1][index / kParts];
    int key = (cells[0][part / kParts] << kRaceBinShift) + ((part % kParts) << kPartBits);
    return at_level == 1 ? key : key + index % kParts;
  }
  __device__ int end_key(int at_level, int index) const {
    return first_key(at_level, index) + (1 << (kPartBits * (2 - at_level)));
  }
  // How many sums a level has.
  __device__ int used(int at_level) const {
    return at_level == 0 ? kRaceBins : num_cells[at_level - 1] * kParts;
  }
};

// What the blocks of a cluster keep of the pass they are in; bins are spread over them.
struct RaceTables {
  RaceSums sums;  // of every bin, then of all tokens up to its end
  union {
    u32 escapes[kMaxCounts][kRaceBins];
    FoundTokens found;  // before there are any
  };
};

struct RaceMemory {
  union {
    LikeliestMemory likeliest;
    RaceTables tables;
  };
  HeavyTokens heavy;
  OpenRaceCells open;
  RacePlan plan;
  u64 cell_sums[kRaceSums][kRaceCells];
  u64 cluster_sums[2][kMaxWarps];
  u64 gain[kMaxCounts];   // block 0: as in `Search`
  u64 bound[kMaxCounts];
  int drafts[kMaxCounts];  // numbers of drafts, 0 where there are not so many tokens
  int count_scratch[kMaxWarps];
  MaximaScratch maxima;
};

__device__ inline u32 block_of_bin(int bin) { return bin / kBinsOfBlock; }

// Turn the sums of a block's bins into those of prefixes, within each cell, a warp a sum.
__device__ inline void sum_cells(RaceMemory& memory) {
  int lane = threadIdx.x & 31, cell_begin = cluster_rank() * kBinsOfBlock / kParts;
  for (int item = threadIdx.x >> 5; item < kRaceSums * kBinsOfBlock / kParts;
       item += blockDim.x >> 5) {
    int s = item % kRaceSums, cell = cell_begin + item / kRaceSums;
    int bin = cell * kParts + 2 * lane;
    RaceSums& sums = memory.tables.sums;
    u64 first = sums.get(s, bin), both = first + sums.get(s, bin + 1), up_to = both;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      u64 other = __shfl_up_sync(kAllLanes, up_to, distance);
      if (lane >= distance) up_to += other;
    }
    sums.set(s, bin, up_to - both + first);
    sums.set(s, bin + 1, up_to);
    if (lane == 31) memory.cell_sums[s][cell] = up_to;
  }
}

// Sum of all cells before this one.
__device__ inline u64 sum_before_cell(const RaceMemory& memory, int s, int cell) {
  u64 sum = 0;
  for (int c = 0; c < cell; c++)
    sum += in_block(&memory.cell_sums, block_of_bin(c * kParts))[0][s][c];
  return sum;
}

// Count in what comes before the cells.
__device__ inline void add_bases(RaceMemory& memory, int level) {
  int begin = cluster_rank() * kBinsOfBlock;
  for (int b = begin + threadIdx.x; b < begin + kBinsOfBlock; b += blockDim.x) {
    int cell = b / kParts;
    if (level > 0 && cell >= memory.plan.num_cells[level - 1]) continue;
    for (int s = 0; s < kRaceSums; s++) {
      u64 base = level == 0 ? sum_before_cell(memory, s, cell) : memory.plan.base[level - 1][cell][s];
      memory.tables.sums.set(s, b, memory.tables.sums.get(s, b) + base);
    }
  }
}

// Where the sums of a level are, wherever in the cluster.
class RaceCurve {
 public:
  __device__ RaceCurve(RaceMemory& memory, RaceScale scale, double p_total, int level)
      : memory_(memory), scale_(scale), p_total_(p_total), level_(level) {}

  __device__ u64 sum(int s, int bin) const {
    return in_block(&memory_.tables.sums, block_of_bin(bin))->get(s, bin);
  }
  // Sum of the tokens before a bin.
  __device__ u64 sum_before(int s, int bin) const {
    if (is_begin(bin)) return level_ == 0 ? 0 : memory_.plan.base[level_ - 1][bin / kParts][s];
    return sum(s, bin - 1);
  }
  __device__ double p_before(int bin) const { return sum_before(0, bin) / p_total_; }
  __device__ double p_up_to(int bin) const { return sum(0, bin) / p_total_; }

  __device__ bool has_drafts(int bin) const {
    int key = memory_.plan.first_key(level_, bin), end = memory_.plan.end_key(level_, bin);
    return sum(1, bin) > sum_before(1, bin) || memory_.heavy.before(key) < memory_.heavy.before(end);
  }
  __device__ double q_inside(int bin) const {
    double light = static_cast<double>(sum(1, bin) - sum_before(1, bin)) * scale_.unit;
    int end = memory_.heavy.before(memory_.plan.end_key(level_, bin));
    for (int h = memory_.heavy.before(memory_.plan.first_key(level_, bin)); h < end; h++)
      light += memory_.heavy.rate[h];
    return light;
  }

  __device__ u32 escape(int j, int bin) const {
    return in_block(&memory_.tables.escapes, block_of_bin(bin))[0][j][bin];
  }
  // Of the tokens before a bin: the same as up to the last bin that has drafts.
  __device__ u32 escape_before(int j, int bin) const {
    for (; !is_begin(bin); bin--) {
      u32 found = escape(j, bin - 1);
      if (found != kNoEscape) return found;
    }
    if (level_ == 0) return static_cast<u32>(kEscapeUnits);
    return memory_.plan.escape[level_ - 1][bin / kParts][j];
  }

  // What a prefix that ends with a bin, or inside it, gains over the empty one, for the j-th count.
  __device__ double gain(int j, int bin) const {
    return 1.0 - escape(j, bin) / kEscapeUnits - p_up_to(bin);
  }
  __device__ double possible_gain(int j, int bin, Grid grid) const {
    double factor = 1.0 / (scale_.unit * p_total_);  // from ratios of weights to p over rates
    double lowest = grid.lowest_ratio(2 * memory_.plan.first_key(level_, bin)) * factor;
    double highest = grid.highest_ratio(2 * memory_.plan.end_key(level_, bin)) * factor;
    double p_begin = p_before(bin), p_inside = p_up_to(bin) - p_begin;
    double q = q_inside(bin), part = 1.0;  // of q, where the tangents meet
    if (highest < static_cast<double>(infinity()))
      part = fmin(fmax((highest - p_inside / q) / (highest - lowest), 0.0), 1.0);
    double begin = escape_before(j, bin) / kEscapeUnits, end = escape(j, bin) / kEscapeUnits;
    return 1.0 - (begin - (begin - end) * part) - p_begin - lowest * (part * q);
  }

 private:
  __device__ bool is_begin(int bin) const { return level_ == 0 ? bin == 0 : bin % kParts == 0; }

  RaceMemory& memory_;
  RaceScale scale_;
  double p_total_;
  int level_;
};

// Account for the prefixes at the ends of all bins or parts, and at the finest level for what is
// left inside.
__device__ inline void evaluate(RaceMemory& memory, const RaceCurve& curve, Grid grid, int level,
                                int num_counts) {
  int used = memory.plan.used(level);
  for (int j = 0; j < num_counts; j++) {
    if (memory.drafts[j] == 0) continue;
    double gain = 0.0, bound = 0.0;
    for (int b = threadIdx.x; b < used; b += blockDim.x) {
      if (curve.escape(j, b) == kNoEscape) continue;
      gain = fmax(gain, curve.gain(j, b));
      if (level == 2) bound = fmax(bound, curve.possible_gain(j, b, grid));
    }
    atomicMax(&memory.gain[j], as_bits(gain));
    if (level == 2) atomicMax(&memory.bound[j], as_bits(bound));
  }
  __syncthreads();
}

__device__ inline bool is_open(const RaceMemory& memory, const RaceCurve& curve, Grid grid, int bin,
                               int num_counts) {
  for (int j = 0; j < num_counts; j++) {
    if (memory.drafts[j] == 0) continue;
    if (curve.escape(j, bin) == kNoEscape) return false;
    if (curve.possible_gain(j, bin, grid) > as_gain(memory.gain[j]) + kSlack) return true;
  }
  return false;
}

// Plan to divide the first open bins (level 0) or parts (level 1) from `from` on; return how many
// there are.
__device__ inline int plan_division(RaceMemory& memory, const RaceCurve& curve, Grid grid, int level,
                                    int from, int num_counts) {
  RacePlan& plan = memory.plan;
  int used = plan.used(level), each = kRaceBins / blockDim.x, begin = threadIdx.x * each;
  u64 open = 0;
  int found = 0;
  for (int i = 0; i < each; i++) {
    int bin = begin + i;
    if (bin < from || bin >= used || !is_open(memory, curve, grid, bin, num_counts)) continue;
    open |= 1ull << i;
    found++;
  }
  int total;
  int place = sum_before(found, memory.count_scratch, total);
  int& next = level == 0 ? plan.next_bin : plan.next_part;
  for (int i = 0; i < each && place < kRaceCells; i++) {
    if (!(open >> i & 1)) continue;
    int bin = begin + i;
    plan.cells[level][place] = bin;
    for (int s = 0; s < kRaceSums; s++) plan.base[level][place][s] = curve.sum_before(s, bin);
    for (int j = 0; j < num_counts; j++)
      if (memory.drafts[j] > 0) plan.escape[level][place][j] = curve.escape_before(j, bin);
    place++;
    if (place == kRaceCells && total > kRaceCells) next = bin + 1;
  }
  if (threadIdx.x == 0 && total > 0) {
    if (total <= kRaceCells) next = kRaceBins;
    if (level == 0) plan.next_part = 0;
    plan.num_cells[level] = min(total, kRaceCells);
    plan.level = level + 1;
  }
  return total;
}

// Choose the next pass: what is open in the parts, then further parts, then further bins. The sums
// of an earlier level are gone by then and added up again, which is rare.
__device__ inline void plan_next(RaceMemory& memory, const RaceCurve& curve, Grid grid, int level,
                                 int num_counts) {
  RacePlan& plan = memory.plan;
  int next_bin = plan.next_bin, next_part = plan.next_part;
  if (level == 0 && plan_division(memory, curve, grid, 0, next_bin, num_counts) > 0) return;
  if (level == 1 && plan_division(memory, curve, grid, 1, next_part, num_counts) > 0) return;
  if (threadIdx.x != 0) return;
  if (level == 2 && next_part < kRaceBins)
    plan.level = 1;
  else if (level > 0 && next_bin < kRaceBins)
    plan.level = 0;
  else
    plan.level = -1;
}

__device__ inline void begin_race(RaceMemory& memory) {
  if (threadIdx.x == 0) {
    memory.plan.level = memory.plan.next_bin = memory.plan.next_part = 0;
    memory.plan.num_cells[0] = memory.plan.num_cells[1] = 0;
  }
  if (threadIdx.x < kMaxCounts) memory.gain[threadIdx.x] = memory.bound[threadIdx.x] = 0;
}

// Take block 0's plan over.
__device__ inline int read_plan(RaceMemory& memory) {
  int level = in_block(&memory.plan, 0)->level;
  if (level < 0) return level;
  if (cluster_rank() > 0) {
    const u32* from = reinterpret_cast<const u32*>(in_block(&memory.plan, 0));
    u32* to = reinterpret_cast<u32*>(&memory.plan);
    for (u32 i = threadIdx.x; i < sizeof(RacePlan) / 4; i += blockDim.x) to[i] = from[i];
  }
  OpenRaceCells& open = memory.open;
  for (int b = threadIdx.x; b < kRaceBins; b += blockDim.x) open.of_bin[b] = open.of_part[b] = kClosed;
  __syncthreads();
  if (level > 0)
    for (int c = threadIdx.x; c < memory.plan.num_cells[0]; c += blockDim.x)
      open.of_bin[memory.plan.cells[0][c]] = static_cast<unsigned char>(c);
  if (level == 2)
    for (int c = threadIdx.x; c < memory.plan.num_cells[1]; c += blockDim.x)
      open.of_part[memory.plan.cells[1][c]] = static_cast<unsigned char>(c);
  return level;
}
