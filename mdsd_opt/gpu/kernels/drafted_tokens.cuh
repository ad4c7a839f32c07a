// What the drafts of every row weigh, and where they are in the order of p/q.
#pragma once
#include "row_plan.cuh"

// One block a row, after the row's table. `drafts` and `drafted` are [rows of this launch, num_drafts].
template <class P, class Q>
__global__ void __launch_bounds__(256)
    drafted_tokens(const P* target, long long target_outer, long long target_inner, const Q* draft,
                   long long draft_outer, long long draft_inner, long long inner, int vocab_size,
                   float target_high, float target_low, const Filter* target_filters,
                   float draft_high, float draft_low, const Filter* draft_filters,
                   long long first_row, float shape, const void* heads, int is_race,
                   const long long* drafts, int num_drafts, DraftedToken* drafted) {
  long long item = blockIdx.x, row = first_row + item;
  const RowUnits& units = units_in(heads, is_race, item);
  Logits<P> p = logits_of(Rows<P>{target, target_outer, target_inner}, row, inner,
                          {target_high, target_low, target_filters});
  Logits<Q> q = logits_of(Rows<Q>{draft, draft_outer, draft_inner}, row, inner,
                          {draft_high, draft_low, draft_filters});
  for (int i = threadIdx.x; i < num_drafts; i += blockDim.x) {
    long long given = drafts[item * num_drafts + i];
    DraftedToken found{-1, {0.0f, 0.0f, 0.0f, 0.0f, 0.0f}};
    if (units.kind != kBadRow && given >= 0 && given < vocab_size) {
      int token = static_cast<int>(given);
      found.weight = weighed(p, q, units, token, number(p.row[token]), number(q.row[token]), shape);
      if (found.weight.q_weight > 0.0f) found.token = token;
    }
    drafted[item * num_drafts + i] = found;
  }
}
