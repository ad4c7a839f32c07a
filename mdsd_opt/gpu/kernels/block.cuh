// Cooperation of the threads of a block, and of the blocks of a cluster.
#pragma once
#include "device.cuh"

constexpr int kMaxWarps = 32;
constexpr u32 kAllLanes = 0xFFFFFFFFu;

// Sum of the values of all earlier threads; `total` gets the sum of all. The caller lets a barrier
// pass before `scratch` is used again.
template <class T>
__device__ T sum_before(T value, T* scratch, T& total) {
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  T up_to = value;
#pragma unroll
  for (u32 distance = 1; distance < 32; distance *= 2) {
    T other = __shfl_up_sync(kAllLanes, up_to, distance);
    if (lane >= distance) up_to += other;
  }
  if (lane == 31) scratch[warp] = up_to;
  __syncthreads();
  T before = 0;
  total = 0;
  for (u32 w = 0; w < warps; w++) {
    if (w < warp) before += scratch[w];
    total += scratch[w];
  }
  return before + up_to - value;
}

// Sum of whole numbers of all lanes, which is below 2^57.
__device__ inline u64 warp_sum(u64 value) {
  constexpr int kLow = 27;  // bits, of which 32 lanes fit into 32
  u32 low = static_cast<u32>(value) & ((1u << kLow) - 1);
  u64 high = __reduce_add_sync(kAllLanes, static_cast<u32>(value >> kLow));
  return (high << kLow) + __reduce_add_sync(kAllLanes, low);
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
}

__device__ inline double power(double base, int exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}
