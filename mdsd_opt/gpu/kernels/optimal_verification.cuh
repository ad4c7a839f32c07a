// One decision of a verifier for K drafts with replacement: exactly lossless, and optimal but for
// the width of a bin (see collapsed_marginal.cuh).
#pragma once
#include "cluster_sum.cuh"
#include "collapsed_marginal.cuh"
#include "philox.cuh"
#include "row_maximum.cuh"

constexpr int kMaxDrafts = 64;

// Units of residual mass: a row sums to at most 2^60.
constexpr double kResidualUnits = 1152921504606846976.0;

// The random numbers of a row, in this order.
enum Stream { kLevel, kWithinBlock, kTest, kResidual, kNumStreams };

struct Decision {
  long long token;
  int needs_residual;
  Totals totals;
  double most;  // no lossless rule accepts more often
};

struct OptimalVerificationMemory {
  union {  // the curves take the histogram's place when it has been gathered
    Histogram histogram;
    Curves curves;
  };
  u64 p_prefix[kBins], q_prefix[kBins];
  ReduceScratch reduce;
  MaximaScratch maxima;
  int draft_bins[kMaxDrafts];
  u64 residuals[2][kMaxWarps], residual_of_block;
  Decision decision;
};

template <class P, class Q>
struct Decider {
  const Side<P>& p;
  const Side<Q>& q;
  Grid grid;
  int bits;

  __device__ int bin(int token) const {
    return key_of(p.exponent(token, number(p.row[token])), q.exponent(token, number(q.row[token])),
                  grid) >>
           kBinShift;
  }
  __device__ double p_weight(int token) const {
    return static_cast<double>(weight(p.exponent(token, number(p.row[token])), bits));
  }
  __device__ double q_weight(int token) const {
    return static_cast<double>(weight(q.exponent(token, number(q.row[token])), bits));
  }

  // Residual mass of a token in units.
  __device__ __forceinline__ u64 residual(int token, float p_logit, float q_logit, Totals totals,
                                          const double* ratios) const {
    Exponent p_exponent = p.exponent(token, p_logit), q_exponent = q.exponent(token, q_logit);
    double p_i = static_cast<double>(weight(p_exponent, bits)) / totals.p;
    double q_i = static_cast<double>(weight(q_exponent, bits)) / totals.q;
    double rest = p_i - ratios[key_of(p_exponent, q_exponent, grid) >> kBinShift] * q_i;
    return rest > 0.0 ? in_units(rest * kResidualUnits) : 0;
  }
};

// Block 0: select a draft and accept it, or ask for a residual. A draft that is missing, or that q
// cannot have drawn, counts for nothing: the rule is that for as many drafts as there are.
template <class P, class Q>
__device__ void decide(OptimalVerificationMemory& memory, const Decider<P, Q>& decider,
                       const long long* drafts, int num_drafts, int vocab_size, double level,
                       double test) {
  Reduce reduce(memory.reduce);
  Totals totals = prefix_masses(memory.p_prefix, memory.q_prefix, memory.reduce);
  for (int i = threadIdx.x; i < num_drafts; i += blockDim.x) {
    long long token = drafts[i];
    bool is_possible = token >= 0 && token < vocab_size &&
                       decider.q_weight(static_cast<int>(token)) > 0.0;
    memory.draft_bins[i] = is_possible ? decider.bin(static_cast<int>(token)) : -1;
  }
  __syncthreads();
  int k = 0, top = -1;
  for (int i = 0; i < num_drafts; i++) {
    k += memory.draft_bins[i] >= 0;
    top = max(top, memory.draft_bins[i]);
  }
  if (k == 0) {  // nothing is selected, and the target itself is what is left
    for (int b = threadIdx.x; b < kBins; b += blockDim.x) memory.curves.ratio[b] = 0.0;
    if (threadIdx.x == 0) memory.decision = {-1, 1, totals, 0.0};
    return;
  }
  double most = collapse(memory.p_prefix, memory.q_prefix, totals, decider.grid, k, reduce,
                         memory.curves);
  BinBlock block = block_of(top, level, k, reduce, memory.curves);
  if (threadIdx.x != 0) return;
  memory.decision = {-1, 1, totals, most};
  for (int i = 0; i < num_drafts; i++) {
    int bin = memory.draft_bins[i];
    if (bin < block.start || bin >= block.stop) continue;
    int token = static_cast<int>(drafts[i]);
    double p_i = decider.p_weight(token) / totals.p, q_i = decider.q_weight(token) / totals.q;
    memory.decision.token = token;
    memory.decision.needs_residual = !(test * memory.curves.ratio[bin] * q_i < p_i);
    break;
  }
}

// Units of residual mass in the blocks before this one, in it, and in all.
struct ResidualMass {
  u64 before, of_block, all;
};

// All blocks: add up (p - p_I)+.
template <class P, class Q>
__device__ ResidualMass residual_mass(OptimalVerificationMemory& memory,
                                      const Decider<P, Q>& decider, Share share, Totals totals) {
  double* ratios = memory.curves.ratio;
  if (cluster_rank() != 0) {
    const double* first = in_block(ratios, 0);
    for (int b = threadIdx.x; b < kBins; b += blockDim.x) ratios[b] = first[b];
    __syncthreads();
  }
  u64 mine = 0;
  for_each_token(decider.p.row, decider.q.row, share, [&](int token, float p_logit, float q_logit) {
    mine += decider.residual(token, p_logit, q_logit, totals, ratios);
  });
  ResidualMass mass{0, 0, 0};
  sum_before(mine, memory.residuals[0], mass.of_block);
  if (threadIdx.x == 0) memory.residual_of_block = mass.of_block;
  cluster_sync();
  for (u32 rank = 0; rank < MDSD_CLUSTER_SIZE; rank++) {
    u64 other = *in_block(&memory.residual_of_block, rank);
    if (rank < cluster_rank()) mass.before += other;
    mass.all += other;
  }
  return mass;
}

