// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What the library throws. Every message begins with the name of the argument at fault, then says
// what it got and what it wants.
#pragma once

#include <stdexcept>
#include <string>

#include "pagedecode/export.h"

namespace pagedecode {

class PAGEDECODE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A value, shape, stride, device or content that no backend could accept. ValueError in Python.
class PAGEDECODE_API InvalidArgument : public Error {
 public:
  using Error::Error;
};

// A dtype or kind of object that is not accepted. TypeError in Python.
class PAGEDECODE_API InvalidType : public Error {
 public:
  using Error::Error;
};

// Sound, but beyond what the chosen backend can do. pagedecode.Unsupported in Python.
class PAGEDECODE_API Unsupported : public Error {
 public:
  using Error::Error;
};

// A CUDA runtime call or launch failed. RuntimeError in Python.
class PAGEDECODE_API CudaError : public Error {
 public:
  using Error::Error;
};

}  // namespace pagedecode
