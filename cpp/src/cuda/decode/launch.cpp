// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/decode/launch_variant.h"
#include "cuda/decode_wgmma/launch.h"
#include "cuda/merge/slot.h"
#include "cuda/policy.h"
#include "cuda/schedule/work.h"
#include "pagedecode/error.h"

namespace pagedecode::cuda {
namespace {

// With batch_invariant, splits begin at multiples of this many keys.
constexpr int kInvariantKeys = 4096;
static_assert(kCounterBytes >= kCounters * sizeof(std::uint32_t));
// Of a sequence: kernels count keys in 32 bits, up to two tiles past the last.
constexpr std::int64_t kMostKeys = INT32_MAX - 255;

using LaunchVariant = cudaError_t (*)(const DecodeProblem&, const Plan&, std::size_t,
                                      const DeviceInfo&);

template <int... kIndices>
LaunchVariant launcher(int index, std::integer_sequence<int, kIndices...>) {
  static constexpr LaunchVariant kLaunchers[] = {&launch_variant<kIndices>...};
  return kLaunchers[index];
}

// Which kernels may be chosen.
enum class Kernels {
  kAll,
  kIndependent,  // not those whose blocks wait for each other
  kMma,          // not the wgmma kernels
};

// PAGEDECODE_KERNEL: independent or mma. Read each time: a test may set it.
Kernels allowed_kernels() {
  const char* value = std::getenv("PAGEDECODE_KERNEL");
  if (value == nullptr || *value == '\0') return Kernels::kAll;
  if (std::strcmp(value, "independent") == 0) return Kernels::kIndependent;
  if (std::strcmp(value, "mma") == 0) return Kernels::kMma;
  throw InvalidArgument("PAGEDECODE_KERNEL: got '" + std::string(value) +
                        "', want independent or mma");
}

struct Decision {
  Policy policy;
  WgmmaChoice wgmma;  // goes before `policy`
  Plan plan;
  bool gathers = false;  // splits, in the exchange, and not in `slots`
  std::int64_t slots = 0;
};

Decision decide(const DecodeProblem& p, const DeviceInfo& device, Kernels kernels) {
  Decision d;
  const CacheKind cache = cache_kind(p.q.dtype, p.k.dtype, p.v.dtype, p.rope.on);
  // A call without rows still has a plan: its workspace can be asked for.
  const std::int64_t max_rows = std::max<std::int64_t>(p.max_q, 1) * p.group;
  d.policy = choose_policy(p.q.dtype, cache, needs_options(p), p.head_dim,
                           p.batch_invariant ? p.group : max_rows, device);
  if (d.policy.variant < 0) return d;
  if (kernels == Kernels::kMma) {
    d.wgmma.why_not = "PAGEDECODE_KERNEL=mma";
  } else if (wgmma_is_built()) {
    d.wgmma =
        choose_wgmma(p, device, p.batch_invariant ? p.group : max_rows, kernels == Kernels::kAll);
  } else {
    d.wgmma.why_not = "no wgmma in this build (PAGEDECODE_HOPPER)";
  }
  Plan& plan = d.plan;
  int blocks_per_sm = d.policy.blocks_per_sm;
  int head_dim;
  if (d.wgmma.variant >= 0) {
    const WgmmaVariant& v = kWgmmaVariants[d.wgmma.variant];
    plan.stages = v.stages;
    plan.rows_log2 = log2_of(v.rows);
    plan.tile_log2 = plan.unit_log2 = log2_of(wgmma_keys(v));
    // One block of two warpgroups an SM: 16 splits of the most common problems.
    if (v.groups > 1 && v.order == WgmmaOrder::kKeysFirst) plan.one_level_splits = 16;
    d.gathers =
        kernels == Kernels::kAll && wgmma_gathers(v) && is_to_gather(v, p, device, max_rows);
    blocks_per_sm = v.blocks_per_sm;
    head_dim = v.head_dim;
  } else {
    const Variant& v = kVariants[d.policy.variant];
    plan.stages = d.policy.stages;
    plan.exchange_log2 = d.policy.exchange_log2;
    plan.team_log2 = d.policy.team_log2;
    plan.rows_log2 = log2_of(kWarpRows << d.policy.team_log2);
    plan.tile_log2 = plan.unit_log2 = log2_of(kWarps * v.keys);
    plan.shared = shared_plan(v, plan);
    head_dim = v.head_dim;
  }
  plan.row_tiles_max = static_cast<std::int32_t>(
      std::max<std::int64_t>((max_rows + plan.rows() - 1) / plan.rows(), 1));
  plan.slot_floats = slot_floats(plan.rows(), head_dim);
  plan.group_magic =
      p.group == 1 ? 0
                   : static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + p.group - 1) / p.group);
  // Units are counted in 32 bits.
  const std::int64_t keys = p.pages.width * p.page_size;  // most of one sequence
  const std::int64_t sequences = p.pages.indptr ? 1 : p.batch;
  const auto units = [&] {
    return plan.row_tiles_max * (sequences * (keys >> plan.unit_log2) + 2 * p.batch);
  };
  while (units() >= std::int64_t{1} << 31 && plan.unit_log2 < 30) ++plan.unit_log2;

