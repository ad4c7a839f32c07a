// Where the token of every row is among its drafts, at the end of a decision.
#pragma once
#include "device.cuh"

// `drafts` are [num_rows, num_drafts]; `places` gets the first place of a row's token, -1 if it is
// none of its drafts. The step of `key`, unless that is null, goes up by one: nobody reads it here.
__global__ void __launch_bounds__(256)
    draft_places(const long long* drafts, int num_drafts, const long long* tokens, long long num_rows,
                 long long* places, u64* key) {
  long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (key && first == 0) key[1] = static_cast<u32>(key[1] + 1);
  for (long long row = first; row < num_rows; row += static_cast<long long>(gridDim.x) * blockDim.x) {
    long long token = tokens[row], found = -1;
    for (int i = num_drafts - 1; i >= 0; i--)
      if (token >= 0 && drafts[row * num_drafts + i] == token) found = i;
    places[row] = found;
  }
}
