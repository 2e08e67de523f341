// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "pagedecode/backends.h"

#include <nanobind/nanobind.h>

#include "calls.h"
#include "pagedecode/error.h"
#include "values.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

nb::dict to_dict(const BackendStatus& status) {
  nb::dict d;
  d["built"] = status.built;
  d["runs"] = status.runs;
  d["why"] = status.why.c_str();
  return d;
}

}  // namespace

void bind_backends(nb::module_& m) {
  m.def("backends", [] {
    const Backends b = backends();
    nb::dict d;
    d["cpu"] = to_dict(b.cpu);
    d["cuda"] = to_dict(b.cuda);
    return d;
  });
  m.def(
      "set_num_threads",
      [](nb::handle value) {
        const std::int64_t n = to_int(value, "n");
        if (n != static_cast<int>(n)) {
          throw InvalidArgument("n: got " + std::to_string(n) +
                                ", want a number of threads from 1 to 1024");
        }
        set_num_threads(static_cast<int>(n));
      },
      nb::arg("n").none());
  m.def("num_threads", &num_threads);
  m.def("cpu_isa", [] { return nb::str(cpu_isa().c_str()); });
}

}  // namespace pagedecode::bindings
