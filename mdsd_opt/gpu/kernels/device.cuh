// What is not plain C++: instructions, clusters, and the stored types.
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

// Threads of a block of a cluster, known to the compiler; the launcher sets it.
#ifndef MDSD_BLOCK_SIZE
#define MDSD_BLOCK_SIZE 512
#endif

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

__device__ __forceinline__ float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The product, clamped to [0, 1]; NaN, as of zero times infinity, to 0.
__device__ __forceinline__ float clamped_product(float a, float b) {
  float result;
  asm("mul.rn.ftz.sat.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// NaN if either is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
  float result;
  asm("max.NaN.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ u32 rounded_down(float x) {
  u32 result;
  asm("cvt.rzi.ftz.u32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
}

// The same of numbers up to 2^24, by a product of which the bits are the integer, as numbers below the
// normal ones have none of an exponent: conversions take four times as long.
__device__ __forceinline__ u32 rounded_down_small(float x) {
  float result;
  asm("mul.rz.f32 %0, %1, 0f00000001;" : "=f"(result) : "f"(x));
  return __float_as_uint(result);
}

// The next number of a counter in global memory. By increments: of additions the compiler would gather
// the lanes' requests first, at length, where there is next to never more than one.
__device__ __forceinline__ u32 next_of(u32* counter) {
  u32 place;
  asm volatile("atom.global.inc.u32 %0, [%1], 0x7FFFFFFF;" : "=r"(place) : "l"(counter) : "memory");
  return place;
}

// A word of shared memory to which numbers are added without asking for the sum, which is one
// instruction.
class SharedWord {
 public:
  __device__ __forceinline__ explicit SharedWord(u32* word)
      : address_(static_cast<u32>(__cvta_generic_to_shared(word))) {}

  // The word kStride * index + kOffset words further on; only the low bits of the index count, so
  // that it may carry the exponent of a float.
  template <int kStride, int kOffset>
  __device__ __forceinline__ void add(u32 index, u32 value) const {
    asm volatile("red.shared.add.u32 [%0 + %2], %1;"
                 :: "r"(index * (kStride * 4) + address_), "r"(value), "n"(kOffset * 4) : "memory");
  }

  // Let indices begin at `first`.
  __device__ __forceinline__ SharedWord with_first(u32 first, u32 stride) const {
    SharedWord moved = *this;
    moved.address_ -= first * stride * 4;
    asm("" : "+r"(moved.address_));  // kept, instead of being taken off each index
    return moved;
  }

 private:
  u32 address_;
};

#if MDSD_CLUSTER_SIZE > 1

#define MDSD_CLUSTER __cluster_dims__(MDSD_CLUSTER_SIZE, 1, 1)

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Once all blocks of a cluster have arrived, all of them run, and their shared memory is there.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

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
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() {}
__device__ inline u32 cluster_rank() { return 0; }
template <class T>
__device__ inline T* in_block(T* mine, u32) {
  return mine;
}

#endif

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
