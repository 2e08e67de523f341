// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What kind of array a Python object is: looked up once for each type.
#pragma once

#include <Python.h>
#include <dlpack/dlpack.h>

namespace pagedecode::bindings {

enum class ProducerKind {
  kNumpy,     // __array_struct__: no DLPack call, and types that NumPy's DLPack has no code for
  kExchange,  // the C exchange API of DLPack 1.2: no Python call
  kDlpack,    // __dlpack__
  kMasked,    // numpy.ma: its mask would be ignored
  kNone,      // not an array
};

struct Producer {
  ProducerKind kind = ProducerKind::kNone;
  const DLPackExchangeAPI* api = nullptr;
  PyObject* is_neg = nullptr;  // torch's: whether the memory lacks the sign
  bool is_torch = false;       // may require gradients
  bool is_jax = false;         // never written
};

// NOTE: holds a reference to each type it has seen, so that no other type takes its address.
const Producer& producer_of(PyObject* object);

}  // namespace pagedecode::bindings
