// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The GIL given up while the library works.
#pragma once

#include <nanobind/nanobind.h>

namespace pagedecode::bindings {

// NOTE: not nb::gil_scoped_release: up to Python 3.13 a daemon thread that asks for the GIL back
// while the interpreter ends is killed by pthread_exit, which unwinds through a destructor and
// aborts the process. Such a thread is parked here instead; the interpreter's exit waits for those
// that are just about to get the GIL.
class ReleasedGil {
 public:
  ReleasedGil();
  ~ReleasedGil();
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

void bind_gil(nanobind::module_& m);  // registers the wait with atexit

}  // namespace pagedecode::bindings
