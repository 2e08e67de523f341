// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "gil.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#include <atomic>
#include <chrono>
#include <thread>

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

std::atomic<int> g_returning{0};  // threads that ask for the GIL back
std::atomic<bool> g_exiting{false};
std::thread::id g_exiting_thread;  // written before g_exiting

[[noreturn]] void park() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(24));
}

void at_exit() {
  constexpr int kMilliseconds = 2000;  // a thread gets the GIL within its switch interval of 5 ms
  PyThreadState* state = PyEval_SaveThread();
  g_exiting_thread = std::this_thread::get_id();
  g_exiting = true;
  for (int i = 0; i < kMilliseconds && g_returning > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  PyEval_RestoreThread(state);
}

}  // namespace

ReleasedGil::ReleasedGil() : state_(PyEval_SaveThread()) {}

ReleasedGil::~ReleasedGil() {
  ++g_returning;
  // Later exit handlers may call in once more: they are on the thread that ends the interpreter.
  if (g_exiting && std::this_thread::get_id() != g_exiting_thread) {
    --g_returning;
    park();
  }
  PyEval_RestoreThread(state_);
  --g_returning;
}

void bind_gil(nb::module_& m) {
  m.def("_at_exit", &at_exit);
  nb::module_::import_("atexit").attr("register")(m.attr("_at_exit"));
#if defined(__unix__) || defined(__APPLE__)
  // The child of a fork has none of the parent's other threads.
  pthread_atfork(nullptr, nullptr, [] { g_returning = 0; });
#endif
}

}  // namespace pagedecode::bindings
