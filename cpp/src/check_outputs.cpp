// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What decode writes: shapes and types, that it can be written, and that it is nobody else's.
#include "check_decode.h"
#include "check_util.h"

namespace pagedecode {
namespace {

// One written array against everything that the call reads.
void check_apart(const char* name, const Tensor& t, const DecodeArgs& a) {
  check_overlap(name, t, "q", a.q);
  check_overlap(name, t, "k_cache", a.k_cache);
  check_overlap(name, t, "v_cache", a.v_cache);
  check_overlap(name, t, "seq_lens", a.seq_lens);
  const struct {
    const char* name;
    const std::optional<Tensor>& tensor;
  } optional_inputs[] = {
      {"block_table", a.block_table},
      {"block_table.indptr", a.page_indptr},
      {"block_table.indices", a.page_indices},
      {"cu_seqlens_q", a.cu_seqlens_q},
      {"draft_mask", a.draft_mask},
      {"positions", a.positions},
      {"alibi_slopes", a.alibi_slopes},
      {"sinks", a.sinks},
      {"k_scale", a.k_scale.array},
      {"v_scale", a.v_scale.array},
  };
  for (const auto& input : optional_inputs) {
    if (input.tensor) check_overlap(name, t, input.name, *input.tensor);
  }
}

void check_out(const DecodeArgs& a, DecodeProblem* p) {
  const Tensor& out = a.out;
  check_dtype("out", out, {DType::kFloat16, DType::kBFloat16, DType::kFloat32});
  const Dim heads{"Hq", p->num_q_heads};
  const Dim dim{"D", p->head_dim};
  if (p->uniform_q >= 0) {
    check_shape("out", out, {{"B", p->batch}, {"m", p->uniform_q}, heads, dim});
    p->out.seq_stride = stride_of(out, 0);
  } else {
    check_shape("out", out, {{"total_q", p->total_q}, heads, dim});
  }
  check_device("out", out, p->device);
  check_writable("out", out);
  check_rows("out", out);
  check_self_overlap("out", out);
  check_apart("out", out, a);
  p->out.data = out.data;
  p->out.row_stride = stride_of(out, out.ndim - 3);
  p->out.head_stride = stride_of(out, out.ndim - 2);
}

void check_lse(const DecodeArgs& a, DecodeProblem* p) {
  const Tensor& lse = *a.lse;
  check_dtype("lse", lse, {DType::kFloat32});
  check_shape("lse", lse, {{"total_q", p->total_q}, {"Hq", p->num_q_heads}});
  check_device("lse", lse, p->device);
  check_writable("lse", lse);
  check_data("lse", lse);
  check_self_overlap("lse", lse);
  check_apart("lse", lse, a);
  if (a.out.ndim != 0) check_overlap("lse", lse, "out", a.out);
  p->lse = {static_cast<float*>(lse.data), stride_of(lse, 0), stride_of(lse, 1)};
}

}  // namespace

void check_outputs(const DecodeArgs& a, bool needs_out, DecodeProblem* p) {
  p->out.dtype = a.out.ndim != 0 ? a.out.dtype : a.q.dtype;
  if (a.out.ndim != 0 || needs_out) check_out(a, p);
  if (a.lse) check_lse(a, p);
  if (!a.workspace) return;
  check_view("workspace", *a.workspace);
  check_apart("workspace", *a.workspace, a);
  if (a.out.ndim != 0) check_overlap("workspace", *a.workspace, "out", a.out);
  if (a.lse) check_overlap("workspace", *a.workspace, "lse", *a.lse);
}

}  // namespace pagedecode
