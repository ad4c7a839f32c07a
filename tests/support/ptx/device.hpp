// A device for kernels that `translation.py` has made C++ of: the threads of a cluster are fibers, each of
// which runs until it has to wait for others, and a schedule decides which warp is next.
//
// Every access is checked: whether it lies in a buffer of the launch or in shared memory, is aligned,
// reads what was written and nothing between rows, and is ordered by barriers with all others of the
// same word; and that no block reaches into another one before that has begun, or after its end. What
// waits in vain, or with others than it says, is a fault, too.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

// ---- What a launch is; `runtime.py` has the same structures.

// When a thread did something, in numbers of the barriers it had passed that order memory.
struct Moment {
  u32 thread, of_warp, of_block, of_cluster;
};
// The last write of a word and the last read, and the bytes concerned.
struct Word {
  Moment write, read;
  u8 written, read_bytes, is_atomic, has_other_readers;
};
enum : u8 { kReadable = 1, kWritten = 2 };  // of a byte of memory
struct Range {
  u64 begin, end;
  u8* bytes;    // what may be done with them
  Word* words;  // null for what nobody may write
};
struct Fault {
  char kind[48], text[112];
  u32 line, count;
};
enum Schedule : u32 { kForward, kBackward, kRandom };
struct Launch {
  u32 grid, block, cluster, shared_bytes;
  const u8* parameters;
  Range* ranges;
  u32 num_ranges;
  u32 schedule, seed;
  u32 rounding;  // approximate functions err by as much as on a device, in ways that differ with it
  Fault* faults;
  u32 max_faults, num_faults;
  u64* counts;        // of stretches without a jump
  u64 most;           // of each of them
  const u8* changed;  // lines of which the barrier is left out or the access is moved
  s64 moved_by;
};

enum class State : u8 { runs, at_warp, at_block, at_cluster, done };
struct Block;
struct Thread {
  jmp_buf resume;
  State state;
  bool has_begun, orders_memory, is_in_range;
  u32 number, thread, lane, site;  // in the grid, in the block and in the warp; where it waits
  Block* block;
  Thread* warp;
  Moment now;
  u32 clusters_met, clusters_arrived;
  u32 mask, mode, value, lanes, bounds, received;  // of an exchange
};
struct Block {
  u32 rank, number, live;
  std::vector<u8> memory, bytes;
  std::vector<Word> words;
};

static Launch* launch;
static std::vector<Thread> threads;
static std::vector<Block> blocks;
static std::vector<u8> stacks;
static Thread* current;
static jmp_buf scheduler;
static u32 num_told;  // faults of a launch, which so many stop
constexpr u32 kMostTold = 10000;
constexpr u32 kWarp = 32;
constexpr size_t kStackBytes = 32 << 10;
constexpr u32 kSharedBase = 1024;            // address of dynamic shared memory
constexpr u64 kGeneric = 1ull << 56;         // generic addresses of shared memory
constexpr u32 kOwn = 255;                    // in place of a rank: of the block that asks
constexpr u8 kNonsense = 0xA5;

__attribute__((noinline, cold)) static void fault(const char* kind, u32 line, u64 where = 0) {
  num_told++;
  for (u32 i = 0; i < launch->num_faults; i++) {
    Fault& known = launch->faults[i];
    if (known.line == line && !strcmp(known.kind, kind)) return void(known.count++);
  }
  if (launch->num_faults == launch->max_faults) return;
  Fault& found = launch->faults[launch->num_faults++];
  snprintf(found.kind, sizeof found.kind, "%s", kind);
  snprintf(found.text, sizeof found.text, "thread %u of block %u, at %llu", current->thread,
           current->block->number, static_cast<unsigned long long>(where));
  found.line = line;
  found.count = 1;
}

static void leave();
static inline void begin_stretch(u32 number, u32 line) {
  if (++launch->counts[number] < launch->most) return;
  fault("runs on and on", line);
  num_told = kMostTold;
  leave();
}

// ---- Races: two accesses of a word, one of them a write, that no barrier orders.

