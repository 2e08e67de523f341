// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU backend's threads. A call hands over `count` independent items; the caller works on them
// too, so that one thread, or a tiny call, wakes nobody. Several callers may run at once: each has
// its own job, and idle workers join the oldest that has items left. After a fork the child starts
// with no workers and makes its own when it first needs them.
#pragma once

#include <cstdint>
#include <type_traits>

namespace pagedecode::cpu {

// A reference to a callable; valid while that is.
class ItemFunction {
 public:
  // NOTE: not for an ItemFunction, or copying one would refer to it in place of what it refers to.
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, ItemFunction>>>
  ItemFunction(F& f)  // NOLINT(google-explicit-constructor)
      : object_(&f), call_([](void* o, std::int64_t i) { (*static_cast<F*>(o))(i); }) {}
  void operator()(std::int64_t item) const { call_(object_, item); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

// Runs f(0) .. f(count - 1), in any order, on at most `threads` threads (the caller among them).
// The first exception of an item is rethrown here, after all threads have left.
void parallel_for(std::int64_t count, int threads, ItemFunction f);

// Threads that a call may use: set_num_threads, else PAGEDECODE_NUM_THREADS, else the CPUs that
// this process may run on. InvalidArgument if the variable is no number from 1 up.
int max_threads();

}  // namespace pagedecode::cpu
