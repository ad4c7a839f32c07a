// The names of CUDA on the host. Force-included before the kernel sources, which are the ones that run
// on a device. Threads are fibers under a chosen schedule (fibers.hpp), or, with CUDA_HOST_THREADS,
// threads of the system that ThreadSanitizer can watch (threads.hpp).
//
// What neither can show: the device's memory model, flush-to-zero, its exp2, limits of registers and
// shared memory, and speed.
#pragma once
#define MDSD_HOST 1

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct HostIndex {
  unsigned x;
};

using std::max;
using std::min;

#if defined(CUDA_HOST_THREADS)
#include "threads.hpp"
#else
#include "fibers.hpp"
#endif

#define threadIdx (HostIndex{cuda_host::thread_in_block()})
#define blockIdx (HostIndex{cuda_host::first_block() + cuda_host::block_in_cluster()})
#define blockDim (HostIndex{cuda_host::block_size()})
#define gridDim (HostIndex{cuda_host::num_blocks()})
#define CUDA_HOST_BARRIER(what)                    \
  do {                                             \
    static cuda_host::Place here(__FILE__, __LINE__); \
    cuda_host::barrier(what, here);                \
  } while (false)
#define __syncthreads() CUDA_HOST_BARRIER(cuda_host::Waits::block)
#define cluster_sync() CUDA_HOST_BARRIER(cuda_host::Waits::cluster)
#define __syncwarp() cuda_host::wait(cuda_host::Waits::warp, __FILE__, __LINE__)

namespace cuda_host {

inline int lane() { return static_cast<int>(thread_in_block() & 31); }

template <class T>
T shuffle(T value, int source, const char* file, int line) {
  static_assert(sizeof(T) <= 8, "shuffles move up to eight bytes");
  memcpy(&exchanged(lane()), &value, sizeof(T));
  wait(Waits::warp, file, line);
  T result = value;
  if (source >= 0 && source < 32) memcpy(&result, &exchanged(source), sizeof(T));
  wait(Waits::warp, file, line);
  return result;
}

}  // namespace cuda_host

#define __shfl_xor_sync(mask, value, lanes) \
  cuda_host::shuffle((value), cuda_host::lane() ^ static_cast<int>(lanes), __FILE__, __LINE__)
#define __shfl_up_sync(mask, value, lanes) \
  cuda_host::shuffle((value), cuda_host::lane() - static_cast<int>(lanes), __FILE__, __LINE__)

template <class T>
T atomicAdd(T* address, T value) {
  return cuda_host::update(address, [=](T old) { return old + value; });
}
template <class T>
T atomicMax(T* address, T value) {
  return cuda_host::update(address, [=](T old) { return max(old, value); });
}
template <class T>
T atomicMin(T* address, T value) {
  return cuda_host::update(address, [=](T old) { return min(old, value); });
}
template <class T>
T atomicOr(T* address, T value) {
  return cuda_host::update(address, [=](T old) { return old | value; });
}

template <class To, class From>
To cuda_host_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}
inline unsigned __float_as_uint(float x) { return cuda_host_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return cuda_host_bits<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_host_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_host_bits<double>(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline unsigned long long __float2ull_rn(float x) {
  return static_cast<unsigned long long>(std::nearbyint(x));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}

// What device.cuh declares for a device.
inline unsigned char* shared_memory() { return cuda_host::shared_of(cuda_host::block_in_cluster()); }
inline void cluster_arrive() {}
inline void cluster_wait() { cuda_host::wait(cuda_host::Waits::cluster, __FILE__, __LINE__); }
inline unsigned cluster_rank() { return cuda_host::block_in_cluster(); }
template <class T>
T* in_block(T* mine, unsigned rank) {
  cuda_host::require_running(rank);
  auto offset = reinterpret_cast<const unsigned char*>(mine) - shared_memory();
  return reinterpret_cast<T*>(cuda_host::shared_of(rank) + offset);
}
inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_reciprocal(float x) { return 1.0f / x; }
inline float clamped_product(float a, float b) {
  float x = a * b;
  return x > 0.0f ? std::min(x, 1.0f) : 0.0f;
}
inline float larger_or_nan(float a, float b) { return a != a || b != b ? NAN : std::max(a, b); }
inline unsigned rounded_down(float x) {
  return x >= 4294967296.0f ? 4294967295u : x > 0.0f ? static_cast<unsigned>(x) : 0u;
}
inline unsigned next_of(unsigned* counter) { return atomicAdd(counter, 1u); }
class SharedWord {
 public:
  explicit SharedWord(unsigned* word) : word_(word) {}
  template <int kStride, int kOffset>
  void add(unsigned index, unsigned value) const {
    atomicAdd(word_ + (index - first_) * kStride + kOffset, value);
  }
  SharedWord with_first(unsigned first, unsigned) const {
    SharedWord moved = *this;
    moved.first_ = first;
    return moved;
  }

 private:
  unsigned* word_;
  unsigned first_ = 0;
};
inline float half_to_float(unsigned short bits) {
  unsigned exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                                   : std::ldexp(static_cast<float>(exponent ? 1024 + fraction : fraction),
                                                static_cast<int>(exponent ? exponent : 1) - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}
