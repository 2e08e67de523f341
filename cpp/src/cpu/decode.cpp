// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// decode on the CPU: plan the call, then hand its items to the thread pool.
#include "cpu/decode.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "backend.h"
#include "cpu/item.h"
#include "cpu/levels.h"
#include "cpu/plan.h"
#include "cpu/thread_pool.h"
#include "pagedecode/error.h"

namespace pagedecode::cpu {
namespace {

// Tiles (about 1 us each) below which waking another thread costs more than it saves.
constexpr std::int64_t kSerialTiles = 48;

struct Wave {
  std::int64_t item_end;
  std::int64_t slots;
};

// As many items from the first of unit `unit` on as their partial states fit; moves `unit` past.
Wave next_wave(const Plan& plan, std::int64_t capacity, std::int64_t& unit) {
  Wave wave = {0, 0};
  for (;;) {
    const std::int64_t b = plan.sequence_of_unit(unit);
    const SequencePlan& s = plan.sequences[static_cast<std::size_t>(b)];
    const std::int64_t left = s.unit_begin + s.row_blocks * plan.head_groups - unit;
    std::int64_t take = left;
    if (s.splits > 1) {
      take = min64(left, (capacity - wave.slots) / s.splits);
      wave.slots += take * s.splits;
    }
    unit += take;
    wave.item_end = s.item_begin + (unit - s.unit_begin) * s.splits;
    if (take < left || unit == plan.units()) return wave;
  }
}

DType loaded_as(const DecodeProblem& p, DType dtype) {
  return p.rope.on ? DType::kFloat32 : dtype;  // rotated rows
}

Variant variant_of(const DecodeProblem& p, const Level& level) {
  return level.variant(loaded_as(p, p.q.dtype), loaded_as(p, p.k.dtype), p.v.dtype);
}

}  // namespace

void decode(const DecodeProblem& p) { decode_at(p, active_level()); }

void decode_at(const DecodeProblem& p, const Level& level) {
  const int threads = max_threads();
  const Plan plan = make_plan(p, threads);
  if (plan.units() == 0) return;
  const auto rotary = rotary_table(p.rope, p.head_dim);

  Call call{p, plan, level, variant_of(p, level)};
  call.rotary = rotary.get();
  call.slot_floats = plan.slot_floats(p.head_dim);
  const std::int64_t all_slots = plan.sequences.back().slot_begin;
  const std::int64_t fit =
      kWaveBytes / (call.slot_floats * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t capacity = max64(min64(all_slots, fit), plan.max_splits);
  std::unique_ptr<float[]> slots;
  std::unique_ptr<std::atomic<std::int32_t>[]> arrived;
  if (all_slots > 0) {
    slots.reset(new float[static_cast<std::size_t>(capacity * call.slot_floats)]);
    arrived.reset(new std::atomic<std::int32_t>[static_cast<std::size_t>(capacity)]);
    call.slots = slots.get();
    call.arrived = arrived.get();
  }

  const int used = plan.tiles < kSerialTiles ? 1 : threads;
  std::int64_t item = 0;
  for (std::int64_t unit = 0; unit < plan.units();) {
    const Wave wave = next_wave(plan, capacity, unit);
    for (std::int64_t i = 0; i < wave.slots; ++i)
      call.arrived[i].store(0, std::memory_order_relaxed);
    auto run = [&](std::int64_t i) { run_item(call, item + i); };
    parallel_for(wave.item_end - item, used, run);
    item = wave.item_end;
    call.first_slot += wave.slots;
  }
}

std::size_t workspace_size(const DecodeProblem&) {
  return 0;  // scratch belongs to the threads, partial states to the call
}

Explanation explain(const DecodeProblem& p) {
  const Level& level = active_level();
  const int threads = max_threads();
  const Plan plan = make_plan(p, threads);
  const bool serial = plan.tiles < kSerialTiles;
  Explanation e;
  e.backend = "cpu";
  e.kernel = std::string(level.name) + "/" + variant_of(p, level).name;
  e.tile_rows = static_cast<int>(plan.max_block_rows);
  e.tile_keys = kTileKeys;
  e.splits = plan.max_splits;
  e.why = std::to_string(plan.units()) + " units (sequence, " +
          std::to_string(plan.heads_per_unit) + " KV heads, block of rows) of " +
          std::to_string(plan.tiles) + " tiles in all, " +
          std::to_string(plan.sequences.back().item_begin) + " items on " +
          std::to_string(serial ? 1 : threads) + (serial || threads == 1 ? " thread" : " threads");
  if (serial) e.why += "; too little work to wake others";
  if (p.batch_invariant) e.why += "; never split: batch_invariant";
  if (p.num_splits > 0) {
    e.why += "; num_splits was given";
    if (plan.max_splits < p.num_splits) {
      e.why += ", capped at one for each tile of keys and at " + std::to_string(kMaxSplits);
    }
  }
  if (p.rope.on) e.why += "; rows are rotated in float32 first";
  return e;
}

BackendStatus status() {
  BackendStatus s;
  s.built = true;
  try {
    active_level();
    s.runs = true;
  } catch (const Error& e) {
    s.why = e.what();
  }
  return s;
}

}  // namespace pagedecode::cpu