constexpr int kElsewhere = -1;

// All blocks: draw a token from the residual, tokens in order of their ids. One thread gets it.
template <class P, class Q>
__device__ int draw_residual(OptimalVerificationMemory& memory, const Decider<P, Q>& decider,
                             Share share, Totals totals, ResidualMass mass, double draw) {
  const double* ratios = memory.curves.ratio;
  u64 wanted = min(static_cast<u64>(draw * static_cast<double>(mass.all)), mass.all - 1);
  if (wanted < mass.before || wanted - mass.before >= mass.of_block) return kElsewhere;
  wanted -= mass.before;

  // Here it is: each thread takes a stretch of tokens.
  int each = (share.end - share.begin + blockDim.x - 1) / blockDim.x;
  int begin = min(share.begin + static_cast<int>(threadIdx.x) * each, share.end);
  int end = min(begin + each, share.end);
  auto residual = [&](int token) {
    return decider.residual(token, number(decider.p.row[token]), number(decider.q.row[token]),
                            totals, ratios);
  };
  u64 mine = 0, of_block;
  for (int token = begin; token < end; token++) mine += residual(token);
  u64 sum = sum_before(mine, memory.residuals[1], of_block);
  if (wanted < sum || wanted - sum >= mine) return kElsewhere;
  for (int token = begin; token < end; token++) {
    sum += residual(token);
    if (wanted < sum) return token;
  }
  return kElsewhere;
}

// One cluster a row; see `with_replacement` for the arguments. `drafts` is [num_rows, num_drafts],
// -1 where there is none. Random numbers come from `uniforms`, [num_rows, kNumStreams], or where that
// is null from Philox with the number of the row, beginning with `first_row`. `tokens` gets the
// output, -1 for a row that is no distribution. `rates` and `gaps`, unless they are null, get the
// probability that the selected draft is accepted, and how much higher the optimum is at most.
template <class P, class Q>
__global__ void MDSD_CLUSTER __launch_bounds__(512, 2)
    optimal_verification(const P* target, long long target_outer, long long target_inner,
                         const Q* draft, long long draft_outer, long long draft_inner,
                         long long inner, int vocab_size, float target_high,
                         float target_low, const Filter* target_filters, float draft_high,
                         float draft_low, const Filter* draft_filters, int bits, float slope, float offset,
                         const long long* drafts, int num_drafts, const double* uniforms, u64 seed,
                         u64 first_row, u32 step, long long* tokens, int* is_bad, double* rates,
                         double* gaps) {
  OptimalVerificationMemory& memory =
      *reinterpret_cast<OptimalVerificationMemory*>(shared_memory());
  long long row = blockIdx.x / MDSD_CLUSTER_SIZE;
  const P* p_row = Rows<P>{target, target_outer, target_inner}.row(row, inner);
  const Q* q_row = Rows<Q>{draft, draft_outer, draft_inner}.row(row, inner);
  Share share = share_of_block(vocab_size);
  bool is_first = cluster_rank() == 0;
  auto draw = [&](int stream) {
    return uniforms ? uniforms[row * kNumStreams + stream] : uniform(seed, first_row + row, step, stream);
  };

  Maxima maxima = row_maxima(p_row, q_row, share, memory.maxima);
  if (is_first && threadIdx.x == 0) {
    is_bad[row] = maxima.is_bad;
    if (maxima.is_bad) tokens[row] = -1;
  }
  if (!maxima.is_bad) {
    Side<P> p = make_side(p_row, {target_high, target_low, target_filters}, row, maxima.target);
    Side<Q> q = make_side(q_row, {draft_high, draft_low, draft_filters}, row, maxima.draft);
    Decider<P, Q> decider{p, q, {slope, offset}, bits};
    clear(memory.histogram);
    __syncthreads();
    accumulate(p, q, share, decider.grid, bits, memory.histogram);
    cluster_sync();
    gather(memory.histogram, memory.p_prefix, memory.q_prefix);
    cluster_sync();
    if (is_first)
      decide(memory, decider, drafts + row * num_drafts, num_drafts, vocab_size, draw(kLevel),
             draw(kTest));
    cluster_sync();
    Decision decision = *in_block(&memory.decision, 0);
    bool is_decided = false;
    if (decision.needs_residual || rates) {
      ResidualMass mass = residual_mass(memory, decider, share, decision.totals);
      if (rates && is_first && threadIdx.x == 0) {
        double rate = fmax(1.0 - static_cast<double>(mass.all) / kResidualUnits, 0.0);
        rates[row] = rate;
        gaps[row] = fmax(decision.most - rate, 0.0);
      }
      if (decision.needs_residual && mass.all > 0) {  // else only rounding failed the test
        int token =
            draw_residual(memory, decider, share, decision.totals, mass, draw(kResidual));
        if (token >= 0) tokens[row] = token;
        is_decided = true;
      }
    }
    if (!is_decided && is_first && threadIdx.x == 0) tokens[row] = decision.token;
  }
  cluster_sync();  // shared memory goes with its block, and others may still be reading it
}
