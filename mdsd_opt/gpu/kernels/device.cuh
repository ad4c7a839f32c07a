// What differs between a device and the host emulation of the tests, and the stored types.
#pragma once

// Blocks of a cluster share one row. A pair of rows is then small enough, for all rows in flight
// together, to stay in the second-level cache between two passes.
#ifndef MDSD_CLUSTER_SIZE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MDSD_CLUSTER_SIZE 1
#else
#define MDSD_CLUSTER_SIZE 8
#endif
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef MDSD_HOST

#define MDSD_CLUSTER

#else

extern __shared__ __align__(16) unsigned char mdsd_shared_memory[];

__device__ inline unsigned char* shared_memory() { return mdsd_shared_memory; }

__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ inline float half_to_float(unsigned short bits) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
  return result;
}

#if MDSD_CLUSTER_SIZE > 1

#define MDSD_CLUSTER __cluster_dims__(MDSD_CLUSTER_SIZE, 1, 1)

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ inline u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The same place in the shared memory of another block of the cluster.
template <class T>
__device__ inline T* in_block(T* mine, u32 rank) {
  u64 address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(reinterpret_cast<u64>(mine)), "r"(rank));
  return reinterpret_cast<T*>(address);
}

#else

#define MDSD_CLUSTER

__device__ inline void cluster_sync() { __syncthreads(); }
__device__ inline u32 cluster_rank() { return 0; }
template <class T>
__device__ inline T* in_block(T* mine, u32) {
  return mine;
}

#endif
#endif  // MDSD_HOST

// float16 and bfloat16 as stored.
struct Half {
  unsigned short bits;
};
struct BFloat {
  unsigned short bits;
};

__device__ __forceinline__ float number(float stored) { return stored; }
__device__ __forceinline__ float number(Half stored) { return half_to_float(stored.bits); }
__device__ __forceinline__ float number(BFloat stored) {
  return __uint_as_float(static_cast<u32>(stored.bits) << 16);
}

// Four stored numbers, read at once where the address allows it.
constexpr int kGroup = 4;

template <class T>
struct alignas(kGroup * sizeof(T)) Group {
  T item[kGroup];
};

template <class T>
__device__ __forceinline__ bool is_aligned(const T* address) {
  return reinterpret_cast<u64>(address) % sizeof(Group<T>) == 0;
}

template <class T>
__device__ __forceinline__ Group<T> read_group(const T* address, bool aligned) {
  if (aligned) return *reinterpret_cast<const Group<T>*>(address);
  Group<T> group;
#pragma unroll
  for (int i = 0; i < kGroup; i++) group.item[i] = address[i];
  return group;
}

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7F800000u); }
