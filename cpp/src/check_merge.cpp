// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "check_ops.h"
#include "check_util.h"

namespace pagedecode {
namespace {

// The very same elements: what merging in place means.
bool same_view(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != b.shape[i] || stride_of(a, i) != stride_of(b, i)) return false;
  }
  return true;
}

StateView check_state(const std::string& out_name, const Tensor& out, const std::string& lse_name,
                      const Tensor& lse, const MergeProblem& p) {
  const Dim rows{"rows", p.rows};
  const Dim heads{"Hq", p.num_heads};
  check_dtype(out_name.c_str(), out, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_shape(out_name.c_str(), out, {rows, heads, {"D", p.head_dim}});
  check_device(out_name.c_str(), out, p.device);
  check_data(out_name.c_str(), out);
  check_dtype(lse_name.c_str(), lse, {DType::kFloat32});
  check_shape(lse_name.c_str(), lse, {rows, heads});
  check_device(lse_name.c_str(), lse, p.device);
  check_data(lse_name.c_str(), lse);
  StateView s;
  s.out.data = out.data;
  s.out.dtype = out.dtype;
  s.out.row_stride = stride_of(out, 0);
  s.out.head_stride = stride_of(out, 1);
  s.dim_stride = stride_of(out, 2);
  s.lse = {static_cast<float*>(lse.data), stride_of(lse, 0), stride_of(lse, 1)};
  return s;
}

std::string item(const char* name, std::size_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

// In place is fine, element on element; any other sharing would read what was overwritten.
void check_in_place(const char* name, const Tensor& t, const std::string& other_name,
                    const Tensor& other) {
  if (!same_view(t, other)) check_overlap(name, t, other_name.c_str(), other);
}

}  // namespace

MergeProblem check_merge(const MergeArgs& a, std::vector<StateView>* states) {
  if (a.outs.empty()) throw_argument("outs", "no states", "one or more");
  if (a.lses.size() != a.outs.size()) {
    throw_argument("lses", std::to_string(a.lses.size()) + " arrays",
                   std::to_string(a.outs.size()) + ", one for each of outs");
  }
  const Tensor& first = a.outs[0];
  check_dtype("outs[0]", first, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_shape("outs[0]", first, {{"rows", kAny}, {"Hq", kAny}, {"D", kAny}});
  if (first.shape[1] > kMaxCount || first.shape[2] > kMaxCount) {
    throw_unsupported("outs[0]", "shape " + shape_text(first), "heads and D below 2^31");
  }
  MergeProblem p;
  p.device = first.device;
  p.rows = first.shape[0];
  p.num_heads = static_cast<std::int32_t>(first.shape[1]);
  p.head_dim = static_cast<std::int32_t>(first.shape[2]);
  check_lse_base(a.lse_base);
  p.lse_base2 = a.lse_base == LseBase::k2;

  states->clear();
  for (std::size_t i = 0; i < a.outs.size(); ++i) {
    states->push_back(check_state(item("outs", i), a.outs[i], item("lses", i), a.lses[i], p));
  }
  p.result = check_state("out", a.out, "lse", a.lse, p);
  check_writable("out", a.out);
  check_writable("lse", a.lse);
  check_self_overlap("out", a.out);
  check_self_overlap("lse", a.lse);
  check_overlap("lse", a.lse, "out", a.out);
  for (std::size_t i = 0; i < a.outs.size(); ++i) {
    check_in_place("out", a.out, item("outs", i), a.outs[i]);
    check_in_place("lse", a.lse, item("lses", i), a.lses[i]);
    check_overlap("out", a.out, item("lses", i).c_str(), a.lses[i]);
    check_overlap("lse", a.lse, item("outs", i).c_str(), a.outs[i]);
  }
  if (p.device.type == DeviceType::kCpu && a.stream != nullptr) {
    throw_argument("stream", "a stream", "none on the CPU");
  }
  p.states = states->data();
  p.num_states = static_cast<std::int64_t>(states->size());
  p.stream = a.stream;
  return p;
}

}  // namespace pagedecode
