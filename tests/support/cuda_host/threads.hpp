// The threads of a cluster as threads of the system, so that ThreadSanitizer sees every access that no
// barrier orders: not only those that some schedule of whole stretches brings out. Seconds a case.
#pragma once

#include <pthread.h>

#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "places.hpp"

namespace cuda_host {

enum class Waits { warp, block, cluster };
enum Schedule { by_the_system };

struct Barrier {
  explicit Barrier(unsigned count) { pthread_barrier_init(&barrier, nullptr, count); }
  ~Barrier() { pthread_barrier_destroy(&barrier); }
  Barrier(const Barrier&) = delete;
  pthread_barrier_t barrier;
};

struct Cluster {
  unsigned block_size = 0, num_blocks = 0, blocks_per_cluster = 1, first_block = 0;
  std::vector<std::vector<unsigned char>> shared;
  std::vector<unsigned long long> exchanged;
  std::vector<std::unique_ptr<Barrier>> warps, blocks;
  std::vector<unsigned> exited;  // threads of each block
  std::unique_ptr<Barrier> all;
};

inline Cluster& cluster() {
  static Cluster state;
  return state;
}
inline thread_local unsigned current = 0;  // number of this thread in its cluster

inline Schedule& schedule() {
  static Schedule only = by_the_system;
  return only;
}
inline unsigned& random_state() {
  static unsigned unused = 0;
  return unused;
}
inline void abandon() {}

inline unsigned block_size() { return cluster().block_size; }
inline unsigned first_block() { return cluster().first_block; }
inline unsigned num_blocks() { return cluster().num_blocks; }
inline unsigned thread_in_block() { return current % block_size(); }
inline unsigned block_in_cluster() { return current / block_size(); }
inline unsigned char* shared_of(unsigned block) { return cluster().shared[block].data(); }
inline void require_running(unsigned) {}  // what exit_thread writes shows as a race
inline unsigned long long& exchanged(int lane) { return cluster().exchanged[(current & ~31u) + lane]; }

inline void wait(Waits what, const char*, int) {
  Cluster& c = cluster();
  Barrier& barrier = what == Waits::warp    ? *c.warps[current / 32]
                     : what == Waits::block ? *c.blocks[block_in_cluster()]
                                            : *c.all;
  pthread_barrier_wait(&barrier.barrier);
}

inline void barrier(Waits what, Place& place) {  // not counted here
  if (!place.is_removed) wait(what, place.site.file, place.site.line);
}

template <class T, class Change>
T update(T* address, Change change) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, change(old), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

// A block that has exited leaves nothing to read to the others of its cluster.
inline void exit_thread() {
  Cluster& c = cluster();
  unsigned block = block_in_cluster();
  if (__atomic_add_fetch(&c.exited[block], 1, __ATOMIC_ACQ_REL) == c.block_size)
    memset(c.shared[block].data(), 0x7B, c.shared[block].size());
}

inline void launch(unsigned num_blocks, unsigned block_size, unsigned blocks_per_cluster,
                   size_t shared_bytes, std::function<void()> kernel) {
  Cluster& c = cluster();
  unsigned num_threads = block_size * blocks_per_cluster;
  c.num_blocks = num_blocks;
  c.block_size = block_size;
  c.blocks_per_cluster = blocks_per_cluster;
  c.warps.clear();
  for (unsigned w = 0; w * 32 < num_threads; w++) c.warps.emplace_back(new Barrier(32));
  c.blocks.clear();
  for (unsigned b = 0; b < blocks_per_cluster; b++) c.blocks.emplace_back(new Barrier(block_size));
  c.all.reset(new Barrier(num_threads));
  c.exchanged.assign(num_threads, 0);
  for (c.first_block = 0; c.first_block < num_blocks; c.first_block += blocks_per_cluster) {
    c.shared.assign(blocks_per_cluster, std::vector<unsigned char>(shared_bytes, 0xFF));
    c.exited.assign(blocks_per_cluster, 0);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < num_threads; i++)
      threads.emplace_back([i, &kernel] {
        current = i;
        kernel();
        exit_thread();
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace cuda_host
