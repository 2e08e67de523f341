// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend's entry points: the arrays' device for the call, memory, launch. Calls with
// nothing to do return before they touch CUDA.
#include <cstdint>
#include <string>

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
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

// What a workspace's start is rounded up to; a given one may start anywhere.
constexpr std::size_t kAlignment = 256;

void* aligned(void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

// With what aligning a given workspace may cost.
std::size_t with_slack(std::size_t bytes) { return bytes == 0 ? 0 : bytes + kAlignment - 1; }

}  // namespace

BackendStatus status() {
  BackendStatus s;
  s.built = true;
  s.why = why_not(probe());
  s.runs = s.why.empty();
  return s;
}

void check_supported(const DecodeProblem& p) {
  require_device(p.device.index);
  check_decode_supported(p);
}

std::size_t workspace_size(const DecodeProblem& p) {
  return with_slack(decode_workspace_bytes(p, require_device(p.device.index)));
}

Explanation explain(const DecodeProblem& p) {
  return explain_decode(p, require_device(p.device.index));
}

void decode(const DecodeProblem& p) {
  if (p.batch == 0 || p.total_q == 0) return;
  const DeviceInfo& device = require_device(p.device.index);
  const DeviceGuard guard(p.device.index);
  DecodeProblem call = p;
  call.workspace_bytes = decode_workspace_bytes(p, device);
  if (p.workspace != nullptr) {
    call.workspace = aligned(p.workspace);  // its size was checked with workspace_size
  } else if (call.workspace_bytes > 0) {
    call.workspace = workspace(Purpose::kDecode, p.device.index, p.stream, call.workspace_bytes);
  }
  launch_decode(call, device);
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
