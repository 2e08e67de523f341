// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "dlpack_tensor.h"

#include <optional>
#include <string>

#include "pagedecode/error.h"
#include "text.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

[[noreturn]] void refuse_dtype(const char* name, const std::string& dtype) {
  throw InvalidType(std::string(name) + ": got dtype " + dtype +
                    ", want one that pagedecode reads (float32, float16, bfloat16, float8_e4m3fn, "
                    "float8_e5m2, int8, int32, int64, bool, uint32)");
}

void check_ndim(const char* name, std::int64_t ndim) {
  if (ndim <= kMaxDims) return;
  throw InvalidArgument(std::string(name) + ": got " + std::to_string(ndim) +
                        " dimensions, want at most " + std::to_string(kMaxDims));
}

struct DTypeCode {
  int code;
  int bits;
  DType dtype;
};

constexpr DTypeCode kCodes[] = {
    {kDLFloat, 32, DType::kFloat32},
    {kDLFloat, 16, DType::kFloat16},
    {kDLBfloat, 16, DType::kBFloat16},
    {kDLFloat8_e4m3fn, 8, DType::kFloat8E4M3},
    {kDLFloat8_e5m2, 8, DType::kFloat8E5M2},
    {kDLInt, 8, DType::kInt8},
    {kDLUInt, 8, DType::kUInt8},
    {kDLBool, 8, DType::kBool},
    {kDLInt, 32, DType::kInt32},
    {kDLInt, 64, DType::kInt64},
    {kDLUInt, 32, DType::kUInt32},
    {kDLFloat, 64, DType::kFloat64},
    {kDLInt, 16, DType::kInt16},
    {kDLUInt, 16, DType::kUInt16},
    {kDLUInt, 64, DType::kUInt64},
    {kDLComplex, 64, DType::kComplex64},
    {kDLComplex, 128, DType::kComplex128},
};

DType dtype_of(DLDataType d, const char* name) {
  if (d.lanes == 1) {
    for (const DTypeCode& row : kCodes) {
      if (row.code == d.code && row.bits == d.bits) return row.dtype;
    }
  }
  refuse_dtype(name, "of DLPack code " + std::to_string(d.code) + " with " +
                         std::to_string(d.bits) + " bits and " + std::to_string(d.lanes) +
                         " lanes");
}

Device device_of(DLDevice d, const char* name) {
  switch (d.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return {DeviceType::kCpu, 0};
    case kDLCUDA:
    case kDLCUDAManaged:
      return {DeviceType::kCuda, d.device_id};
    default:
      break;
  }
  const char* other = "another";
  switch (d.device_type) {
    case kDLOpenCL:
      other = "an OpenCL";
      break;
    case kDLVulkan:
      other = "a Vulkan";
      break;
    case kDLMetal:
      other = "a Metal";
      break;
    case kDLROCM:
      other = "a ROCm";
      break;
    case kDLROCMHost:
      other = "a ROCm host";
      break;
    case kDLOneAPI:
      other = "a oneAPI";
      break;
    case kDLWebGPU:
      other = "a WebGPU";
      break;
    default:
      break;
  }
  throw InvalidType(std::string(name) + ": got an array on " + other + " device (DLPack type " +
                    std::to_string(d.device_type) + "), want one on the CPU or CUDA");
}

// numpy's PyArrayInterface, which __array_struct__ gives in a capsule: part of no header that a
// module for the stable ABI could include.
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;  // bytes
  void* data;
  PyObject* descr;
};
constexpr int kNotSwapped = 0x200;
constexpr int kWriteable = 0x400;

std::optional<DType> numpy_dtype(char kind, int itemsize) {
  switch (kind) {
    case 'b':
      return DType::kBool;
    case 'f':
      if (itemsize == 2) return DType::kFloat16;
      if (itemsize == 4) return DType::kFloat32;
      if (itemsize == 8) return DType::kFloat64;
      break;
    case 'i':
      if (itemsize == 1) return DType::kInt8;
      if (itemsize == 2) return DType::kInt16;
      if (itemsize == 4) return DType::kInt32;
      if (itemsize == 8) return DType::kInt64;
      break;
    case 'u':
      if (itemsize == 1) return DType::kUInt8;
      if (itemsize == 2) return DType::kUInt16;
      if (itemsize == 4) return DType::kUInt32;
      if (itemsize == 8) return DType::kUInt64;
      break;
    case 'c':
      if (itemsize == 8) return DType::kComplex64;
      if (itemsize == 16) return DType::kComplex128;
      break;
    default:
      break;
  }
  return std::nullopt;
}

// ml_dtypes types look like raw bytes from outside; their dtype objects are singletons, so that the
// name is asked for once.
DType extension_dtype(nb::handle array, const char* name) {
  struct Known {
    PyObject* object;
    DType dtype;
  };
  constexpr int kMaxKnown = 8;
  static Known known[kMaxKnown];
  static int count = 0;
  const nb::object dtype = array.attr("dtype");
  for (int i = 0; i < count; ++i) {
    if (known[i].object == dtype.ptr()) return known[i].dtype;
  }
  const std::string text = text_of(dtype.attr("name"));
  std::optional<DType> found;
  for (DType d : {DType::kBFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    if (text == name_of(d)) found = d;
  }
  if (!found) refuse_dtype(name, text);
  if (count < kMaxKnown) known[count++] = {nb::object(dtype).release().ptr(), *found};
  return *found;
}

}  // namespace

Tensor from_dltensor(const DLTensor& t, const char* name) {
  check_ndim(name, t.ndim);
  Tensor out;
  out.device = device_of(t.device, name);
  out.dtype = dtype_of(t.dtype, name);
  out.data = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
  out.ndim = t.ndim;
  std::int64_t compact = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    out.shape[i] = t.shape[i];
    out.strides[i] = t.strides ? t.strides[i] : compact;
    compact *= t.shape[i] > 1 ? t.shape[i] : 1;
  }
  return out;
}

Tensor from_numpy(nb::handle array, const char* name) {
  static PyObject* const key = PyUnicode_InternFromString("__array_struct__");
  const nb::object capsule = nb::steal(PyObject_GetAttr(array.ptr(), key));
  if (!capsule.is_valid()) throw nb::python_error();
  const auto* a = static_cast<ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (a == nullptr) throw nb::python_error();

  check_ndim(name, a->nd);
  const std::optional<DType> plain = numpy_dtype(a->typekind, a->itemsize);
  Tensor out;
  out.dtype = plain ? *plain : extension_dtype(array, name);
  if (!(a->flags & kNotSwapped) && a->itemsize > 1) {
    refuse_dtype(name, std::string(name_of(out.dtype)) + " of foreign byte order");
  }
  out.read_only = !(a->flags & kWriteable);
  out.data = a->data;
  out.ndim = a->nd;
  for (int i = 0; i < a->nd; ++i) {
    out.shape[i] = a->shape[i];
    out.strides[i] = a->strides[i] / a->itemsize;
    if (a->strides[i] % a->itemsize != 0 && a->shape[i] > 1) {
      throw InvalidArgument(std::string(name) + ": got a stride of " +
                            std::to_string(a->strides[i]) + " bytes, want a multiple of the " +
                            std::to_string(a->itemsize) + " bytes of an element");
    }
  }
  return out;
}

}  // namespace pagedecode::bindings
