// Launches the kernels on the host by name, with arguments as cuLaunchKernel takes them.
#include <stdexcept>
#include <string>
#include <utility>

#include "all_kernels.cuh"

namespace {

template <class... Arguments, size_t... I>
void call(void (*kernel)(Arguments...), void** values, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<Arguments>*>(values[I])...);
}

template <class... Arguments>
std::function<void()> bound(void (*kernel)(Arguments...), void** values) {
  return [=] { call(kernel, values, std::index_sequence_for<Arguments...>{}); };
}

std::function<void()> find(const std::string& name, void** values) {
#define KERNEL(...) \
  if (name == #__VA_ARGS__) return bound(__VA_ARGS__, values);
#include "kernel_list.inc"
#undef KERNEL
  throw std::runtime_error("there is no kernel " + name);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cluster_size() { return MDSD_CLUSTER_SIZE; }

// Returns 0, or 1 with a message.
int launch(const char* name, unsigned num_blocks, unsigned block_size, unsigned blocks_per_cluster,
           size_t shared_bytes, void** values, int schedule, unsigned seed, char* message, size_t message_size) {
  cuda_host::schedule() = static_cast<cuda_host::Schedule>(schedule);
  cuda_host::random_state() = seed * 2654435761u + 1u;
  try {
    cuda_host::launch(num_blocks, block_size, blocks_per_cluster, shared_bytes, find(name, values));
    return 0;
  } catch (const std::exception& error) {
    snprintf(message, message_size, "%s", error.what());
    cuda_host::abandon();
    return 1;
  }
}

void remove_barrier(const char* site) { cuda_host::remove_barrier(site); }

// "file:line count" of every barrier met so far, one a line.
void read_barriers(char* text, size_t size) {
  std::string all;
  for (const auto& [site, count] : cuda_host::barriers_met())
    all += site + " " + std::to_string(count) + "\n";
  snprintf(text, size, "%s", all.c_str());
}
}
#pragma GCC visibility pop
