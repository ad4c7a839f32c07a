// Rows as they are read at full speed: 16 bytes at a time, by addresses that are aligned. All other rows
// are read by `for_each_token`.
#pragma once
#include "logits.cuh"

// Tokens that a thread takes at a time: 16 bytes of the narrower type.
template <class P, class Q>
constexpr int kPack = sizeof(P) == 4 && sizeof(Q) == 4 ? 4 : 8;

// Blocks that share a processor's registers. Of 16 bits there are half as many bytes on their way for as
// many threads.
template <class P, class Q>
constexpr int kBlocksAtOnce = sizeof(P) == 2 && sizeof(Q) == 2 ? 3 : 2;

// Where a block's share may begin. What belongs to a token, such as its dither, must not depend on
// which thread takes it.
constexpr int kShareStep = 512;

__device__ __forceinline__ bool is_packed(const void* row) {
  return reinterpret_cast<u64>(row) % 16 == 0;
}

// Sixteen bytes as they come.
struct alignas(16) Words {
  u32 word[4];
};

__device__ __forceinline__ void unpack(const float* from, float (&to)[4]) {
  Words words = *reinterpret_cast<const Words*>(from);
#pragma unroll
  for (int i = 0; i < 4; i++) to[i] = __uint_as_float(words.word[i]);
}
__device__ __forceinline__ void unpack(const float* from, float (&to)[8]) {
  Words words[2] = {reinterpret_cast<const Words*>(from)[0], reinterpret_cast<const Words*>(from)[1]};
#pragma unroll
  for (int i = 0; i < 8; i++) to[i] = __uint_as_float(words[i / 4].word[i % 4]);
}
__device__ __forceinline__ void unpack(const BFloat* from, float (&to)[8]) {
  Words words = *reinterpret_cast<const Words*>(from);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[2 * i] = __uint_as_float(words.word[i] << 16);
    to[2 * i + 1] = __uint_as_float(words.word[i] & 0xFFFF0000u);
  }
}
__device__ __forceinline__ void unpack(const Half* from, float (&to)[8]) {
  Words words = *reinterpret_cast<const Words*>(from);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[2 * i] = half_to_float(static_cast<unsigned short>(words.word[i]));
    to[2 * i + 1] = half_to_float(static_cast<unsigned short>(words.word[i] >> 16));
  }
}

// Call visit_pack(token, x, y) with kPack logits of either side at a time, those of `token` and the next
// ones, at the same places modulo kShareStep for a thread every time if it has 128 fellows, and
// visit_token(token, x, y) with the row's last few; kUnroll packs are asked for at once.
template <int kUnroll, class P, class Q, class VisitPack, class VisitToken>
__device__ __forceinline__ void for_each_pack(const P* p_row, const Q* q_row, Share share,
                                              VisitPack visit_pack, VisitToken visit_token) {
  constexpr int N = kPack<P, Q>;
  const int step = MDSD_BLOCK_SIZE * N;
  int whole = share.begin + (share.end - share.begin) / N * N;
  int first = share.begin + threadIdx.x * N;
  const P* p = p_row + first;
  const Q* q = q_row + first;
  int left = whole - first;
#pragma unroll 1
  for (; left > (kUnroll - 1) * step; left -= kUnroll * step) {
    float x[kUnroll][N], y[kUnroll][N];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      unpack(p + u * step, x[u]);
      unpack(q + u * step, y[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; u++) visit_pack(whole - left + u * step, x[u], y[u]);
    p += kUnroll * step;
    q += kUnroll * step;
  }
  if (kUnroll > 1) {
#pragma unroll 1
    for (; left > 0; left -= step, p += step, q += step) {
      float x[N], y[N];
      unpack(p, x);
      unpack(q, y);
      visit_pack(whole - left, x, y);
    }
  }
  int token = whole + threadIdx.x;
  if (token < share.end) visit_token(token, number(p_row[token]), number(q_row[token]));
}
