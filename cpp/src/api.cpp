// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The public functions: check, pick the backend by the arrays' device, call it.
#include <cstddef>

#include "backend.h"
#include "check_decode.h"
#include "check_ops.h"
#include "pagedecode/pagedecode.h"

namespace pagedecode {
namespace {

bool on_cuda(Device device) { return device.type == DeviceType::kCuda; }

// Shapes, types and options.
DecodeProblem prepare_shapes(const DecodeArgs& args, bool needs_out) {
  DecodeProblem p = check_decode(args, needs_out);
  if (on_cuda(p.device)) cuda::check_supported(p);
  return p;
}

std::size_t needed_workspace(const DecodeProblem& p) {
  return on_cuda(p.device) ? cuda::workspace_size(p) : cpu::workspace_size(p);
}

// Everything, contents too: always on the CPU, on CUDA where asked for.
DecodeProblem prepare(const DecodeArgs& args, bool needs_out, bool check_contents) {
  DecodeProblem p = prepare_shapes(args, needs_out);
  if (args.workspace) check_workspace(args, needed_workspace(p), &p);
  if (on_cuda(p.device)) {
    if (check_contents) cuda::check_contents(p);
  } else {
    read_query_offsets(args, &p);
    cpu::check_contents(p);
  }
  return p;
}

}  // namespace

void decode(const DecodeArgs& args) {
  const DecodeProblem p = prepare(args, true, args.check_contents);
  if (p.total_q == 0 || p.batch == 0) return;
  on_cuda(p.device) ? cuda::decode(p) : cpu::decode(p);
}

std::size_t workspace_size(const DecodeArgs& args) {
  return needed_workspace(prepare_shapes(args, false));
}

void check(const DecodeArgs& args) { prepare(args, false, true); }

Explanation explain(const DecodeArgs& args) {
  const DecodeProblem p = prepare(args, false, args.check_contents);
  Explanation e = on_cuda(p.device) ? cuda::explain(p) : cpu::explain(p);
  if (p.cu_seqlens_q && !args.max_seqlen_q) {
    e.why += on_cuda(p.device) ? "; without max_seqlen_q a sequence may have all rows of q"
                               : "; without max_seqlen_q the largest m is read from cu_seqlens_q";
  }
  return e;
}

void append(const AppendArgs& args) {
  const AppendProblem p = check_append(args);
  if (!on_cuda(p.device)) return cpu::append(p);
  if (p.tokens > 0) cuda::append(p);
}

void slots(const SlotsArgs& args) {
  const SlotsProblem p = check_slots(args);
  if (!on_cuda(p.device)) return cpu::slots(p);
  if (p.total_q > 0) cuda::slots(p);
}

void merge_states(const MergeArgs& args) {
  std::vector<StateView> states;
  const MergeProblem p = check_merge(args, &states);
  if (p.rows == 0) return;
  on_cuda(p.device) ? cuda::merge_states(p) : cpu::merge_states(p);
}

void move(const MoveArgs& args) {
  const MoveProblem p = check_move(args);
  if (!on_cuda(p.device)) return cpu::move(p);
  if (p.pairs > 0) cuda::move(p);
}

Backends backends() { return {cpu::status(), cuda::status()}; }

}  // namespace pagedecode
