// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The arrays of one call: Python objects of any library -> Tensor, and the stream that they agree
// on. Everything happens with the GIL held; what must outlive the call's work is kept until the
// Arrays object goes, and never longer.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "pagedecode/types.h"
#include "producer.h"

namespace pagedecode::bindings {

class Arrays {
 public:
  // `stream`: None, or a raw handle as an int (0 and 1: CUDA's default stream).
  explicit Arrays(nanobind::handle stream);

  Tensor read(nanobind::handle object, const char* name) { return import(object, name, false); }
  // TypeError for what can never be written (JAX); a read-only flag is left to the checks.
  Tensor write(nanobind::handle object, const char* name) { return import(object, name, true); }
  std::optional<Tensor> read_optional(nanobind::handle object, const char* name);
  std::optional<Tensor> write_optional(nanobind::handle object, const char* name);

  // The caller's, else the current one of the library that made the first array on CUDA.
  void* stream() const { return stream_; }

 private:
  Tensor import(nanobind::handle object, const char* name, bool written);
  Tensor import_exchange(nanobind::handle object, const char* name, const Producer& producer,
                         bool written);
  Tensor import_dlpack(nanobind::handle object, const char* name, const Producer& producer);
  Tensor from_capsule(nanobind::object capsule, const char* name);
  // Settles the call's stream, knowing the current one of the library that made this array.
  void meet_stream(void* current);

  bool has_user_stream_ = false;
  bool has_stream_ = false;
  bool torch_waited_ = false;
  void* stream_ = nullptr;
  // Whose current stream was asked for last, and what it is.
  const DLPackExchangeAPI* asked_ = nullptr;
  int asked_device_ = -1;
  void* current_ = nullptr;
  std::vector<nanobind::object> kept_;
};

}  // namespace pagedecode::bindings
