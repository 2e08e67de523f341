// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend's entry points: the arrays' device for the call, memory, launch. Calls with
// nothing to do return before they touch CUDA.
#include <cstddef>

#include "backend.h"
#include "cuda/append/append.h"
#include "cuda/decode/launch.h"
#include "cuda/merge_states/merge_states.h"
#include "cuda/move/move.h"
#include "cuda/runtime/device_guard.h"
#include "cuda/runtime/device_query.h"
#include "cuda/runtime/status.h"
#include "cuda/runtime/workspace.h"
#include "cuda/slots/slots.h"

namespace pagedecode::cuda {

BackendStatus status() {
  BackendStatus s;
  s.built = true;
  s.why = why_not(probe());
  s.runs = s.why.empty();
  return s;
}

void check_supported(const DecodeProblem& p) {
  check_decode_supported(p, require_device(p.device.index));
}

std::size_t workspace_size(const DecodeProblem& p) {
  return decode_workspace_bytes(p, require_device(p.device.index));
}

Explanation explain(const DecodeProblem& p) {
  return explain_decode(p, require_device(p.device.index));
}

void decode(const DecodeProblem& p) {
  if (p.batch == 0 || p.total_q == 0) return;
  const DeviceInfo& device = require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  if (p.workspace != nullptr) {
    launch_decode(p, p.workspace, p.workspace_bytes, device);
    return;
  }
  const std::size_t bytes = decode_workspace_bytes(p, device);
  const Workspace own(Purpose::kDecode, p.device.index, p.stream, bytes);
  launch_decode(p, own.data(), bytes, device);
}

void append(const AppendProblem& p) {
  if (p.tokens == 0 || p.num_kv_heads == 0 || p.num_pages == 0) return;
  require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  launch_append(p);
}

void slots(const SlotsProblem& p) {
  if (p.total_q == 0) return;
  require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  launch_slots(p);
}

void merge_states(const MergeProblem& p) {
  if (p.rows == 0 || p.num_heads == 0 || p.num_states == 0) return;
  require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  launch_merge_states(p);
}

void move(const MoveProblem& p) {
  if (p.pairs == 0 || p.num_kv_heads == 0 || p.num_pages == 0) return;
  require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  launch_move(p);
}

}  // namespace pagedecode::cuda