static bool is_before_now(const Moment& then) {
  const Moment& now = current->now;
  if (then.thread == now.thread) return true;
  u32 cluster = launch->block * launch->cluster;
  if (then.thread / cluster != now.thread / cluster) return false;
  if (then.of_cluster < now.of_cluster) return true;
  if (then.thread / launch->block != now.thread / launch->block) return false;
  if (then.of_block < now.of_block) return true;
  return then.thread / kWarp == now.thread / kWarp && then.of_warp < now.of_warp;
}
static void note_read(Word& word, u8 bytes, u32 line, u64 where) {
  if (word.written & bytes && !is_before_now(word.write)) fault("race: read of a write", line, where);
  bool is_first = !word.read_bytes || is_before_now(word.read);
  bool is_again = word.read_bytes && word.read.thread == current->now.thread;
  word.has_other_readers = !is_first || (is_again && word.has_other_readers);
  word.read_bytes = is_first && !is_again ? bytes : word.read_bytes | bytes;
  word.read = current->now;
}
static void note_write(Word& word, u8 bytes, bool is_atomic, u32 line, u64 where) {
  bool both_atomic = is_atomic && word.is_atomic;
  if (word.written & bytes && !both_atomic && !is_before_now(word.write))
    fault("race: write of a write", line, where);
  bool others_read = word.has_other_readers && word.read.of_block == current->now.of_block &&
                     word.read.of_cluster == current->now.of_cluster &&
                     word.read.of_warp == current->now.of_warp;
  if (word.read_bytes & bytes && (others_read || !is_before_now(word.read)))
    fault("race: write of a read", line, where);
  word.written = bytes;
  word.is_atomic = is_atomic;
  word.write = current->now;
}

// ---- Memory.

enum Access { kLoad, kStore, kAtomic };

template <int kBytes>
static void note(Word* words, u64 offset, Access access, u32 line) {
  for (u64 word = offset / 4; word * 4 < offset + kBytes; word++) {
    u8 bytes = kBytes >= 4 ? 15 : ((1 << kBytes) - 1) << offset % 4;
    if (access == kLoad)
      note_read(words[word], bytes, line, offset);
    else
      note_write(words[word], bytes, access == kAtomic, line, offset);
  }
}
__attribute__((noinline)) static void leave() {
  if (!_setjmp(current->resume)) _longjmp(scheduler, 1);
}
// What is accessed where nothing may be.
static u8* nowhere() {
  static u8 bytes[16];
  memset(bytes, 0, sizeof bytes);
  return bytes;
}
static u64 moved(u64 address, u32 line) {
  if (num_told >= kMostTold) leave();
  bool is_changed = launch->changed && launch->changed[line];
  return is_changed ? address + launch->moved_by : address;
}

