// Cooperation of the threads of a block, and of the blocks of a cluster.
#pragma once
#include "device.cuh"

constexpr int kMaxWarps = 32;
constexpr u32 kAllLanes = 0xFFFFFFFFu;

// Sum of whole numbers of all lanes, in pieces of which 32 fit into 32 bits. Two are enough for a sum that is
// below 2^59.
template <int kPieces>
__device__ __forceinline__ u64 warp_sum(u64 value) {
  constexpr int kBits = 27;
  u64 sum = 0;
#pragma unroll
  for (int i = 0; i < kPieces; i++) {
    u32 piece = static_cast<u32>(value >> (i * kBits));
    if (i < kPieces - 1) piece &= (1u << kBits) - 1;
    sum += static_cast<u64>(__reduce_add_sync(kAllLanes, piece)) << (i * kBits);
  }
  return sum;
}
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  if (sizeof(T) == 8) return warp_sum<3>(value);
  return __reduce_add_sync(kAllLanes, static_cast<u32>(value));
}

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
  T of_warp = lane < warps ? scratch[lane] : 0;
  total = warp_sum(of_warp);
  return warp_sum(lane < warp ? of_warp : 0) + up_to - value;
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
