// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <cstdint>
#include <string>

#include "dlpack_tensor.h"
#include "pagedecode/error.h"
#include "text.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

// Keeps what the producer said, but not the C++ stack that torch adds to it.
[[noreturn]] void refuse_export(const nb::python_error& e, nb::handle object, const char* name) {
  std::string reason = text_of(e.value());
  reason = reason.substr(0, reason.find("\nException raised from"));
  const bool traced = class_of(object).find("Tracer") != std::string::npos;
  if (traced) reason += " (inside jax.jit and other transformations there is no buffer)";
  const std::string text = std::string(name) + ": got a " + class_of(object) +
                           " that could not be exported over DLPack: " + reason;
  if (e.matches(PyExc_TypeError)) throw InvalidType(text);
  throw InvalidArgument(text);
}

// CUDA's default stream has two handles.
void* plain_default(void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == 1 ? nullptr : stream;
}

// The number that DLPack's protocol has for a stream of CUDA.
std::intptr_t dlpack_stream(void* stream) {
  const auto handle = reinterpret_cast<std::intptr_t>(stream);
  return handle == 0 ? 1 : handle;
}

nb::object helper(const char* name) {
  return nb::module_::import_("pagedecode._streams").attr(name);
}

void check_gradient(nb::handle tensor, const char* name) {
  static PyObject* const key = PyUnicode_InternFromString("requires_grad");
  const nb::object flag = nb::steal(PyObject_GetAttr(tensor.ptr(), key));
  if (!flag.is_valid()) throw nb::python_error();
  if (flag.ptr() != Py_True) return;
  throw InvalidArgument(std::string(name) +
                        ": got a tensor that requires gradients, want tensor.detach(): pagedecode "
                        "computes none");
}

// torch's negative bit (of x.conj().imag): the memory holds the values without their sign.
void check_sign(nb::handle tensor, PyObject* is_neg, const Tensor& t, bool written,
                const char* name) {
  // NOTE: 90 ns a call. An array to write with a stride of 1 is none of a complex one's parts.
  if (written && t.ndim > 0 && t.strides[t.ndim - 1] == 1) return;
  if (t.dtype == DType::kInt32 || t.dtype == DType::kInt64 || t.dtype == DType::kBool) return;
  const nb::object flag = nb::steal(PyObject_CallFunctionObjArgs(is_neg, tensor.ptr(), nullptr));
  if (!flag.is_valid()) throw nb::python_error();
  if (flag.ptr() != Py_True) return;
  throw InvalidArgument(std::string(name) +
                        ": got a tensor with torch's negative bit, want tensor.resolve_neg()");
}

}  // namespace

Arrays::Arrays(nb::handle stream) {
  if (stream.is_none()) return;
  if (!PyLong_Check(stream.ptr()) || PyBool_Check(stream.ptr())) {
    throw InvalidType("stream: got a " + class_of(stream) + ", want a raw handle (int) or None");
  }
  int overflow = 0;
  const long long handle = PyLong_AsLongLongAndOverflow(stream.ptr(), &overflow);
  if (handle < 0 || overflow != 0) {
    throw InvalidArgument("stream: got a number that is no address, want a raw handle or None");
  }
  stream_ = reinterpret_cast<void*>(static_cast<std::intptr_t>(handle));
  has_user_stream_ = has_stream_ = true;
}

std::optional<Tensor> Arrays::read_optional(nb::handle object, const char* name) {
  if (object.is_none()) return std::nullopt;
  return read(object, name);
}

std::optional<Tensor> Arrays::write_optional(nb::handle object, const char* name) {
  if (object.is_none()) return std::nullopt;
  return write(object, name);
}

Tensor Arrays::import(nb::handle object, const char* name, bool written) {
  const Producer& producer = producer_of(object.ptr());
  if (written && producer.is_jax) {
    throw InvalidType(std::string(name) +
                      ": got a JAX array, which cannot be written, want a NumPy or torch array");
  }
  Tensor t;
  switch (producer.kind) {
    case ProducerKind::kNumpy:
      t = from_numpy(object, name);
      break;
    case ProducerKind::kExchange:
      t = import_exchange(object, name, producer, written);
      break;
    case ProducerKind::kDlpack:
      t = import_dlpack(object, name, producer);
      break;
    case ProducerKind::kMasked:
      throw InvalidType(std::string(name) +
                        ": got a masked array, want one without a mask, as .filled(...) makes: "
                        "masks are not read");
    case ProducerKind::kNone:
      throw InvalidType(std::string(name) + ": got a " + class_of(object) +
                        ", want an array (NumPy, torch, JAX, CuPy, or another that speaks DLPack)");
  }
  if (t.device.type == DeviceType::kCpu && has_user_stream_) {
    throw InvalidArgument("stream: got a handle with arrays on the CPU, want None there");
  }
  return t;
}

