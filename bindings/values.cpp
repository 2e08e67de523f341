// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <string>

#include "pagedecode/error.h"
#include "text.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

// NOTE: Python refuses to print ints of more than 4300 digits.
std::string repr_of(nb::handle value) {
  constexpr std::size_t kMaxLength = 80;
  const nb::object repr = nb::steal(PyObject_Repr(value.ptr()));
  if (!repr.is_valid()) {
    PyErr_Clear();
    return "a " + class_of(value) + " that cannot be printed";
  }
  std::string text = text_of(repr);
  if (text.size() > kMaxLength) text = text.substr(0, kMaxLength) + "...";
  return text;
}

[[noreturn]] void refuse_type(nb::handle value, const char* name, const char* want) {
  throw InvalidType(std::string(name) + ": got a " + class_of(value) + ", want " + want);
}

[[noreturn]] void refuse_value(nb::handle value, const char* name, const char* want) {
  throw InvalidArgument(std::string(name) + ": got " + repr_of(value) + ", want " + want);
}

bool is_array(nb::handle value) { return producer_of(value.ptr()).kind != ProducerKind::kNone; }

bool equals(nb::handle value, const char* text) {
  return PyUnicode_Check(value.ptr()) && PyUnicode_CompareWithASCIIString(value.ptr(), text) == 0;
}

// A scalar of NumPy, which is none of Python's own types.
bool is_numpy_bool(nb::handle value) {
  const std::string type = class_of(value);
  return type == "bool" || type == "bool_";
}

void name_cache_type(nb::handle value, const char* cache_name, Tensor* cache) {
  if (value.is_none()) return;
  if (!PyUnicode_Check(value.ptr())) {
    refuse_type(value, "kv_dtype", "a name, a pair of names for K and V, or None");
  }
  DType named;
  if (equals(value, "float8_e4m3fn")) {
    named = DType::kFloat8E4M3;
  } else if (equals(value, "float8_e5m2")) {
    named = DType::kFloat8E5M2;
  } else {
    refuse_value(value, "kv_dtype", "'float8_e4m3fn' or 'float8_e5m2'");
  }
  if (cache->dtype != DType::kUInt8) {
    throw InvalidArgument("kv_dtype: got " + repr_of(value) + " for " + cache_name + " of " +
                          name_of(cache->dtype) +
                          ", want None there: it names the type of uint8 caches only");
  }
  cache->dtype = named;
}

}  // namespace

bool to_bool(nb::handle value, const char* name) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (!is_array(value) && is_numpy_bool(value)) return nb::cast<bool>(nb::bool_(value));
  refuse_type(value, name, "True or False");
}

std::int64_t to_int(nb::handle value, const char* name) {
  nb::object number = nb::borrow(value);
  if (!PyLong_Check(value.ptr())) {
    if (!PyIndex_Check(value.ptr()) || is_array(value)) refuse_type(value, name, "an int");
    number = nb::steal(PyNumber_Index(value.ptr()));
    if (!number.is_valid()) throw nb::python_error();
  } else if (PyBool_Check(value.ptr())) {
    refuse_type(value, name, "an int");
  }
  int overflow = 0;
  const long long found = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) refuse_value(number, name, "an int of 64 bits");
  return found;
}

double to_double(nb::handle value, const char* name, const char* want) {
  if (PyFloat_CheckExact(value.ptr())) return PyFloat_AsDouble(value.ptr());
  const bool number = PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()) ||
                      (!is_array(value) && nb::hasattr(value, "__float__"));
  if (!number || PyBool_Check(value.ptr())) refuse_type(value, name, want);
  const nb::object as_float = nb::steal(PyNumber_Float(value.ptr()));
  if (!as_float.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw nb::python_error();
    PyErr_Clear();
    refuse_value(value, name, "a number within the range of float64");
  }
  return PyFloat_AsDouble(as_float.ptr());
}

std::optional<std::int64_t> to_optional_int(nb::handle value, const char* name) {
  if (value.is_none()) return std::nullopt;
  return to_int(value, name);
}

std::optional<double> to_optional_double(nb::handle value, const char* name) {
  if (value.is_none()) return std::nullopt;
  return to_double(value, name);
}

KVLayout to_layout(nb::handle value) {
  if (equals(value, "NHD")) return KVLayout::kNHD;
  if (equals(value, "HND")) return KVLayout::kHND;
  if (!PyUnicode_Check(value.ptr())) refuse_type(value, "kv_layout", "'NHD' or 'HND'");
  refuse_value(value, "kv_layout", "'NHD' or 'HND'");
}

LseBase to_lse_base(nb::handle value) {
  if (equals(value, "e")) return LseBase::kE;
  if (equals(value, "2")) return LseBase::k2;
  if (!PyUnicode_Check(value.ptr())) refuse_type(value, "lse_base", "'e' or '2'");
  refuse_value(value, "lse_base", "'e' or '2'");
}

std::optional<Rope> to_rope(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  if (!nb::hasattr(value, "theta") || !nb::hasattr(value, "scale") ||
      !nb::hasattr(value, "interleaved")) {
    refuse_type(value, "rope", "a pagedecode.Rope or None");
  }
  Rope rope;
  rope.theta = to_double(value.attr("theta"), "rope.theta");
  rope.scale = to_double(value.attr("scale"), "rope.scale");
  rope.interleaved = to_bool(value.attr("interleaved"), "rope.interleaved");
  return rope;
}

Scale to_scale(Arrays& arrays, nb::handle value, const char* name) {
  Scale scale;
  if (value.is_none()) return scale;
  if (is_array(value)) {
    scale.array = arrays.read(value, name);
  } else {
    scale.value = to_double(value, name, "a number or a float32 array [1] or [Hkv]");
  }
  return scale;
}

void name_cache_types(nb::handle kv_dtype, Tensor* k_cache, Tensor* v_cache) {
  if (kv_dtype.is_none()) return;
  nb::object pair = nb::borrow(kv_dtype);
  if (PyTuple_Check(kv_dtype.ptr()) || PyList_Check(kv_dtype.ptr())) {
    if (nb::len(kv_dtype) != 2) refuse_value(kv_dtype, "kv_dtype", "a pair of names for K and V");
    name_cache_type(kv_dtype[0], "k_cache", k_cache);
    name_cache_type(kv_dtype[1], "v_cache", v_cache);
    return;
  }
  name_cache_type(kv_dtype, "k_cache", k_cache);
  name_cache_type(kv_dtype, "v_cache", v_cache);
}

}  // namespace pagedecode::bindings
