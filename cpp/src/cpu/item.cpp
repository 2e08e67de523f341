// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// For each tile of 64 keys and each KV head: stage K, logits, softmax, stage V, accumulate, all of
// them steps of the level's kernel (isa/), while the next tile's rows are prefetched. Then either
// the rows' results, or, where the keys are split, a partial state; the last split to arrive merges
// them all.
#include "cpu/item.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "cpu/convert.h"
#include "cpu/output.h"
#include "cpu/tiles.h"

namespace pagedecode::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// Positions are the caller's and may be anything; differences of these cannot overflow.
constexpr std::int64_t kFarPosition = std::int64_t{1} << 61;

// One thread's memory, made once: 1.5 MB, of which a call touches what its shapes need.
struct ThreadMemory {
  Scratch scratch = {};
  RowState states[kMaxUnitHeads];
  TileTask tasks[2];
  float rotated[kTileKeys * kMaxHeadDim];  // q rows first, then each tile's k rows
  const char* rotated_rows[kTileKeys];
  const char* coming[kTileKeys];  // rows to prefetch
  LineCursor cursor;
  std::int64_t row_positions[kTileRows];
  std::int64_t key_positions[kTileKeys];
  Rotator rotator;
};

ThreadMemory& thread_memory() {
  thread_local const std::unique_ptr<ThreadMemory> memory(new ThreadMemory);
  return *memory;
}

class ItemRunner {
 public:
  ItemRunner(const Call& call, std::int64_t item)
      : call_(call), p_(call.p), memory_(thread_memory()) {
    const std::int64_t b = call.plan.sequence_of_item(item);
    const SequencePlan& s = call.plan.sequences[static_cast<std::size_t>(b)];
    const std::int64_t in_sequence = item - s.item_begin;
    splits_ = s.splits;
    split_ = in_sequence % splits_;
    unit_ = unit_at(p_, call.plan, b, in_sequence / splits_);
    slot_ = s.slot_begin + in_sequence - split_;
    sequence_ = load_sequence(p_, b);
    keys_ = balanced_split(s.key_begin, s.key_end, kTileKeys, splits_, split_);
    rows_ = static_cast<int>(unit_.row_end - unit_.row_begin);
    heads_ = static_cast<int>(unit_.head_end - unit_.head_begin);
  }

  void run() {
    TileWalker walker(p_, sequence_, unit_, keys_, memory_.scratch.zeros);
    TileTask* task = &memory_.tasks[0];
    TileTask* next = &memory_.tasks[1];
    bool more = walker.next(*task);
    init(walker);
    if (more) {
      if (call_.variant.begin) call_.variant.begin();
      for (int head = 0; head < heads_; ++head) load_q(walker, head);
      while (more) {
        more = walker.next(*next);
        set_key_positions(*task);
        for (int head = 0; head < heads_; ++head) {
          if (head > 0) walker.next_head(*task);
          run_tile(*task, head, more ? next : nullptr);
        }
        TileTask* const done = task;
        task = next;
        next = done;
      }
      if (call_.variant.end) call_.variant.end();
    }
    if (splits_ > 1) return leave_partial();
    for (int head = 0; head < heads_; ++head) {
      const RowState& state = memory_.states[head];
      for (int r = 0; r < rows_; ++r) {
        finish_row(head, r, {state.max[r], state.sum[r], state.out + r * args_.padded_dim});
      }
    }
  }

 private:
  std::int64_t query_row(int r) const { return (unit_.row_begin + r) / p_.group; }
  // `head`: of the unit's.
  std::int64_t query_head(int head, int r) const {
    return (unit_.head_begin + head) * p_.group + (unit_.row_begin + r) % p_.group;
  }

  void init(const TileWalker& walker) {
    args_.rows = rows_;
    args_.head_dim = p_.head_dim;
    args_.padded_dim = (p_.head_dim + kDimPad - 1) / kDimPad * kDimPad;
    args_.softcap = p_.softcap;
    args_.alibi = static_cast<bool>(p_.alibi_slopes);
    args_.row_positions = memory_.row_positions;
    args_.key_positions = memory_.key_positions;
    args_.scratch = &memory_.scratch;
    args_.cursor = &memory_.cursor;
    for (int head = 0; head < heads_; ++head) {
      RowState& state = memory_.states[head];
      for (int r = 0; r < rows_; ++r) {
        state.max[r] = kMinusInf;
        state.sum[r] = 0.0f;
        if (args_.alibi) state.slope[r] = p_.alibi_slopes[query_head(head, r)];
      }
      std::memset(state.out, 0, sizeof(float) * static_cast<std::size_t>(rows_ * args_.padded_dim));
    }
    if (!args_.alibi) return;
    for (int r = 0; r < rows_; ++r) {
      memory_.row_positions[r] =
          clamp64(walker.row(query_row(r)).position, -kFarPosition, kFarPosition);
    }
  }

  void use_head(int head) {
    args_.state = &memory_.states[head];
    args_.logit_scale = p_.softmax_scale * p_.k_scale[unit_.head_begin + head];
  }

