// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "pagedecode/error.h"

#include <nanobind/nanobind.h>

#include <exception>

#include "calls.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const InvalidArgument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const InvalidType& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const Unsupported& e) {
    const nb::object type = nb::module_::import_("pagedecode._errors").attr("Unsupported");
    PyErr_SetString(type.ptr(), e.what());
  } catch (const Error& e) {  // CudaError
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace pagedecode::bindings
