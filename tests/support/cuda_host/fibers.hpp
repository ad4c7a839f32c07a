// The threads of a cluster as fibers: each runs until its next barrier, and a scheduler decides which
// one is next.
//
// What goes wrong on a device goes wrong here, too: dynamic shared memory begins as NaNs and is
// overwritten when its block exits, threads that wait at different barriers are an error, and so are
// barriers that some threads never reach.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "places.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
#include <csetjmp>
#endif

namespace cuda_host {

enum class Waits { nothing, warp, block, cluster, forever };
enum Schedule { forward, backward, random_order, first_warp_ahead, last_warp_ahead };

struct Fiber {
  ucontext_t context;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#else
  jmp_buf resume;
#endif
  bool started = false;
  std::unique_ptr<char[]> stack;
  Waits waits = Waits::nothing;
  Site site{"", 0};
  HostIndex thread{0};
  unsigned long long exchanged = 0;
};

struct Cluster {
  ucontext_t scheduler;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#else
  jmp_buf scheduler_resume;
#endif
  std::vector<Fiber> fibers;
  std::vector<std::unique_ptr<unsigned char[]>> shared;
  std::vector<bool> exited;  // blocks
  int current = -1;
  unsigned block_size = 0, num_blocks = 0, blocks_per_cluster = 1, first_block = 0;
  size_t shared_bytes = 0;
  std::function<void()> kernel;
};

// Bytes of shared memory before it is written, NaNs, and after its block has exited, huge numbers.
constexpr int kFresh = 0xFF, kGone = 0x7B;

constexpr size_t kStackBytes = 256 * 1024;

inline Cluster& cluster() {
  static Cluster state;
  return state;
}
inline Schedule& schedule() {
  static Schedule chosen = forward;
  return chosen;
}
inline unsigned& random_state() {
  static unsigned state = 1;
  return state;
}
inline unsigned next_random() {
  unsigned& x = random_state();
  x ^= x << 13, x ^= x >> 17, x ^= x << 5;
  return x;
}

inline Fiber& current() { return cluster().fibers[cluster().current]; }
inline unsigned block_in_cluster() { return cluster().current / cluster().block_size; }

#if defined(__SANITIZE_ADDRESS__)
__attribute__((noinline)) inline void enter(Fiber& fiber) {
  Cluster& c = cluster();
  void* saved = nullptr;
  __sanitizer_start_switch_fiber(&saved, fiber.stack.get(), kStackBytes);
  swapcontext(&c.scheduler, &fiber.context);
  __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
}
inline void leave() {
  Fiber& fiber = current();
  bool is_done = fiber.waits == Waits::forever;
  static const void* bottom = nullptr;
  static size_t size = 0;
  __sanitizer_start_switch_fiber(is_done ? nullptr : &fiber.fake_stack, bottom, size);
  swapcontext(&fiber.context, &cluster().scheduler);
  __sanitizer_finish_switch_fiber(current().fake_stack, &bottom, &size);
}
#else
__attribute__((noinline)) inline void enter(Fiber& fiber) {
  if (_setjmp(cluster().scheduler_resume)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}
inline void leave() {
  if (!_setjmp(current().resume)) _longjmp(cluster().scheduler_resume, 1);
}
#endif

inline void trampoline() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  cluster().kernel();
  current().waits = Waits::forever;
  leave();
}

inline void wait(Waits what, const char* file, int line) {
  current().waits = what;
  current().site = {file, line};
  leave();
}

inline void barrier(Waits what, Place& place) {
  ++place.met;
  if (!place.is_removed) wait(what, place.site.file, place.site.line);
}

// Let a group of threads go on if all that are still running wait at the same barrier.
inline bool release(int begin, int end, Waits what, const char* name) {
  Cluster& c = cluster();
  int waiting = 0, finished = 0;
  for (int i = begin; i < end; i++) {
    waiting += c.fibers[i].waits == what;
    finished += c.fibers[i].waits == Waits::forever;
  }
  if (waiting == 0 || waiting + finished < end - begin) return false;
  if (finished) throw std::runtime_error(std::string(name) + " barrier after some threads exited");
  for (int i = begin; i < end; i++) {
    if (!(c.fibers[i].site == c.fibers[begin].site))
      throw std::runtime_error("one " + std::string(name) + " waits at " +
                               c.fibers[begin].site.text() + " and " + c.fibers[i].site.text());
    c.fibers[i].waits = Waits::nothing;
  }
  return true;
}

inline bool step(int i) {
  Cluster& c = cluster();
  if (c.fibers[i].waits != Waits::nothing) return false;
  c.current = i;
  enter(c.fibers[i]);
  return true;
}

inline bool run_one_warp(int num_threads, bool from_the_end) {
  int warps = (num_threads + 31) / 32;
  for (int w = 0; w < warps; w++) {
    int first = (from_the_end ? warps - 1 - w : w) * 32;
    bool moved = false;
    for (int i = first; i < std::min(first + 32, num_threads); i++) moved |= step(i);
    if (moved) return true;
  }
  return false;
}

inline void run_cluster() {
  Cluster& c = cluster();
  int n = c.block_size * c.blocks_per_cluster;
  if (static_cast<int>(c.fibers.size()) != n) c.fibers = std::vector<Fiber>(n);
  for (int i = 0; i < n; i++) {
    Fiber& fiber = c.fibers[i];
    if (!fiber.stack) fiber.stack.reset(new char[kStackBytes]);
    fiber.waits = Waits::nothing;
    fiber.started = false;
    fiber.thread.x = i % c.block_size;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, trampoline, 0);
  }
  c.shared.clear();
  for (unsigned b = 0; b < c.blocks_per_cluster; b++) {
    c.shared.emplace_back(new unsigned char[c.shared_bytes]);
    memset(c.shared[b].get(), kFresh, c.shared_bytes);
  }
  std::vector<int> order(n);
  c.exited.assign(c.blocks_per_cluster, false);
  for (int i = 0; i < n; i++) order[i] = schedule() == backward ? n - 1 - i : i;
  for (;;) {
    bool moved = false;
    if (schedule() == first_warp_ahead || schedule() == last_warp_ahead) {
      moved = run_one_warp(n, schedule() == last_warp_ahead);
    } else {
      if (schedule() == random_order)
        for (int i = n - 1; i > 0; i--) std::swap(order[i], order[next_random() % (i + 1)]);
      for (int i : order) moved |= step(i);
    }
    bool released = false;
    for (int w = 0; w < n; w += 32)
      released |= release(w, std::min(w + 32, n), Waits::warp, "warp");
    bool all_done = true;
    for (unsigned b = 0; b < c.blocks_per_cluster; b++) {
      int begin = b * c.block_size, end = begin + c.block_size;
      released |= release(begin, end, Waits::block, "block");
      bool done = true;
      for (int i = begin; i < end; i++) done &= c.fibers[i].waits == Waits::forever;
      if (done && !c.exited[b]) memset(c.shared[b].get(), kGone, c.shared_bytes);
      c.exited[b] = done;
      all_done &= done;
    }
    if (all_done) return;
    released |= release(0, n, Waits::cluster, "cluster");
    if (!moved && !released) throw std::runtime_error("threads wait for each other forever");
  }
}

