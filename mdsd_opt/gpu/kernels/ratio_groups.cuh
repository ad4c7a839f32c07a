// The groups of a row's plan for drafts with replacement: its bins, and A^K at their ends.
#pragma once
#include "prefix_bounds.cuh"
#include "row_plan.cuh"

struct RatioGroupsMemory {
  u32 p[kRatioBins + 1], q[kRatioBins + 1];  // up to the ends of bins
  u32 scratch[2][kMaxWarps];
};

// One block a row, after `ratio_tables` and `drafted_tokens`: fill in the plan but for its ratios.
__global__ void __launch_bounds__(256)
    ratio_groups(const u32* tables, const RowHead* heads, float shape, const DraftedToken* drafted,
                 int num_drafts, RowPlan* plans) {
  RatioGroupsMemory& memory = *reinterpret_cast<RatioGroupsMemory*>(shared_memory());
  long long row = blockIdx.x;
  RowPlan& plan = plans[row];
  if (heads[row].units.kind == kBadRow) {
    if (threadIdx.x == 0) plan.kind = kNoRow;
    return;
  }
  const u32* table = tables + row * (2 * kRatioBins);
  u32 p_total = sum_up(table, 0, memory.p, memory.scratch[0]);
  u32 q_total = sum_up(table + kRatioBins, 0, memory.q, memory.scratch[1]);
  int there = drafts_there(drafted + row * num_drafts, num_drafts);
  double p_unit = 1.0 / p_total, q_unit = 1.0 / q_total, odds = p_unit / q_unit;
  if (threadIdx.x == 0) {
    plan.kind = there > 0 ? kSelects : kCertain;  // without drafts, the target is what is left
    plan.num_groups = kRatioBins;
    plan.num_heavy = 0;
    plan.is_race = 0;
    plan.p_total = p_total;
    plan.p_unit = kUnitsOfWeight * p_unit;
    plan.q_unit = kUnitsOfWeight * q_unit;
    plan.most_ratio = there;
    plan.rate = plan.most = 0.0;
    plan.contained[0] = 0.0;
  }
  __syncthreads();
  RatioScale scale{{0, 0}, shape};
  for (int b = threadIdx.x; b < kRatioBins; b += blockDim.x) {
    plan.p[b] = in_mass_units((memory.p[b + 1] - memory.p[b]) * p_unit);
    plan.q[b] = (memory.q[b + 1] - memory.q[b]) * q_unit;
    plan.lowest[b] = static_cast<float>(scale.lower_edge(b) * odds);
    plan.highest[b] = static_cast<float>(scale.upper_edge(b) * odds);
    plan.contained[b + 1] = memory.q[b + 1] == q_total ? 1.0 : power(memory.q[b + 1] * q_unit, there);
    plan.group_of_bin[b] = static_cast<unsigned short>(b);
  }
}
