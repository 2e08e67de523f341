// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_util.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "overlap.h"
#include "pagedecode/error.h"

namespace pagedecode {
namespace {

std::string message(const char* name, const std::string& got, const std::string& want) {
  return std::string(name) + ": got " + got + ", want " + want;
}

std::string dims_text(std::initializer_list<Dim> dims) {
  std::string s = "[";
  for (const Dim& d : dims) {
    if (s.size() > 1) s += ", ";
    s += d.name;
    if (d.size != kAny && std::to_string(d.size) != d.name) s += " = " + std::to_string(d.size);
  }
  return s + "]";
}

std::string strides_text(const Tensor& t) {
  std::string s = "(";
  for (int i = 0; i < t.ndim; ++i) s += (i ? ", " : "") + std::to_string(t.strides[i]);
  return s + ")";
}

void check_device_name(const char* name, Device device) {
  if (device.type != DeviceType::kCpu && device.type != DeviceType::kCuda) {
    throw_argument(name, "DeviceType(" + std::to_string(static_cast<int>(device.type)) + ")",
                   "kCpu or kCuda");
  }
  const bool right = device.type == DeviceType::kCpu ? device.index == 0 : device.index >= 0;
  if (right) return;
  throw_argument(name, "device index " + std::to_string(device.index),
                 device.type == DeviceType::kCpu ? "0 on the CPU" : "0 or more");
}

void check_cuda_rows(const char* name, const Tensor& t) {
  const std::int64_t bytes = size_of(t.dtype);
  const std::int64_t align = bytes == 1 && t.shape[t.ndim - 1] % 16 == 8 ? 8 : 16;
  check_alignment(name, t, align);
  for (int i = 0; i + 1 < t.ndim; ++i) {
    if (t.shape[i] <= 1) continue;
    if (t.strides[i] > 0 && t.strides[i] * bytes % align == 0) continue;
    throw_argument(name, "strides " + strides_text(t) + " of " + describe(t),
                   t.strides[i] <= 0
                       ? "positive strides on CUDA"
                       : "rows aligned to " + std::to_string(align) + " bytes on CUDA");
  }
}

}  // namespace

std::string shape_text(const Tensor& t) {
  std::string s = "[";
  for (int i = 0; i < t.ndim; ++i) s += (i ? ", " : "") + std::to_string(t.shape[i]);
  return s + "]";
}

std::string device_text(Device device) {
  return device.type == DeviceType::kCpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

std::string describe(const Tensor& t) {
  return std::string(name_of(t.dtype)) + " " + shape_text(t) + " on " + device_text(t.device);
}

std::string text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.9g", x);
  return buffer;
}

void throw_argument(const char* name, const std::string& got, const std::string& want) {
  throw InvalidArgument(message(name, got, want));
}

void throw_type(const char* name, const std::string& got, const std::string& want) {
  throw InvalidType(message(name, got, want));
}

void throw_unsupported(const char* name, const std::string& got, const std::string& want) {
  throw Unsupported(message(name, got, want));
}

void check_view(const char* name, const Tensor& t) {
  if (t.ndim < 0 || t.ndim > kMaxDims) {
    throw_argument(name, std::to_string(t.ndim) + " dimensions",
                   "0 to " + std::to_string(kMaxDims));
  }
  check_device_name(name, t.device);
  std::int64_t count = 1;
  std::int64_t reach = 0;
  bool fits = true;
  for (int i = 0; i < t.ndim; ++i) {
    const std::int64_t n = t.shape[i];
    if (n < 0) throw_argument(name, "shape " + shape_text(t), "sizes of 0 or more");
    if (n <= 1) continue;
    if (__builtin_mul_overflow(count, n, &count) || count >= kMaxExtent) {
      throw_argument(name, "shape " + shape_text(t), "fewer than 2^59 elements");
    }
    std::int64_t step = 0;
    fits = fits && !__builtin_mul_overflow(t.strides[i], n - 1, &step) && step > -kMaxExtent &&
           step < kMaxExtent;
    reach += fits ? std::abs(step) : 0;  // of kMaxDims steps below 2^59: no overflow
  }
  if (!fits || reach >= kMaxExtent) {
    throw_argument(name, "strides " + strides_text(t) + " of " + describe(t),
                   "elements less than 2^59 apart");
  }
}

void check_shape(const char* name, const Tensor& t, std::initializer_list<Dim> dims) {
  bool right = t.ndim == static_cast<int>(dims.size());
  int i = 0;
  for (const Dim& d : dims) {
    if (!right) break;
    right = d.size == kAny || d.size == t.shape[i];
    ++i;
  }
  if (!right) throw_argument(name, "shape " + shape_text(t), dims_text(dims));
}

void check_dtype(const char* name, const Tensor& t, std::initializer_list<DType> dtypes) {
  check_view(name, t);
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype) != dtypes.end()) return;
  std::string want;
  int left = static_cast<int>(dtypes.size());
  for (DType d : dtypes) {
    --left;
    want += std::string(name_of(d)) + (left > 1 ? ", " : left == 1 ? " or " : "");
  }
  throw_type(name, std::string("dtype ") + name_of(t.dtype), want);
}

