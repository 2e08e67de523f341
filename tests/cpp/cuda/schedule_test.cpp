// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The schedule, run on the host: whatever the lengths, the blocks together walk every key of every
// item once, and agree on who merges what.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "cuda/policy.h"
#include "cuda/schedule/work.h"

namespace pagedecode::cuda {
namespace {

struct Lengths {
  std::vector<std::int32_t> m, n, cu{0};

  void add(int rows, int keys) {
    m.push_back(rows);
    n.push_back(keys);
    cu.push_back(cu.back() + rows);
  }
  DecodeProblem problem(int group, int heads, int page_size) const {
    DecodeProblem p;
    p.batch = static_cast<std::int64_t>(m.size());
    p.total_q = cu.back();
    p.max_q = 0;
    for (int x : m) p.max_q = std::max<std::int64_t>(p.max_q, x);
    p.group = group;
    p.num_kv_heads = heads;
    p.num_q_heads = group * heads;
    p.page_size = page_size;
    p.pages.width = 1 << 20;
    p.seq_lens = {n.data(), 1, false};
    p.cu_seqlens_q = {cu.data(), 1, false};
    return p;
  }
};

Plan make_plan(const DecodeProblem& p, int rows_log2, int blocks, Partition partition) {
  Plan plan;
  plan.rows_log2 = rows_log2;
  plan.heads = static_cast<int>(std::min<std::int64_t>(p.num_kv_heads, blocks));
  plan.chunks = blocks / plan.heads;
  plan.partition = partition;
  plan.row_tiles_max = static_cast<int>((p.max_q * p.group + plan.rows() - 1) / plan.rows());
  plan.slot_floats = 1;
  return plan;
}

// What locate.cuh finds in parallel; the sequence's shape comes along, or the walk loads it.
ChunkStart locate(const DecodeProblem& p, const Plan& plan, int chunk) {
  std::int32_t total = 0;
  auto units = [&](int b) {
    const SequenceShape x = load_shape(p, plan, b);
    return x.row_tiles * x.units;
  };
  for (int b = 0; b < p.batch; ++b) total += units(b);
  ChunkStart s{};
  s.line = ChunkLine(total, plan.chunks);
  for (int b = 0; b < p.batch; ++b) {
    if (s.seq_begin + units(b) > s.line.begin(chunk)) break;
    s.seq_begin += units(b);
    ++s.seq;
  }
  if (chunk % 2 == 0 && s.seq < p.batch) s.shape = load_shape(p, plan, s.seq);
  return s;
}

struct Part {
  int begin, end, split, splits, origin, chunk;
};

// All works of head lane 0, by item (sequence, first row).
std::map<std::tuple<int, int>, std::vector<Part>> walk(const DecodeProblem& p, const Plan& plan) {
  std::map<std::tuple<int, int>, std::vector<Part>> items;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    WorkIterator works(p, plan, locate(p, plan, chunk), chunk, 0);
    Work w{};
    while (works.next(w, [&](int b) { return load_shape(p, plan, b); })) {
      items[{w.seq, w.row0}].push_back({w.begin, w.end, w.split, w.splits, w.origin, chunk});
    }
  }
  return items;
}

void check(const DecodeProblem& p, const Plan& plan, const Lengths& lengths) {
  const auto items = walk(p, plan);
  std::size_t expected = 0;
  std::set<std::int64_t> slots;
  std::set<std::int32_t> counters;
  for (std::size_t b = 0; b < lengths.m.size(); ++b) {
    for (int row0 = 0; row0 < lengths.m[b] * p.group; row0 += plan.rows()) {
      ++expected;
      const auto it = items.find({static_cast<int>(b), row0});
      ASSERT_NE(it, items.end()) << "sequence " << b << " row " << row0;
      const auto& parts = it->second;
      const SequenceView s = load_sequence(p, static_cast<std::int64_t>(b));
      const auto first_key = static_cast<int>(std::min<std::int64_t>(first_visible_key(p, s), s.n));
      int at = first_key;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].split, static_cast<int>(i));
        EXPECT_EQ(parts[i].splits, static_cast<int>(parts.size()));
        EXPECT_EQ(parts[i].origin, parts[0].origin);
        EXPECT_EQ(parts[i].begin, at);
        if (parts[i].begin < parts[i].end && parts[i].begin != first_key) {
          EXPECT_EQ(parts[i].begin % plan.tile_keys(), 0);
        }
        at = parts[i].end;
        if (plan.partition == Partition::kWholeItems) {
          EXPECT_EQ(parts[i].chunk, parts[0].chunk);
        } else if (parts.size() > 1) {
          const std::int64_t slot = ItemSlots(p, plan, parts[i].origin, 0)[static_cast<int>(i)];
          EXPECT_TRUE(slots.insert(slot).second) << "slot used twice";
          EXPECT_LT(slot, num_slots(p, plan));
        }
      }
      EXPECT_EQ(at, s.n);
      if (plan.partition != Partition::kWholeItems && parts.size() > 1) {
        const std::int32_t counter = counter_of(p, plan, parts[0].origin, 0);
        EXPECT_TRUE(counters.insert(counter).second) << "counter used twice";
        EXPECT_LT(counter, plan.chunks * plan.heads);
      }
    }
  }
  EXPECT_EQ(items.size(), expected);
}