// `used` are the bytes that somebody looks at, of a load of several numbers.
template <int kBytes>
static u8* shared_of(Block& block, u32 address, Access access, u32 line, u32 used = ~0u) {
  u64 offset = u64(address) - kSharedBase;
  if (offset % kBytes) fault("misaligned", line, offset);
  if (offset + kBytes > launch->shared_bytes || offset > launch->shared_bytes) {
    fault("outside of shared memory", line, offset);
    return nowhere();
  }
  if (&block != current->block && current->clusters_met == 0)
    fault("a block that may not run yet", line, offset);
  if (block.live == 0) fault("a block that has ended", line, offset);
  u8* bytes = &block.bytes[offset];
  if (access != kStore)
    for (int i = 0; i < kBytes; i++)
      if (used >> i & 1 && !bytes[i]) {
        fault("reads what was never written", line, offset);
        break;
      }
  if (access != kLoad) memset(bytes, kWritten, kBytes);
  note<kBytes>(block.words.data(), offset, access, line);
  return &block.memory[offset];
}
template <int kBytes>
static u8* shared_(u64 address, Access access, u32 line, u32 used = ~0u) {
  return shared_of<kBytes>(*current->block, moved(address, line), access, line, used);
}
template <int kBytes>
static u8* global_(u64 address, Access access, u32 line, u32 used = ~0u) {
  address = moved(address, line);
  if (address % kBytes) fault("misaligned", line, address);
  static u32 last;  // the range that was found last
  Range* range = last < launch->num_ranges ? launch->ranges + last : launch->ranges;
  for (u32 i = 0; address < range->begin || address + kBytes > range->end; i++) {
    if (i == launch->num_ranges) {
      fault("outside of all buffers", line, address);
      return nowhere();
    }
    range = launch->ranges + (last = i);
  }
  u64 offset = address - range->begin;
  u8 all = kReadable | kWritten, *bytes = range->bytes + offset;
  if (access != kStore) {
    for (int i = 0; i < kBytes; i++) all &= used >> i & 1 ? bytes[i] : all;
    if (!(all & kReadable)) fault("reads between rows", line, offset);
    if (all == kReadable) fault("reads what was never written", line, offset);
  }
  if (access != kLoad) {
    if (!range->words) return fault("writes to what is given", line, offset), nowhere();
    for (int i = 0; i < kBytes; i++) bytes[i] |= kWritten;
  }
  if (range->words) note<kBytes>(range->words, offset, access, line);
  return reinterpret_cast<u8*>(address);
}
template <int kBytes>
static u8* generic_(u64 address, Access access, u32 line, u32 used = ~0u) {
  if (address < kGeneric || address >= 2 * kGeneric)
    return global_<kBytes>(address, access, line, used);
  u32 rank = address >> 32 & kOwn;
  Block& block = rank == kOwn ? *current->block : blocks[rank];
  return shared_of<kBytes>(block, moved(address, line), access, line, used);
}
template <class T>
static T& at(u8* place) {
  return *reinterpret_cast<T*>(place);
}
template <class T>
static const T& at(const u8* place) {
  return *reinterpret_cast<const T*>(place);
}
static u64 generic_of(u64 address) { return kGeneric | u64(kOwn) << 32 | u32(address); }
static u64 mapped(u64 address, u32 rank, u32 line) {
  if (rank >= launch->cluster) fault("a block beyond the cluster", line, rank);
  return kGeneric | u64(rank % launch->cluster) << 32 | u32(address);
}

// ---- Waiting.

static void wait_as(State state, u32 line) {
  current->state = state;
  current->site = line;
  leave();
}
static bool is_left_out(u32 line) { return launch->changed && launch->changed[line]; }

static void meet_block(u32 line) {
  if (is_left_out(line)) return;
  wait_as(State::at_block, line);
  current->now.of_block++;
}
static void arrive_at_cluster(u32 line, bool orders_memory) {
  if (is_left_out(line)) return;
  if (current->clusters_arrived++ != current->clusters_met) fault("arrives twice", line);
  current->orders_memory = orders_memory;
}
static void wait_for_cluster(u32 line) {
  if (is_left_out(line)) return;
  if (current->clusters_arrived != current->clusters_met + 1) fault("waits without arriving", line);
  wait_as(State::at_cluster, line);
  current->clusters_met++;
  current->now.of_cluster += current->orders_memory;
  current->now.of_block += current->orders_memory;
}

