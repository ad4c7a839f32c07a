// Counter-based random numbers, Philox4x32-10 of Salmon et al. (SC 2011): the same for the same
// counter, on whatever thread, so that every decision can be replayed.
#pragma once
#include "device.cuh"

struct PhiloxBlock {
  u32 x[4];
};

__device__ inline PhiloxBlock philox(PhiloxBlock counter, u64 key) {
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u32 high0 = __umulhi(0xD2511F53u, counter.x[0]), low0 = 0xD2511F53u * counter.x[0];
    u32 high1 = __umulhi(0xCD9E8D57u, counter.x[2]), low1 = 0xCD9E8D57u * counter.x[2];
    counter = {{high1 ^ counter.x[1] ^ k0, low1, high0 ^ counter.x[3] ^ k1, low0}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// A number of [0, 1) with 53 bits, the `stream`-th of a row in a step.
__device__ inline double uniform(u64 seed, u64 row, u32 step, u32 stream) {
  PhiloxBlock bits = philox({{static_cast<u32>(row), static_cast<u32>(row >> 32), step, stream}}, seed);
  return ((bits.x[0] >> 5) * 67108864.0 + (bits.x[1] >> 6)) / 9007199254740992.0;
}

// The random numbers of a row, in this order.
enum Stream { kLevel, kWithinBlock, kTest, kResidual, kNumStreams };

// Random numbers of the rows of a launch: `given`, [rows, kNumStreams], or where that is null Philox
// with the number of the row, beginning with `first_row`. `key`, unless it is null, holds the seed and
// the step in the device's memory: a launch that is repeated as it was draws anew.
struct Draws {
  const double* given;
  u64 seed, first_row;
  u32 step;

  __device__ Draws(const double* given, const u64* key, u64 seed, u64 first_row, u32 step)
      : given(given), seed(key ? key[0] : seed), first_row(first_row),
        step(key ? static_cast<u32>(key[1]) : step) {}
  __device__ double of(long long row, Stream stream) const {
    return given ? given[row * kNumStreams + stream] : uniform(seed, first_row + row, step, stream);
  }
};