  void load_q(const TileWalker& walker, int head) {
    const bool ragged = static_cast<bool>(p_.cu_seqlens_q);
    const char* addresses[kTileRows];
    if (call_.rotary) memory_.rotator.use(call_.rotary);
    for (int r = 0; r < rows_; ++r) {
      const std::int64_t i = query_row(r);
      const std::int64_t at =
          row_offset(p_.q, sequence_, i, ragged) + query_head(head, r) * p_.q.head_stride;
      addresses[r] = static_cast<const char*>(p_.q.data) + at * bytes_of(p_.q.dtype);
      if (call_.rotary) {
        float* const row = memory_.rotated + r * p_.head_dim;
        load_row(p_.q.dtype, addresses[r], p_.head_dim, row);
        memory_.rotator.rotate(walker.row(i).position, row);
        addresses[r] = reinterpret_cast<const char*>(row);
      }
    }
    use_head(head);
    call_.variant.load_q(args_, addresses);
  }

  void set_key_positions(const TileTask& task) {
    if (!args_.alibi) return;
    for (int j = 0; j < kTileKeys; ++j) {
      const std::int64_t key = task.first_key + j;
      const std::int64_t position = key < sequence_.n ? key_position(p_, sequence_, key) : 0;
      memory_.key_positions[j] = clamp64(position, -kFarPosition, kFarPosition);
    }
  }

  // What comes after this head's K: its V; after its V: K of the next head, or of the next tile.
  void run_tile(const TileTask& task, int head, const TileTask* next) {
    use_head(head);
    const Variant& variant = call_.variant;
    aim(task.v_rows, task.keys, p_.v);
    variant.stage_k(args_, task, call_.rotary ? rotate_keys(task) : task.k_rows);
    variant.logits(args_, task);
    if (head + 1 < heads_) {
      const std::int64_t step = p_.k.head_stride * bytes_of(p_.k.dtype);
      for (int j = 0; j < task.keys; ++j) {
        memory_.coming[j] = task.seen >> j & 1 ? task.k_rows[j] + step : task.k_rows[j];
      }
      aim(memory_.coming, task.keys, p_.k);
    } else {
      aim(next ? next->k_rows : nullptr, next ? next->keys : 0, p_.k);
    }
    variant.stage_v(args_, task, task.v_rows);
    variant.softmax(args_, task);  // (after stage_v: its stores have time to reach L1)
    variant.accumulate(args_, task, task.v_rows);
  }

  void aim(const char* const* rows, int count, const CacheView& c) {
    const auto bytes = static_cast<int>(p_.head_dim * bytes_of(c.dtype));
    memory_.cursor = {rows, rows + count, nullptr, nullptr, bytes};
  }

  // K rows in float32, rotated.
  const char* const* rotate_keys(const TileTask& task) {
    for (int j = 0; j < kTileKeys; ++j) {
      memory_.rotated_rows[j] = task.k_rows[j];
      if (!(task.seen >> j & 1)) continue;
      float* const row = memory_.rotated + j * p_.head_dim;
      load_row(p_.k.dtype, task.k_rows[j], p_.head_dim, row);
      memory_.rotator.rotate(key_position(p_, sequence_, task.first_key + j), row);
      memory_.rotated_rows[j] = reinterpret_cast<const char*>(row);
    }
    return memory_.rotated_rows;
  }

  void finish_row(int head, int r, const RowResult& row) {
    write_row(call_, sequence_, query_row(r), unit_.head_begin + head, query_head(head, r), row);
  }

  float* slot(std::int64_t split) const {
    return call_.slots + (slot_ + split - call_.first_slot) * call_.slot_floats;
  }

  void leave_partial() {
    const std::int64_t stride = 2 + p_.head_dim;
    float* row = slot(split_);
    for (int head = 0; head < heads_; ++head) {
      const RowState& state = memory_.states[head];
      for (int r = 0; r < rows_; ++r, row += stride) {
        row[0] = state.max[r];
        row[1] = state.sum[r];
        std::memcpy(row + 2, state.out + r * args_.padded_dim,
                    sizeof(float) * static_cast<std::size_t>(p_.head_dim));
      }
    }
    auto& arrived = call_.arrived[slot_ - call_.first_slot];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < splits_) return;
    for (int head = 0; head < heads_; ++head) {
      for (int r = 0; r < rows_; ++r) merge_row(head, r, (head * rows_ + r) * stride);
    }
  }

  // Adds up one row's partial states in split order.
  void merge_row(int head, int r, std::int64_t at) {
    float max = kMinusInf;
    for (std::int64_t s = 0; s < splits_; ++s) {
      if (slot(s)[at] > max) max = slot(s)[at];
    }
    const float reference = max == kMinusInf ? 0.0f : max;
    float sum = 0.0f;
    float* const out = memory_.states[0].out;
    std::memset(out, 0, sizeof(float) * static_cast<std::size_t>(p_.head_dim));
    for (std::int64_t s = 0; s < splits_; ++s) {
      const float* const part = slot(s) + at;
      if (part[1] == 0.0f) continue;  // saw nothing
      const float weight = part[0] == kMinusInf ? 1.0f : std::exp(part[0] - reference);
      sum += part[1] * weight;
      for (std::int64_t d = 0; d < p_.head_dim; ++d) out[d] += part[2 + d] * weight;
    }
    finish_row(head, r, {max, sum, out});
  }

  const Call& call_;
  const DecodeProblem& p_;
  ThreadMemory& memory_;
  Unit unit_ = {};
  SequenceView sequence_ = {};
  KeyRange keys_ = {};
  std::int64_t splits_ = 1;
  std::int64_t split_ = 0;
  std::int64_t slot_ = 0;
  int rows_ = 0;
  int heads_ = 0;
  ItemArgs args_;
};

}  // namespace

void run_item(const Call& call, std::int64_t item) { ItemRunner(call, item).run(); }

}  // namespace pagedecode::cpu