enum Mode { kUp, kDown, kButterfly, kSum, kLeast };
// What a lane gets of the others that exchange with it.
static void receive(Thread& thread, u32 present) {
  if (thread.mode == kSum || thread.mode == kLeast) {
    thread.received = thread.mode == kSum ? 0 : ~0u;
    for (u32 i = 0; i < kWarp; i++) {
      u32 other = thread.warp[i].value;
      if (!(present >> i & 1)) continue;
      thread.received = thread.mode == kSum ? thread.received + other : std::min(thread.received, other);
    }
    return;
  }
  s32 lane = thread.lane, lanes = thread.lanes, bound = thread.bounds & 31;
  s32 source = thread.mode == kUp ? lane - lanes : thread.mode == kDown ? lane + lanes : lane ^ lanes;
  thread.is_in_range = thread.mode == kUp ? source >= bound : source <= bound;
  if (!thread.is_in_range) source = lane;
  if (!(present >> source & 1)) fault("exchange with an absent lane", thread.site, source);
  thread.received = thread.warp[source].value;
}
// Wait for the lanes of a mask; the last of them lets all go on.
static void meet_lanes(u32 mask, u32 line, bool exchanges) {
  Thread* warp = current->warp;
  current->mask = mask;
  current->site = line;
  current->state = State::at_warp;
  u32 present = 0, live = 0;
  for (u32 i = 0; i < kWarp; i++) {
    bool waits = warp[i].state == State::at_warp && mask >> i & 1;
    if (waits && (warp[i].mask != mask || warp[i].site != line)) fault("lanes meet others", line, i);
    present |= u32(waits) << i;
    live |= u32(warp[i].state != State::done) << i;
  }
  if (!(mask >> current->lane & 1)) fault("a mask without the lane", line, mask);
  if (mask & ~live) fault("a mask with lanes that have ended", line, mask);
  if (present != (mask & live)) return leave();
  for (u32 i = 0; i < kWarp; i++) {
    if (!(present >> i & 1)) continue;
    if (exchanges) receive(warp[i], present);
    warp[i].state = State::runs;
  }
}
static void meet_warp(u32 mask, u32 line) {
  meet_lanes(mask, line, false);
  current->now.of_warp++;
}
static u32 shuffled(Mode mode, u32 value, u32 lanes, u32 bounds, u32 mask, u32 line) {
  current->mode = mode;
  current->value = value;
  current->lanes = lanes;
  current->bounds = bounds;
  meet_lanes(mask, line, true);
  return current->received;
}

// ---- Arithmetic.

template <class To, class From>
static inline To as(From value) {
  if constexpr (std::is_floating_point_v<To> != std::is_floating_point_v<From>) {
    static_assert(sizeof(To) == sizeof(From));
    To bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
  } else {
    return static_cast<To>(value);
  }
}
static inline f32 flushed(f32 x) {
  return std::fabs(x) < std::numeric_limits<f32>::min() ? std::copysign(0.0f, x) : x;
}
template <class T>
static inline T saturated(T x) {
  return x > T(0) ? (x < T(1) ? x : T(1)) : T(0);
}
#define BINARY(name, expression)   \
  template <class T>               \
  static inline T name(T a, T b) { \
    return expression;             \
  }
