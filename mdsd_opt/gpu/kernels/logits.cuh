// Rows of logits and what every token weighs.
//
// In base 2: with y = logit log2(e) / T, a token's weight is 2^(y - M) for an integer M next to the
// largest y, as a whole number of units of 2^-bits. Sums of such integers do not depend on their
// order, so that every result is the same bit for bit, run after run.
//
// y is kept as an integer and a fraction of [-1/2, 1/2]: the weight is as accurate as exp2 is, far
// below the largest token, too. The arithmetic is spelled out so that no compiler contracts it in
// one place and not in another: a token must fall into the same bin in every pass.
#pragma once
#include "device.cuh"

// Exponents this far below the largest weigh nothing; logits are clamped there.
constexpr float kLowest = 200.0f;

// Adding it to a float rounds to an integer, which is then in the lowest bits.
constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23
constexpr u32 kToIntegerBits = 0x4B400000u;

// Beyond this an exponent is counted from the row's largest logit, as the float's bits run out.
constexpr float kLargestExponent = 1048576.0f;

// Where the rows of one side are: row r begins (r / inner) * outer_stride + (r % inner) *
// inner_stride elements after `first`.
template <class T>
struct Rows {
  const T* first;
  long long outer_stride, inner_stride;

  __device__ const T* row(long long r, long long inner) const {
    return first + (r / inner) * outer_stride + (r % inner) * inner_stride;
  }
};

// What takes part in a row: the tokens whose logit is at least `threshold`, and the token `only` unless
// that is negative; that one alone where the threshold is infinity.
struct Filter {
  float threshold;
  int only;

  __device__ __forceinline__ bool leaves_out(int token, float logit) const {
    return logit < threshold && token != only;
  }
};

// log2(e) / T = high + low, and a filter for each row unless `filters` is null.
struct Sampling {
  float high, low;
  const Filter* filters;
};

struct Exponent {
  float whole, part;
};

template <class T>
struct Side {
  const T* row;
  float high, low, base, floor, shift;
  Filter filter;

  __device__ __forceinline__ Exponent exponent(int token, float logit) const {
    logit = filter.leaves_out(token, logit) ? floor : fmaxf(logit, floor);
    float x = __fsub_rn(logit, base);
    float y = __fmul_rn(x, high);
    float rest = __fmaf_rn(x, high, -y);
    rest = __fmaf_rn(x, low, rest);
    float whole = __fsub_rn(__fadd_rn(y, kToInteger), kToInteger);
    return {__fsub_rn(whole, shift), __fadd_rn(__fsub_rn(y, whole), rest)};
  }
};

template <class T>
__device__ Side<T> make_side(const T* row, Sampling sampling, long long row_number, float largest) {
  Side<T> side{row, sampling.high, sampling.low, 0.0f, 0.0f, 0.0f, {-infinity(), -1}};
  side.floor = fmaxf(__fsub_rn(largest, kLowest / sampling.high), -3e38f);
  if (!(fabsf(__fmul_rn(largest, sampling.high)) < kLargestExponent)) side.base = largest;
  side.shift = side.exponent(0, largest).whole;
  if (sampling.filters) side.filter = sampling.filters[row_number];
  return side;
}

// The weight in units of 2^-bits.
__device__ __forceinline__ u64 weight(Exponent exponent, int bits) {
  float power = fast_exp2(exponent.part);
  u32 whole = __float_as_uint(__fadd_rn(exponent.whole, kToInteger)) - kToIntegerBits;
  int biased = static_cast<int>(whole) + bits + 127;
  if (biased < 1) return 0;
  float scaled = __fmul_rn(power, __uint_as_float(static_cast<u32>(biased) << 23));
  if (scaled < 4294967040.0f) return __float2uint_rn(scaled);
  return __float2ull_rn(scaled);
}

// The tokens begin .. end, a block's share of the row; begin is a multiple of the step.
struct Share {
  int begin, end;
};

__device__ inline Share share_of_block(int vocab_size, int step = kGroup) {
  int steps = (vocab_size + step - 1) / step;
  int size = (steps + MDSD_CLUSTER_SIZE - 1) / MDSD_CLUSTER_SIZE * step;
  int begin = min(static_cast<int>(cluster_rank()) * size, vocab_size);
  return {begin, min(begin + size, vocab_size)};
}

// Call visit(token, target_logit, draft_logit) for every token of a share, each by one thread.
template <class P, class Q, class Visit>
__device__ __forceinline__ void for_each_token(const P* p, const Q* q, Share share, Visit visit) {
  bool p_aligned = is_aligned(p), q_aligned = is_aligned(q);
  int step = blockDim.x * kGroup;
  int whole = share.begin + (share.end - share.begin) / kGroup * kGroup;
  int i = share.begin + threadIdx.x * kGroup;
  Group<P> p_next{};
  Group<Q> q_next{};
  if (i < whole) {
    p_next = read_group(p + i, p_aligned);
    q_next = read_group(q + i, q_aligned);
  }
  for (; i < whole; i += step) {
    Group<P> p_now = p_next;
    Group<Q> q_now = q_next;
    if (i + step < whole) {  // on its way while these are worked on
      p_next = read_group(p + i + step, p_aligned);
      q_next = read_group(q + i + step, q_aligned);
    }
#pragma unroll
    for (int j = 0; j < kGroup; j++) visit(i + j, number(p_now.item[j]), number(q_now.item[j]));
  }
  for (int token = whole + threadIdx.x; token < share.end; token += blockDim.x)
    visit(token, number(p[token]), number(q[token]));
}
