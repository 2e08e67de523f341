// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// For each tile of 64 keys: stage K, logits, softmax, stage V, accumulate, all of them steps of the
// level's kernel (isa/), while the next tile's rows are prefetched. Then either the rows' results,
// or, where the keys are split, a partial state; the last split to arrive merges them all.
#include "cpu/item.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "cpu/convert.h"
#include "cpu/tiles.h"

namespace pagedecode::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// Positions are the caller's and may be anything; differences of these cannot overflow.
constexpr std::int64_t kFarPosition = std::int64_t{1} << 61;

// One thread's memory, made once: 0.5 MB.
struct ThreadMemory {
  Scratch scratch = {};
  RowState state = {};
  TileTask tasks[2] = {};
  float rotated[kTileKeys * kMaxHeadDim] = {};  // q rows first, then each tile's k rows
  std::int64_t row_positions[kTileRows] = {};
  std::int64_t key_positions[kTileKeys] = {};
  Rotator rotator;
};

ThreadMemory& thread_memory() {
  thread_local const std::unique_ptr<ThreadMemory> memory = std::make_unique<ThreadMemory>();
  return *memory;
}

// A row's softmax over some of its keys: sum and out are of exp(logit - max).
struct RowResult {
  float max;
  float sum;
  const float* out;
};

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
  }

  void run() {
    TileWalker walker(p_, sequence_, unit_, keys_, memory_.scratch.zeros);
    TileTask* task = &memory_.tasks[0];
    TileTask* next = &memory_.tasks[1];
    bool more = walker.next(*task);
    init(walker);
    if (more) {
      if (call_.variant.begin) call_.variant.begin();
      load_q(walker);
      while (more) {
        more = walker.next(*next);
        run_tile(*task, more ? next : nullptr);
        TileTask* const done = task;
        task = next;
        next = done;
      }
      if (call_.variant.end) call_.variant.end();
    }
    if (splits_ == 1) {
      for (int r = 0; r < rows_; ++r) {
        finish_row(r, {memory_.state.max[r], memory_.state.sum[r],
                       memory_.state.out + r * args_.padded_dim});
      }
    } else {
      leave_partial();
    }
  }

 private:
  std::int64_t query_row(int r) const { return (unit_.row_begin + r) / p_.group; }
  std::int64_t query_head(int r) const {
    return unit_.head * p_.group + (unit_.row_begin + r) % p_.group;
  }

  void init(const TileWalker& walker) {
    args_.rows = rows_;
    args_.head_dim = p_.head_dim;
    args_.padded_dim = (p_.head_dim + kDimPad - 1) / kDimPad * kDimPad;
    args_.logit_scale = p_.softmax_scale * p_.k_scale[unit_.head];
    args_.softcap = p_.softcap;
    args_.alibi = static_cast<bool>(p_.alibi_slopes);
    args_.k_row_bytes = static_cast<int>(p_.head_dim * bytes_of(p_.k.dtype));
    args_.v_row_bytes = static_cast<int>(p_.head_dim * bytes_of(p_.v.dtype));
    args_.state = &memory_.state;
    args_.scratch = &memory_.scratch;
    for (int r = 0; r < rows_; ++r) {
      memory_.state.max[r] = kMinusInf;
      memory_.state.sum[r] = 0.0f;
    }
    std::memset(memory_.state.out, 0,
                sizeof(float) * static_cast<std::size_t>(rows_ * args_.padded_dim));
    if (!args_.alibi) return;
    args_.row_positions = memory_.row_positions;
    args_.key_positions = memory_.key_positions;
    for (int r = 0; r < rows_; ++r) {
      memory_.state.slope[r] = p_.alibi_slopes[query_head(r)];
      memory_.row_positions[r] =
          clamp64(walker.row(query_row(r)).position, -kFarPosition, kFarPosition);
    }
  }

  void load_q(const TileWalker& walker) {
    const bool ragged = static_cast<bool>(p_.cu_seqlens_q);
    const char* addresses[kTileRows];
    if (call_.rotary) memory_.rotator.use(call_.rotary);
    for (int r = 0; r < rows_; ++r) {
      const std::int64_t i = query_row(r);
      const std::int64_t at =
          row_offset(p_.q, sequence_, i, ragged) + query_head(r) * p_.q.head_stride;
      addresses[r] = static_cast<const char*>(p_.q.data) + at * bytes_of(p_.q.dtype);
      if (call_.rotary) {
        float* const row = memory_.rotated + r * p_.head_dim;
        load_row(p_.q.dtype, addresses[r], p_.head_dim, row);
        memory_.rotator.rotate(walker.row(i).position, row);
        addresses[r] = reinterpret_cast<const char*>(row);
      }
    }
    call_.variant.load_q(args_, addresses);
  }

  void run_tile(TileTask& task, const TileTask* next) {
    if (args_.alibi) {
      for (int j = 0; j < kTileKeys; ++j) {
        const std::int64_t key = task.first_key + j;
        memory_.key_positions[j] = key < sequence_.n ? clamp64(key_position(p_, sequence_, key),
                                                               -kFarPosition, kFarPosition)
                                                     : 0;
      }
    }
    if (call_.rotary) rotate_keys(task);
    call_.variant.stage_k(args_, task, next);
    call_.variant.logits(args_, task);
    call_.variant.softmax(args_, task);
    call_.variant.stage_v(args_, task, next);
    call_.variant.accumulate(args_, task);
  }

  // K in float32, rotated, takes the place of the cache's rows.
  void rotate_keys(TileTask& task) {
    for (int j = 0; j < task.keys; ++j) {
      if (!(task.seen >> j & 1)) continue;
      float* const row = memory_.rotated + j * p_.head_dim;
      load_row(p_.k.dtype, task.k_rows[j], p_.head_dim, row);
      memory_.rotator.rotate(key_position(p_, sequence_, task.first_key + j), row);
      task.k_rows[j] = reinterpret_cast<const char*>(row);
    }
  }

  // The softmax denominator closes: sinks, scales, LSE.
  void finish_row(int r, const RowResult& row) {
    const std::int64_t i = query_row(r);
    const std::int64_t head = query_head(r);
    double total = row.sum;
    double reference = row.sum == 0.0f ? kMinusInf : row.max == kMinusInf ? 0.0f : row.max;
    double weight = 1.0;  // of the keys against the sink
    if (p_.sinks && p_.sinks[head] != kMinusInf) {
      const double sink = p_.sinks[head];
      if (row.sum == 0.0f) {
        total = 1.0;
        reference = sink;
      } else {
        const double top = reference > sink ? reference : sink;
        weight = std::exp(reference - top);
        total = total * weight + std::exp(sink - top);
        reference = top;
      }
    }
    const bool ragged = static_cast<bool>(p_.cu_seqlens_q);
    char* const out = static_cast<char*>(p_.out.data) +
                      (row_offset(p_.out, sequence_, i, ragged) + head * p_.out.head_stride) *
                          bytes_of(p_.out.dtype);
    if (row.sum == 0.0f) {
      // Nothing seen, or logits of -inf alone.
      call_.level.store_row(p_.out.dtype, memory_.scratch.zeros, 1.0f, p_.head_dim, out);
    } else {
      const auto scale = static_cast<float>(weight / total * p_.v_scale[unit_.head]);
      call_.level.store_row(p_.out.dtype, row.out, scale, p_.head_dim, out);
    }
    if (p_.lse.data == nullptr) return;
    double lse = total == 0.0 ? kMinusInf : reference + std::log(total);
    if (p_.lse_base2) lse *= 1.44269504088896340736;
    p_.lse.data[(sequence_.first_row + i) * p_.lse.row_stride + head * p_.lse.head_stride] =
        static_cast<float>(lse);
  }

  float* slot(std::int64_t split) const {
    return call_.slots + (slot_ + split - call_.first_slot) * call_.slot_floats;
  }

  void leave_partial() {
    const std::int64_t stride = 2 + p_.head_dim;
    float* const mine = slot(split_);
    for (int r = 0; r < rows_; ++r) {
      float* const row = mine + r * stride;
      row[0] = memory_.state.max[r];
      row[1] = memory_.state.sum[r];
      std::memcpy(row + 2, memory_.state.out + r * args_.padded_dim,
                  sizeof(float) * static_cast<std::size_t>(p_.head_dim));
    }
    auto& arrived = call_.arrived[slot_ - call_.first_slot];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < splits_) return;
    for (int r = 0; r < rows_; ++r) merge_row(r, r * stride);
  }

  // Adds up one row's partial states in split order.
  void merge_row(int r, std::int64_t at) {
    float max = kMinusInf;
    for (std::int64_t s = 0; s < splits_; ++s) {
      if (slot(s)[at] > max) max = slot(s)[at];
    }
    const float reference = max == kMinusInf ? 0.0f : max;
    float sum = 0.0f;
    float* const out = memory_.state.out;
    std::memset(out, 0, sizeof(float) * static_cast<std::size_t>(p_.head_dim));
    for (std::int64_t s = 0; s < splits_; ++s) {
      const float* const part = slot(s) + at;
      if (part[1] == 0.0f) continue;  // saw nothing
      const float weight = part[0] == kMinusInf ? 1.0f : std::exp(part[0] - reference);
      sum += part[1] * weight;
      for (std::int64_t d = 0; d < p_.head_dim; ++d) out[d] += part[2 + d] * weight;
    }
    finish_row(r, {max, sum, out});
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
  ItemArgs args_;
};

}  // namespace

void run_item(const Call& call, std::int64_t item) { ItemRunner(call, item).run(); }

}  // namespace pagedecode::cpu