void check_device(const char* name, const Tensor& t, Device device) {
  if (t.device == device) return;
  throw_argument(name, "an array on " + device_text(t.device),
                 "one on " + device_text(device) + ", where the call's other arrays are");
}

void check_alignment(const char* name, const Tensor& t, std::int64_t bytes) {
  const std::uintptr_t past =
      reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(bytes);
  if (past == 0) return;
  const std::string unit = std::to_string(bytes) + " bytes";
  throw_argument(name, "data " + std::to_string(past) + " bytes past a multiple of " + unit,
                 "data aligned to " + unit);
}

void check_data(const char* name, const Tensor& t) {
  if (is_empty(t)) return;
  if (t.data == nullptr) throw_argument(name, "null data of " + describe(t), "data");
  check_alignment(name, t, size_of(t.dtype));
}

void check_rows(const char* name, const Tensor& t) {
  check_data(name, t);
  if (is_empty(t)) return;
  if (stride_of(t, t.ndim - 1) != 1 && t.shape[t.ndim - 1] > 1) {
    throw_argument(name, "strides " + strides_text(t), "a contiguous last dimension");
  }
  if (t.device.type == DeviceType::kCuda) check_cuda_rows(name, t);
}

void check_writable(const char* name, const Tensor& t) {
  if (t.read_only) throw_argument(name, "a read-only array", "one that can be written");
}

void check_self_overlap(const char* name, const Tensor& t) {
  const Overlap found = self_overlap(t);
  if (found == Overlap::kNo) return;
  throw_argument(name, "strides " + strides_text(t) + " of " + describe(t),
                 found == Overlap::kYes ? "elements that do not overlap each other"
                                        : "strides that nest: elements may overlap each other");
}

void check_overlap(const char* name, const Tensor& t, const char* other_name, const Tensor& other) {
  const Overlap found = overlap(t, other);
  if (found == Overlap::kNo) return;
  const char* verb = found == Overlap::kYes ? "overlaps " : "may overlap ";
  throw_argument(name, "memory that " + (verb + std::string(other_name)), "memory of its own");
}

void check_index_tensor(const char* name, const Tensor& t, std::initializer_list<Dim> dims,
                        Device device) {
  check_dtype(name, t, {DType::kInt32, DType::kInt64});
  check_shape(name, t, dims);
  check_device(name, t, device);
  check_data(name, t);
}

IndexArray check_indices(const char* name, const Tensor& t, Dim dim, Device device) {
  check_index_tensor(name, t, {dim}, device);
  return {t.data, stride_of(t, 0), t.dtype == DType::kInt64};
}

FloatArray check_floats(const char* name, const Tensor& t, Dim dim, Device device) {
  check_dtype(name, t, {DType::kFloat32});
  check_shape(name, t, {dim});
  check_device(name, t, device);
  check_data(name, t);
  return {static_cast<const float*>(t.data), stride_of(t, 0)};
}

void check_lse_base(LseBase base) {
  if (base == LseBase::kE || base == LseBase::k2) return;
  throw_argument("lse_base", "LseBase(" + std::to_string(static_cast<int>(base)) + ")", "kE or k2");
}

std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace pagedecode
