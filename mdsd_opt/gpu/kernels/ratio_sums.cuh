// Tokens in order of p/q without sorting: bins even in t = p / (p + shape q), which lies between 0 and
// 1 and needs no range of ratios to be known. What limits a bin's error is its width in p/q, and
// ratios above K never matter; at 2048 bins nearly all rows are settled at once.
#pragma once
#include "row_units.cuh"

constexpr int kRatioBins = 2048;
constexpr float kPlaces = kRatioBins - 1.0f;  // a token's bin is the integer next to t kPlaces

// Adding it to a float below it rounds to an integer, which is then in the lowest bits.
constexpr float kToBin = 8388608.0f;  // 2^23
constexpr u32 kToBinBits = 0x4B000000u;

// t of the weights' ratio; the NaN of 0/0 becomes 0.
__device__ __forceinline__ float place_of(float p_weight, float q_weight, float shape) {
  return clamped_product(p_weight, fast_reciprocal(__fmaf_rn(q_weight, shape, p_weight)));
}

// A place by which heavy tokens are put in order. Places next to zero say nothing: where p + shape q is
// above 2^126 the reciprocal is zero, and so is t, which it need not be of a smaller ratio. They count as
// one place, in which exact ratios decide.
__device__ __forceinline__ float ordered_place(float t) { return t < 1e-20f ? 0.0f : t; }

__device__ __forceinline__ u32 bin_bits_of(float t) {
  return __float_as_uint(__fmaf_rn(t, kPlaces, kToBin));
}

// Part of a row's bins, divided evenly in t into as many parts as there are bins in all.
struct BinRange {
  int first, size;

  __device__ __forceinline__ bool holds(float t) const {
    return bin_bits_of(t) - (kToBinBits + first) < static_cast<u32>(size);
  }
  __device__ __forceinline__ float place_inside(float t) const {
    return clamped_product(__fmaf_rn(t, kPlaces, 0.5f - first), 1.0f / size);
  }
};

// What a weight is rounded down after, so that errors have no common sign: numbers of [0, 1), evenly
// spread over any kShareStep tokens.
__device__ __forceinline__ float dither_of(int token) {
  return ((token * 317u & (kShareStep - 1)) + 0.5f) * (1.0f / kShareStep);
}

// Those of the places of a thread's packs.
template <int N>
struct Dithers {
  float of[N];

  __device__ __forceinline__ Dithers() {
#pragma unroll
    for (int i = 0; i < N; i++) of[i] = dither_of(threadIdx.x * N + i);
  }
};

__device__ __forceinline__ u32 units_of(float weight, float dither) {
  return rounded_down(__fmaf_rn(weight, kUnitsOfWeight, dither));
}

// Of a weight of at most one.
__device__ __forceinline__ u32 units_of_light(float weight, float dither) {
  return rounded_down_small(__fmaf_rn(weight, kUnitsOfWeight, dither));
}

// Sums over all bins in a block's shared memory, of kSums numbers a token and in kCopies copies:
// lanes that are no multiple of kCopies apart never meet in one word.
template <int kSums, int kCopies>
struct BinSums {
  u32 of[kSums][kRatioBins * kCopies];

  __device__ void clear() {
    Words* all = reinterpret_cast<Words*>(of);
    for (int i = threadIdx.x; i < kSums * kRatioBins * kCopies / 4; i += blockDim.x)
      all[i] = {{0, 0, 0, 0}};
  }

  // A thread's copy, to be addressed by `bin_bits_of`.
  __device__ __forceinline__ SharedWord mine() {
    return SharedWord(&of[0][threadIdx.x & (kCopies - 1)]).with_first(kToBinBits, kCopies);
  }
  template <int kSum>
  __device__ __forceinline__ static void add(SharedWord mine, u32 bin_bits, u32 value) {
    mine.add<kCopies, kSum * kRatioBins * kCopies>(bin_bits, value);
  }

  // Add up the copies.
  __device__ void fold() {
    u32* all = &of[0][0];
    for (int i = threadIdx.x; i < kSums * kRatioBins; i += blockDim.x) {
      u32 sum = all[i * kCopies];
#pragma unroll
      for (int copy = 1; copy < kCopies; copy++) sum += all[i * kCopies + copy];
      all[i * kCopies] = sum;
    }
  }

  // Add up the folded sums of all blocks of the cluster and write them to [kSums, kRatioBins] words of
  // global memory.
  __device__ void gather(u32* table) {
    constexpr int kPart = kSums * kRatioBins / MDSD_CLUSTER_SIZE;
    int begin = cluster_rank() * kPart;
    for (int i = begin + threadIdx.x; i < begin + kPart; i += blockDim.x) {
      u32 sum = 0;
#pragma unroll
      for (int rank = 0; rank < MDSD_CLUSTER_SIZE; rank++)
        sum += in_block(&of[0][0], rank)[i * kCopies];
      table[i] = sum;
    }
  }
};

// Ratios of weights between which the tokens of a bin lie: of the row's bins, or of parts of some.
// The margins are for the rounding of t: one unit of the reciprocal, half a one of the sum and of the
// product; and of a place among parts.
struct RatioScale {
  BinRange range;  // size 0: the row's bins
  double shape;

  __device__ double lower_edge(int bin) const {
    return ratio_at(place(bin, -1) * (1.0 - kRounding));
  }
  __device__ double upper_edge(int bin) const {
    return ratio_at(place(bin, 1) * (1.0 + kRounding));
  }

 private:
  static constexpr double kRounding = 2.5e-7;

  __device__ double place(int bin, int side) const {
    if (range.size == 0) return bin + 0.5 * side;
    return range.first - 0.5 + (bin + 0.51 * side) * (range.size / static_cast<double>(kPlaces));
  }
  __device__ double ratio_at(double place) const {
    double t = place / kPlaces;
    if (t <= 0.0) return 0.0;
    return t < 1.0 ? shape * t / (1.0 - t) : static_cast<double>(infinity());
  }
};