  const std::int64_t resident =
      std::min<std::int64_t>(std::int64_t{device.sm_count} * blocks_per_sm, kMaxBlocks);
  plan.heads = static_cast<std::int32_t>(std::min<std::int64_t>(p.num_kv_heads, resident));
  plan.chunks =
      even_chunks(static_cast<std::int32_t>(resident / plan.heads), p.batch * plan.row_tiles_max);

  if (p.batch_invariant || p.num_splits > 0) {
    if (p.batch_invariant) {
      plan.fixed_keys = kInvariantKeys;
      plan.splits_max = static_cast<std::int32_t>(
          std::max<std::int64_t>((keys + kInvariantKeys - 1) / kInvariantKeys, 1));
    } else {
      const std::int64_t tiles =
          std::max<std::int64_t>((keys + plan.tile_keys() - 1) / plan.tile_keys(), 1);
      plan.splits_max = static_cast<std::int32_t>(std::min(p.num_splits, tiles));
    }
    const std::int64_t items = p.batch * plan.row_tiles_max;
    plan.partition =
        items * p.num_kv_heads <= resident ? Partition::kSplitItems : Partition::kWholeItems;
  }
  const bool empty = p.batch == 0 || p.total_q == 0 || p.max_q == 0;
  d.slots = empty || d.gathers ? 0 : num_slots(p, plan);
  d.gathers = d.gathers && !empty;
  // One pass over the heads: a block has two slots of the exchange. Few items see to it.
  assert(!d.gathers || plan.heads == p.num_kv_heads);
  return d;
}

// The exchange lies behind the counters, in every call's workspace: what others write to must not
// reach it.
std::size_t exchange_bytes(const DeviceInfo& device) {
  if (!wgmma_is_built() || !has_wgmma(device)) return 0;
  return static_cast<std::size_t>(device.sm_count) * kExchangeBytesOfSm;
}

std::string name(DType t) { return name_of(t); }

std::size_t bytes_of(const Decision& d, const DecodeProblem& p, const DeviceInfo& device) {
  if (d.gathers) {
    // Or what is launched in its stead.
    return bytes_of(decide(p, device, Kernels::kIndependent), p, device);
  }
  if (d.slots == 0) return kWorkspaceAlignment + kCounterBytes;
  return kWorkspaceAlignment + decode_zeroed_bytes(device) +
         static_cast<std::size_t>(d.slots * d.plan.slot_floats) * sizeof(float);
}

cudaError_t launch(Decision& d, const DecodeProblem& p, void* workspace, const DeviceInfo& device) {
  const auto at = (reinterpret_cast<std::uintptr_t>(workspace) + kWorkspaceAlignment - 1) /
                  kWorkspaceAlignment * kWorkspaceAlignment;
  d.plan.counters = reinterpret_cast<std::uint32_t*>(at);
  if (d.gathers) d.plan.exchange = reinterpret_cast<float*>(at + kCounterBytes);
  d.plan.partials = reinterpret_cast<float*>(at + decode_zeroed_bytes(device));
  if (d.wgmma.variant >= 0) return launch_wgmma(d.wgmma.variant, p, d.plan, device);
  const auto mma = launcher(d.policy.variant, std::make_integer_sequence<int, kNumVariants>{});
  return mma(p, d.plan, d.policy.smem, device);
}

// What a call runs. Throws Unsupported.
Decision decide_supported(const DecodeProblem& p, const DeviceInfo& device) {
  if (device.cc_major < 8) {
    throw Unsupported("q: got a GPU of compute capability " + std::to_string(device.cc_major) +
                      "." + std::to_string(device.cc_minor) + ", want 8.0 or newer");
  }
  if (p.q.dtype != DType::kFloat16 && p.q.dtype != DType::kBFloat16) {
    throw Unsupported("q: got " + name(p.q.dtype) + " on CUDA, want float16 or bfloat16");
  }
  for (const auto& [cache, argument] : {std::pair{&p.k, "k_cache"}, std::pair{&p.v, "v_cache"}}) {
    if (cache->dtype != p.q.dtype && !is_one_byte(cache->dtype)) {
      throw Unsupported(std::string(argument) + ": got " + name(cache->dtype) + " on CUDA, want " +
                        name(p.q.dtype) + ", float8_e4m3fn, float8_e5m2 or int8");
    }
  }
  if (p.pages.width * p.page_size > kMostKeys) {
    throw Unsupported("block_table: got room for " + std::to_string(p.pages.width * p.page_size) +
                      " keys on CUDA, want at most " + std::to_string(kMostKeys));
  }
  if (p.total_q >= std::int64_t{1} << 31 || p.max_q * p.group >= std::int64_t{1} << 25 ||
      p.batch >= std::int64_t{1} << 31) {
    throw Unsupported("q: got " + std::to_string(p.total_q) +
                      " rows on CUDA, want a batch and rows below 2^31, and rows of a sequence "
                      "times group below 2^25");
  }
  Decision d = decide(p, device, allowed_kernels());
  if (d.policy.variant < 0) {
    throw Unsupported("q: got head dim " + std::to_string(p.head_dim) + " with " + name(p.k.dtype) +
                      " and " + name(p.v.dtype) +
                      " caches, want a head dim up to 256 and a GPU with 96 KB of shared memory");
  }
  return d;
}

}  // namespace

