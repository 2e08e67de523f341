// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// One item of a plan: the attention of a unit's rows over one split of its keys.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "cpu/kernel.h"
#include "cpu/plan.h"
#include "cpu/rotary.h"

namespace pagedecode::cpu {

// What all items of a call share.
struct Call {
  const DecodeProblem& p;
  const Plan& plan;
  const Level& level;
  Variant variant;
  const RotaryTable* rotary = nullptr;

  // Partial states of the wave's units with more than one split: slot_floats each, of
  // (heads, rows, 2 + D): maximum, sum, out. The last split of a unit to arrive merges all, in
  // order.
  float* slots = nullptr;
  std::int64_t slot_floats = 0;
  std::int64_t first_slot = 0;                   // of the wave
  std::atomic<std::int32_t>* arrived = nullptr;  // by slot; used at each unit's first slot
};

void run_item(const Call& call, std::int64_t item);

}  // namespace pagedecode::cpu