BINARY(add_, a + b)
BINARY(sub_, a - b)
BINARY(mul_, a * b)
BINARY(and_, T(a & b))
BINARY(or_, T(a | b))
BINARY(xor_, T(a ^ b))
BINARY(inc_, a >= b ? T(0) : T(a + 1))
BINARY(mul_lo, T(std::make_unsigned_t<T>(a) * std::make_unsigned_t<T>(b)))
BINARY(mul_hi, T(u64(a) * u64(b) >> 32))
BINARY(copysign_, std::copysign(b, a))
template <class T>
static inline T div_(T a, T b) {
  if (!std::is_floating_point_v<T> && b == T(0)) return T(0);
  return a / b;
}
template <class T>
static inline T rem_(T a, T b) {
  return b == 0 ? T(0) : T(a % b);
}
// The number where one is none; the larger of two zeros is that without a sign.
template <class T>
static inline T min_(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a == b) return std::signbit(a) ? a : b;
    return std::fmin(a, b);
  } else {
    return a < b ? a : b;
  }
}
template <class T>
static inline T max_(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a == b) return std::signbit(a) ? b : a;
    return std::fmax(a, b);
  } else {
    return a > b ? a : b;
  }
}
template <class T>
static inline T max_or_nan_(T a, T b) {
  return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : max_(a, b);
}
template <class T>
static inline auto mul_wide(T a, T b) {
  if constexpr (sizeof(T) == 2) return std::conditional_t<std::is_signed_v<T>, s32, u32>(a) * b;
  else return std::conditional_t<std::is_signed_v<T>, s64, u64>(a) * b;
}
template <class T>
static inline T fma_(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <class T>
static inline T neg_(T a) {
  return -a;
}
template <class T>
static inline T not_(T a) {
  if constexpr (std::is_same_v<T, bool>) return !a;
  else return T(~a);
}
template <class T>
static inline T abs_(T a) {
  return std::fabs(a);
}
template <class T>
static inline T sqrt_(T a) {
  return std::sqrt(a);
}
template <class T>
static inline T shl_(T a, u32 by) {
  return by < 8 * sizeof(T) ? T(a << by) : T(0);
}
template <class T>
static inline T shr_(T a, u32 by) {
  return T(a >> (by < 8 * sizeof(T) ? by : std::is_signed_v<T> ? 8 * sizeof(T) - 1 : 0)) *
         T(by < 8 * sizeof(T) || std::is_signed_v<T>);
}
template <class T>
static inline T bfi_(T bits, T into, u32 place, u32 size) {
  T mask = (size < 8 * sizeof(T) ? (T(1) << size) - 1 : ~T(0)) << place;
  return (bits << place & mask) | (into & ~mask);
}
// Rounded towards zero; exact in double precision before that.
template <class T>
static inline T mul_towards_zero_(T a, T b) {
  f64 exact = f64(a) * f64(b);
  T nearest = T(exact);
  return std::fabs(f64(nearest)) > std::fabs(exact) ? std::nextafter(nearest, T(0)) : nearest;
}
// As far from the rounded result as a device may be, by an argument's own whim.
static inline f32 off_by(int most, f32 result, f32 argument) {
  if (!launch->rounding || !std::isnormal(result)) return result;
  u32 whim = (as<u32>(argument) + launch->rounding) * 2654435761u >> 16;
  return as<f32>(as<u32>(result) + s32(whim % (2 * most + 1)) - most);
}
template <class T>
static inline T ex2_approx_(T x) {
  f32 result = f32(std::exp2(f64(flushed(x))));
  return flushed(x == std::floor(x) ? result : off_by(2, result, x));
}
template <class T>
static inline T lg2_approx_(T x) {
  return off_by(1, f32(std::log2(f64(flushed(x)))), x);
}
template <class T>
static inline T rcp_(T x) {
  return T(1) / x;
}
template <class T>
static inline T rcp_approx_(T x) {
  if constexpr (sizeof(T) == 8) return as<f64>(as<u64>(1.0 / x) >> 32 << 32);
  else return off_by(1, f32(1.0 / f64(flushed(x))), x);
}
template <class T>
static inline T whole_rni(T x) {
  return std::nearbyint(x);
}
template <class T>
static inline T whole_rzi(T x) {
  return std::trunc(x);
}
template <class T>
static inline T whole_rmi(T x) {
  return std::floor(x);
}
template <class T>
static inline T whole_rpi(T x) {
  return std::ceil(x);
}
template <class I, class F>
static inline I whole_number(F x) {
  typedef std::numeric_limits<I> Limits;
  if (x != x) return sizeof(I) == 8 ? I(1ull << 63) : I(0);
  if (x <= F(Limits::min())) return Limits::min();
  return x >= F(Limits::max()) ? Limits::max() : I(x);
}
static inline f32 from_half(u16 bits) {
  u32 exponent = bits >> 10 & 31, fraction = bits & 1023;
  f32 x = exponent == 31 ? (fraction ? NAN : INFINITY)
                         : std::ldexp(f32(exponent ? 1024 + fraction : fraction),
                                      int(exponent ? exponent : 1) - 25);
  return bits & 0x8000 ? -x : x;
}

// ---- The schedule.

static void kernel(const u8* parameters);

static void begin_thread() {
  kernel(launch->parameters);
  if (current->clusters_arrived != current->clusters_met) fault("ends before it has waited", 0);
  current->state = State::done;
  current->block->live--;
  leave();
}
__attribute__((noinline)) static void resume(Thread& thread) {
  current = &thread;
  if (_setjmp(scheduler)) return;
  if (thread.has_begun) _longjmp(thread.resume, 1);
  thread.has_begun = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = &stacks[kStackBytes * (&thread - threads.data())];
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, begin_thread, 0);
  setcontext(&context);
}
static u32 random_number() {
  u32& x = launch->seed;
  return x = x * 1664525u + 1013904223u, x >> 8;
}
// Let a warp run until all its lanes wait; whether anything happened.
static bool run_warp(Thread* warp) {
  bool moved = false;
  for (bool any = true; any; moved |= any) {
    any = false;
    u32 first = launch->schedule == kRandom ? random_number() : 0;
    for (u32 i = 0; i < kWarp; i++) {
      Thread& thread = warp[launch->schedule == kBackward ? kWarp - 1 - i : (first + i) % kWarp];
      if (thread.state != State::runs) continue;
      resume(thread);
      if (num_told >= kMostTold) return false;
      any = true;
    }
  }
  return moved;
}
// Let threads go on if all of them that have not ended wait for each other.
static bool release(Thread* begin, Thread* end, State state) {
  u32 waiting = 0, ended = 0;
  for (Thread* x = begin; x < end; x++) {
    waiting += x->state == state;
    ended += x->state == State::done;
  }
  if (waiting == 0 || waiting + ended < u32(end - begin)) return false;
  current = begin;
  if (ended) fault("waits for threads that have ended", begin->site);
  for (Thread* x = begin; x < end; x++) {
    if (x->site != begin->site) fault("waits at two places", x->site, begin->site);
    if (x->state == state) x->state = State::runs;
  }
  return true;
}
static void set_up(u32 first_block) {
  for (u32 rank = 0; rank < launch->cluster; rank++) {
    Block& block = blocks[rank];
    block.rank = rank;
    block.number = first_block + rank;
    block.live = launch->block;
    block.memory.assign(launch->shared_bytes + 16, kNonsense);
    block.bytes.assign(launch->shared_bytes + 16, 0);
    block.words.assign(launch->shared_bytes / 4 + 4, Word{});
  }
  for (u32 i = 0; i < threads.size(); i++) {
    Thread& thread = threads[i];
    memset(static_cast<void*>(&thread), 0, sizeof thread);
    thread.block = &blocks[i / launch->block];
    thread.thread = i % launch->block;
    thread.lane = i % kWarp;
    thread.warp = &threads[i - thread.lane];
    thread.now.thread = first_block * launch->block + i;
  }
}
// Run all threads of a cluster to their ends; false if some wait forever.
static bool run_cluster(std::vector<u32>& order) {
  Thread* first = threads.data();
  u32 all = threads.size();
  for (;;) {
    if (launch->schedule == kRandom)
      for (u32 i = order.size() - 1; i > 0; i--) std::swap(order[i], order[random_number() % (i + 1)]);
    bool moved = false;
    for (u32 warp : order) moved |= run_warp(first + warp * kWarp);
    if (num_told >= kMostTold) return false;
    for (u32 begin = 0; begin < all; begin += launch->block)
      moved |= release(first + begin, first + begin + launch->block, State::at_block);
    moved |= release(first, first + all, State::at_cluster);
    if (moved) continue;
    for (Thread& thread : threads) {
      if (thread.state == State::done) continue;
      current = &thread;
      fault("waits forever", thread.site);
      return false;
    }
    return true;
  }
}

extern "C" __attribute__((visibility("default"))) void run(Launch* given) {
  launch = given;
  num_told = 0;
  threads.resize(launch->block * launch->cluster);
  stacks.resize(kStackBytes * threads.size());
  blocks.resize(launch->cluster);
  std::vector<u32> order(threads.size() / kWarp);
  for (u32 i = 0; i < order.size(); i++)
    order[i] = launch->schedule == kBackward ? order.size() - 1 - i : i;
  for (u32 block = 0; block < launch->grid; block += launch->cluster) {
    set_up(block);
    if (!run_cluster(order)) return;
  }
}