void Arrays::meet_stream(void* current) {
  if (has_stream_) return;
  stream_ = current;
  has_stream_ = true;
}

Tensor Arrays::import_exchange(nb::handle object, const char* name, const Producer& producer,
                               bool written) {
  if (producer.is_torch) check_gradient(object, name);
  const DLPackExchangeAPI& api = *producer.api;
  Tensor t;
  if (api.dltensor_from_py_object_no_sync != nullptr && (producer.is_torch || !written)) {
    DLTensor dl;
    if (api.dltensor_from_py_object_no_sync(object.ptr(), &dl) != 0) {
      refuse_export(nb::python_error(), object, name);
    }
    t = from_dltensor(dl, name);
  } else {  // only the managed form says whether the array is read-only
    DLManagedTensorVersioned* managed = nullptr;
    if (api.managed_tensor_from_py_object_no_sync(object.ptr(), &managed) != 0) {
      refuse_export(nb::python_error(), object, name);
    }
    kept_.push_back(nb::steal(PyCapsule_New(managed, "dltensor_versioned", [](PyObject* capsule) {
      auto* m = static_cast<DLManagedTensorVersioned*>(
          PyCapsule_GetPointer(capsule, "dltensor_versioned"));
      if (m != nullptr && m->deleter != nullptr) m->deleter(m);
    })));
    t = from_dltensor(managed->dl_tensor, name);
    t.read_only = managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY;
  }
  if (producer.is_neg != nullptr) check_sign(object, producer.is_neg, t, written, name);
  if (t.device.type != DeviceType::kCuda) return t;

  // Asked once for a library and device: nothing in a call changes it.
  if (asked_ != &api || asked_device_ != t.device.index) {
    if (api.current_work_stream(kDLCUDA, t.device.index, &current_) != 0) throw nb::python_error();
    asked_ = &api;
    asked_device_ = t.device.index;
  }
  meet_stream(current_);
  if (plain_default(current_) == plain_default(stream_)) return t;
  if (!producer.is_torch) return import_dlpack(object, name, producer);
  if (!torch_waited_) {
    helper("wait_for_torch")(t.device.index, dlpack_stream(stream_));
    torch_waited_ = true;
  }
  return t;
}

Tensor Arrays::import_dlpack(nb::handle object, const char* name, const Producer& producer) {
  try {
    nb::dict options;
    const nb::object device = object.attr("__dlpack_device__")();
    int device_type = 0;
    if (!PyTuple_Check(device.ptr()) || nb::len(device) != 2 ||
        !nb::try_cast<int>(nb::int_(device[0]), device_type)) {
      throw InvalidType(std::string(name) + ": got " + text_of(device) +
                        " from __dlpack_device__, want a pair (type, id)");
    }
    if (device_type == kDLCUDA || device_type == kDLCUDAManaged) {
      if (producer.is_jax) {
        throw Unsupported(
            std::string(name) +
            ": got a JAX array on CUDA, want one on the CPU: CUDA takes torch and CuPy");
      }
      const nb::object current = helper("current_stream")(object, device[1]);
      if (!current.is_none()) meet_stream(PyLong_AsVoidPtr(current.ptr()));
      meet_stream(nullptr);
      const bool same = !current.is_none() &&
                        plain_default(PyLong_AsVoidPtr(current.ptr())) == plain_default(stream_);
      options["stream"] = same ? -1 : dlpack_stream(stream_);
    }
    const nb::object method = object.attr("__dlpack__");
    options["max_version"] = nb::make_tuple(1, 1);
    try {
      return from_capsule(method(**options), name);
    } catch (const nb::python_error& e) {
      if (!e.matches(PyExc_TypeError)) throw;
    }
    PyDict_DelItemString(options.ptr(), "max_version");  // a producer from before DLPack 1.0
    return from_capsule(method(**options), name);
  } catch (const nb::python_error& e) {
    refuse_export(e, object, name);
  }
}

Tensor Arrays::from_capsule(nb::object capsule, const char* name) {
  kept_.push_back(capsule);  // unconsumed: its destructor gives the array back
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* m = static_cast<DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (m->version.major != DLPACK_MAJOR_VERSION) {
      throw InvalidType(std::string(name) + ": got an array of DLPack " +
                        std::to_string(m->version.major) + ", want DLPack 1");
    }
    Tensor t = from_dltensor(m->dl_tensor, name);
    t.read_only = m->flags & DLPACK_FLAG_BITMASK_READ_ONLY;
    return t;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    const auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    return from_dltensor(m->dl_tensor, name);
  }
  throw InvalidType(std::string(name) + ": got no DLPack capsule from __dlpack__, want one");
}

}  // namespace pagedecode::bindings
