// Which draft of every row is selected, and whether it is accepted.
#pragma once
#include "collapsed_marginal.cuh"
#include "philox.cuh"

struct DraftSelectionMemory {
  PlannerMemory planner;
  DraftedToken drafted[kMaxDrafts];
  int group[kMaxDrafts];  // -1 of a draft that is missing
  int top;                // the greatest of them
  double level;
};

// The group that a draft is drawn from. In sums its own may have been rounded to nothing: then it is the
// nearest one that has mass, below it if there is one.
__device__ inline int drawn_from(const RowPlan& plan, int group) {
  int found = group;
  while (found >= 0 && plan.q[found] == 0.0) found--;
  if (found >= 0) return found;
  for (found = group; found < plan.num_groups - 1 && plan.q[found] == 0;) found++;
  return found;
}

// Drafts of one block, in draw order: which is returned, so that a token comes out in proportion to its
// q. With replacement the first one does. Without, the others take its place with the probability that
// the block would have been missed, had another of its tokens been drawn first.
__device__ inline int draft_of_block(const DraftSelectionMemory& memory, const RowPlan& plan,
                                     const Planner& planner, GroupBlock block, int num_drafts,
                                     double draw) {
  auto is_inside = [&](int i) {
    return memory.group[i] >= block.start && memory.group[i] < block.stop;
  };
  auto q = [&](int i) { return plan.q_of(memory.drafted[i].weight); };
  int first = 0;
  while (!is_inside(first)) first++;
  if (!plan.is_race) return first;
  double drafted = 0.0, above = planner.q_from(block.stop), pivotal = above, last = 0.0;
  FineSum so_far{{0, 0, 0}};
  for (int i = 0; i < num_drafts; i++) {
    if (memory.group[i] < 0) continue;
    if (i > first) pivotal *= last / (last + q(first));  // of all but the last draft from `first` on
    so_far.add(q(i));
    last = fmax(plan.q_sum[plan.num_groups].minus(so_far) * kMassUnit, above);
    if (is_inside(i)) drafted += q(i);
  }
  double share = last + q(first);
  pivotal = share > 0.0 ? pivotal / share : 0.0;
  double inside = fmax(planner.q_between(block.start, block.stop), drafted);
  double others = drafted - q(first);
  double reached = 0.0;
  int chosen = first;
  for (int i = first; i < num_drafts; i++) {
    if (!is_inside(i)) continue;
    reached += i == first ? 1.0 - pivotal * (others / inside) : pivotal * (q(i) / inside);
    chosen = i;
    if (draw < reached) break;
  }
  return chosen;
}

// One block a row, after the row's groups. `tokens` gets the selected draft, -1 if there is none; what is
// to be drawn from the residual instead is left to `residual_tokens`.
__global__ void __launch_bounds__(256, 2)
    draft_selection(RowPlan* plans, const DraftedToken* drafted, int num_drafts,
                    const double* uniforms, const u64* key, u64 seed, u64 first_row, u32 step,
                    long long* tokens) {
  DraftSelectionMemory& memory = *reinterpret_cast<DraftSelectionMemory*>(shared_memory());
  long long row = blockIdx.x;
  RowPlan& plan = plans[row];
  Draws draws(uniforms, key, seed, first_row, step);
  if (plan.kind == kNoRow) {
    if (threadIdx.x == 0) tokens[row] = -1;
    return;
  }
  if (threadIdx.x == 0) {
    memory.top = -1;
    memory.level = draws.of(row, kLevel);
  }
  Planner planner(plan, memory.planner);
  if (plan.kind != kCertain) planner.find_cut();
  if (plan.kind != kSelects) {
    for (int g = threadIdx.x; g < plan.num_groups; g += blockDim.x) plan.ratio[g] = {0.0f, 0.0f};
    if (threadIdx.x == 0) {
      plan.needs_residual = 1;
      plan.finer = 1.0f;
      tokens[row] = -1;
    }
    return;
  }
  for (int i = threadIdx.x; i < num_drafts; i += blockDim.x) {
    memory.drafted[i] = drafted[row * num_drafts + i];
    bool is_there = memory.drafted[i].token >= 0;
    memory.group[i] = is_there ? drawn_from(plan, plan.group_of(memory.drafted[i].weight)) : -1;
    atomicMax(&memory.top, memory.group[i]);
  }
  planner.collapse();
  GroupBlock block = planner.block_of(memory.top, memory.level);
  if (threadIdx.x != 0) return;
  int chosen =
      draft_of_block(memory, plan, planner, block, num_drafts, draws.of(row, kWithinBlock));
  const WeighedToken& token = memory.drafted[chosen].weight;
  Ratio ratio = plan.ratio[plan.group_of(token)];
  double selected = (static_cast<double>(ratio.high) + ratio.low) * (plan.q_of(token) / plan.q_unit);
  tokens[row] = memory.drafted[chosen].token;
  plan.needs_residual = !(draws.of(row, kTest) * selected < token.p_weight);
}
