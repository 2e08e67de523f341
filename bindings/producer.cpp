// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "producer.h"

#include <nanobind/nanobind.h>

#include <string>
#include <unordered_map>

#include "text.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

nb::object attribute_or_null(nb::handle object, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (!found.is_valid()) PyErr_Clear();
  return found;
}

// "torch" for torch.nn.parameter.Parameter; "" where there is no module.
std::string root_module(nb::handle type) {
  const nb::object module = attribute_or_null(type, "__module__");
  if (!module.is_valid() || !nb::isinstance<nb::str>(module)) return "";
  const std::string name = text_of(module);
  return name.substr(0, name.find('.'));
}

// Of DLPack's major version 1; null where the type has none.
const DLPackExchangeAPI* exchange_api(nb::handle type) {
  const nb::object capsule = attribute_or_null(type, "__dlpack_c_exchange_api__");
  if (!capsule.is_valid() || !PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  auto* header = static_cast<DLPackExchangeAPIHeader*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (header == nullptr) PyErr_Clear();
  while (header != nullptr && header->version.major != DLPACK_MAJOR_VERSION) {
    header = header->prev_api;
  }
  return reinterpret_cast<const DLPackExchangeAPI*>(header);
}

Producer inspect(nb::handle type) {
  Producer p;
  bool is_numpy = false;
  bool is_masked = false;
  const nb::object bases = attribute_or_null(type, "__mro__");
  for (nb::handle base : bases) {
    const std::string root = root_module(base);
    p.is_torch = p.is_torch || root == "torch";
    p.is_jax = p.is_jax || root == "jax" || root == "jaxlib";
    const nb::object name = attribute_or_null(base, "__name__");
    is_masked = is_masked || (root == "numpy" && text_of(name) == "MaskedArray");
    is_numpy = is_numpy || (root == "numpy" && text_of(name) == "ndarray");
  }
  p.api = exchange_api(type);
  if (p.is_torch) p.is_neg = attribute_or_null(type, "is_neg").release().ptr();
  if (is_masked) {
    p.kind = ProducerKind::kMasked;
  } else if (is_numpy) {
    p.kind = ProducerKind::kNumpy;
  } else if (p.api != nullptr) {
    p.kind = ProducerKind::kExchange;
  } else if (attribute_or_null(type, "__dlpack__").is_valid()) {
    p.kind = ProducerKind::kDlpack;
  }
  return p;
}

}  // namespace

const Producer& producer_of(PyObject* object) {
  static auto& known = *new std::unordered_map<PyTypeObject*, Producer>();  // for the GIL's holder
  PyTypeObject* type = Py_TYPE(object);
  const auto found = known.find(type);
  if (found != known.end()) return found->second;
  const Producer p = inspect(nb::handle(reinterpret_cast<PyObject*>(type)));
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  return known.emplace(type, p).first->second;
}

}  // namespace pagedecode::bindings