TEST(Schedule, CoversEveryKeyOnce) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    Lengths lengths;
    const int batch = 1 + static_cast<int>(rng() % 40);
    for (int b = 0; b < batch; ++b) {
      const int keys = rng() % 4 == 0 ? 0 : static_cast<int>(rng() % (round % 2 ? 300 : 20000));
      lengths.add(static_cast<int>(rng() % 5), keys);
    }
    DecodeProblem p = lengths.problem(1 + static_cast<int>(rng() % 20), 2, 16);
    if (p.max_q == 0) continue;
    if (rng() % 3 == 0) p.window_left = static_cast<std::int64_t>(rng() % 500);
    const int rows_log2 = 4 + static_cast<int>(rng() % 3);
    check(p, make_plan(p, rows_log2, 264, Partition::kBalanced), lengths);

    Plan forced = make_plan(p, rows_log2, 264, Partition::kWholeItems);
    forced.fixed_keys = 4096;
    forced.splits_max = 8;
    check(p, forced, lengths);
    p.num_splits = 1 + static_cast<std::int64_t>(rng() % 9);
    forced.fixed_keys = 0;
    forced.splits_max = static_cast<int>(p.num_splits);
    check(p, forced, lengths);
    if (p.batch * forced.row_tiles_max * p.num_kv_heads <= 264) {
      forced.partition = Partition::kSplitItems;
      check(p, forced, lengths);
    }
  }
}

TEST(Schedule, BalancesWithinOneUnit) {
  Lengths lengths;
  for (int b = 0; b < 64; ++b) lengths.add(1, 8192);
  const DecodeProblem p = lengths.problem(8, 8, 64);
  const Plan plan = make_plan(p, 4, 264, Partition::kBalanced);
  EXPECT_EQ(plan.chunks, 33);
  std::map<int, int> keys;
  for (const auto& [item, parts] : walk(p, plan)) {
    for (const Part& part : parts) keys[part.chunk] += part.end - part.begin;
  }
  for (const auto& [chunk, count] : keys) {
    EXPECT_GE(count, 64 * 8192 / 33 - 64);
    EXPECT_LE(count, 64 * 8192 / 33 + 64);
  }
}

TEST(Schedule, ChunksEndBetweenLikeItems) {
  EXPECT_EQ(even_chunks(33, 16), 32);
  EXPECT_EQ(even_chunks(33, 64), 32);
  EXPECT_EQ(even_chunks(33, 33), 33);
  EXPECT_EQ(even_chunks(49, 16), 48);
  EXPECT_EQ(even_chunks(49, 64), 49);  // 32 would leave a third of the blocks idle
  EXPECT_EQ(even_chunks(16, 0), 16);
  for (int chunks = 1; chunks < 300; ++chunks) {
    for (int items : {1, 2, 3, 7, 16, 31, 100, 1000, 100000}) {
      const int even = even_chunks(chunks, items);
      EXPECT_LE(even, chunks);
      EXPECT_GE(even * 16, chunks * 15);
    }
  }
}

TEST(Schedule, RowOfFlattenedRow) {
  for (int group = 1; group <= 128; ++group) {
    Plan plan;
    plan.group_magic =
        group == 1 ? 0 : static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + group - 1) / group);
    for (int f : {0, 1, group - 1, group, 12345, (1 << 25) - 1, (1 << 25) / group * group - 1}) {
      EXPECT_EQ(plan.row_of(f), f / group) << group << " " << f;
    }
  }
}

TEST(Policy, EveryCallHasAVariantThatFits) {
  const DType caches[] = {DType::kFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kInt8};
  for (int smem : {101376, 166912, 232448}) {  // sm_86 and sm_89, sm_80, sm_90
    DeviceInfo device;
    device.sm_count = 100;
    device.max_smem_optin = smem;
    for (DType k : caches) {
      for (DType v : caches) {
        for (bool options : {false, true}) {
          for (int d = 8; d <= 256; d += 8) {
            for (int rows : {1, 16, 17, 32, 64, 1000}) {
              const Policy policy =
                  choose_policy(DType::kFloat16, cache_kind(DType::kFloat16, k, v, false), options,
                                d, rows, device);
              ASSERT_GE(policy.variant, 0) << d << " " << rows << " " << smem;
              EXPECT_GE(kVariants[policy.variant].head_dim, d);
              EXPECT_LE(policy.smem, static_cast<std::size_t>(smem));
              EXPECT_GE(policy.stages, 1);
              if (kVariants[policy.variant].step_keys > kVariants[policy.variant].keys) {
                EXPECT_GE(policy.team_log2, 1);  // a step takes the keys of two warps
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagedecode::cuda