inline void launch(unsigned num_blocks, unsigned block_size, unsigned blocks_per_cluster,
                   size_t shared_bytes, std::function<void()> kernel) {
  Cluster& c = cluster();
  c.num_blocks = num_blocks;
  c.block_size = block_size;
  c.blocks_per_cluster = blocks_per_cluster;
  c.shared_bytes = shared_bytes;
  c.kernel = std::move(kernel);
  for (c.first_block = 0; c.first_block < num_blocks; c.first_block += blocks_per_cluster)
    run_cluster();
}

// After a fault: fibers that were left in the middle are never resumed.
inline void abandon() { cluster().fibers.clear(); }

// What the names of CUDA are made of, see cuda_host.hpp.
inline unsigned thread_in_block() { return current().thread.x; }
inline unsigned block_size() { return cluster().block_size; }
inline unsigned first_block() { return cluster().first_block; }
inline unsigned num_blocks() { return cluster().num_blocks; }
inline unsigned char* shared_of(unsigned block) { return cluster().shared[block].get(); }
inline void require_running(unsigned block) {
  if (!cluster().exited[block]) return;
  fprintf(stderr, "a block's shared memory is asked for when it has exited\n");
  abort();
}
// Eight bytes that the other threads of a warp can read, by lane.
inline unsigned long long& exchanged(int lane) {
  return cluster().fibers[(cluster().current & ~31) + lane].exchanged;
}
template <class T, class Change>
T update(T* address, Change change) {
  T old = *address;
  *address = change(old);
  return old;
}

}  // namespace cuda_host