void check_decode_supported(const DecodeProblem& p, const DeviceInfo& device) {
  decide_supported(p, device);
}

std::size_t decode_workspace_bytes(const DecodeProblem& p, const DeviceInfo& device) {
  return bytes_of(decide(p, device, allowed_kernels()), p, device);
}

std::size_t decode_zeroed_bytes(const DeviceInfo& device) {
  return kCounterBytes + exchange_bytes(device);
}

void launch_decode(const DecodeProblem& p, void* workspace, std::size_t bytes,
                   const DeviceInfo& device) {
  if (p.batch == 0 || p.total_q == 0 || p.max_q == 0 || p.num_kv_heads == 0) return;
  Decision d = decide_supported(p, device);
  const std::size_t need = bytes_of(d, p, device);
  if (bytes < need) {
    throw InvalidArgument("workspace: got " + std::to_string(bytes) + " bytes, want at least " +
                          std::to_string(need));
  }
  cudaError_t error = launch(d, p, workspace, device);
  if (d.gathers && (error == cudaErrorCooperativeLaunchTooLarge || error == cudaErrorNotSupported ||
                    error == cudaErrorNotPermitted)) {
    // The context has a part of the device only (MPS, green contexts), or may not ask for all.
    static_cast<void>(cudaGetLastError());
    d = decide(p, device, Kernels::kIndependent);
    error = launch(d, p, workspace, device);
  }
  if (error != cudaSuccess) {
    throw CudaError(std::string("decode: ") + cudaGetErrorString(error));
  }
}

Explanation explain_decode(const DecodeProblem& p, const DeviceInfo& device) {
  const Decision d = decide(p, device, allowed_kernels());
  Explanation e;
  e.backend = "cuda";
  if (d.policy.variant < 0) {
    e.why = "no kernel for this problem on this device";
    return e;
  }
  const Variant& v = kVariants[d.policy.variant];
  e.kernel = d.wgmma.variant >= 0 ? std::string("wgmma_") + kWgmmaVariants[d.wgmma.variant].name
                                  : std::string("mma_") + v.name;
  e.tile_rows = d.plan.rows();
  e.tile_keys = d.plan.tile_keys();
  e.splits = d.plan.partition == Partition::kBalanced ? d.plan.chunks : d.plan.splits_max;
  e.why = std::to_string(p.max_q * p.group) + " rows (m x group) of head dim " +
          std::to_string(p.head_dim) + ", " + name(p.k.dtype) + " and " + name(p.v.dtype) +
          " caches; " + std::to_string(d.plan.chunks * d.plan.heads) + " blocks, " +
          std::to_string(d.plan.stages) + " stages";
  if (d.wgmma.variant >= 0) {
    if (kWgmmaVariants[d.wgmma.variant].use == WgmmaUse::kFewItems) {
      e.why += "; at most one item (sequence, row tile, KV head) a block";
    }
    if (d.gathers) e.why += "; splits gathered by all blocks";
  } else if (device.cc_major == 9) {
    e.why += std::string("; ") + d.wgmma.why_not;
  }
  if (v.cache == CacheKind::kAny) {
    e.why += p.rope.on ? "; RoPE on read takes the converting kernel"
                       : "; caches of two kinds take the converting kernel";
  }
  if (!p.max_q_known) e.why += "; max_seqlen_q not given: tiles for the worst case";
  if (d.plan.partition == Partition::kBalanced) {
    e.why += "; keys balanced over all blocks from the lengths on the device";
  } else if (p.batch_invariant) {
    e.why += "; batch_invariant: splits of " + std::to_string(d.plan.fixed_keys) + " keys";
  } else {
    e.why += "; num_splits as asked, at most one a tile";
  }
  return e;
}

}  // namespace pagedecode::cuda
