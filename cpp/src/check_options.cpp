// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// The options of decode: numbers, masks, positions, per-head arrays, scales; then its outputs.
#include <cmath>
#include <string>

#include "check_decode.h"
#include "check_util.h"

namespace pagedecode {
namespace {

constexpr float kFloatMax = 3.4028234663852886e38f;

bool finite_as_float(double x) { return std::fabs(x) <= static_cast<double>(kFloatMax); }

void check_numbers(const DecodeArgs& a, DecodeProblem* p) {
  const double scale = a.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(p->head_dim)));
  if (!finite_as_float(scale)) throw_argument("softmax_scale", text(scale), "a finite number");
  p->softmax_scale = static_cast<float>(scale);

  const auto cap = static_cast<float>(a.softcap);
  // A cap that is 0 in float32 alone would silently turn itself off.
  if (!(a.softcap >= 0) || !finite_as_float(a.softcap) || (a.softcap > 0 && !(cap > 0))) {
    throw_argument("softcap", text(a.softcap), "a finite float32 number, 0 (off) or more");
  }
  p->softcap = cap;

  if (a.window_left < -1) {
    throw_argument("window_left", std::to_string(a.window_left), "-1 (all) or more");
  }
  p->window_left = a.window_left;

  p->batch_invariant = a.batch_invariant;
  if (!a.num_splits) return;
  if (*a.num_splits < 1 || *a.num_splits > kMaxCount) {
    throw_argument("num_splits", std::to_string(*a.num_splits), "1 or more (below 2^31), or None");
  }
  if (a.batch_invariant) {
    throw_argument("num_splits", std::to_string(*a.num_splits),
                   "None with batch_invariant, whose splits are fixed");
  }
  p->num_splits = *a.num_splits;
}

void check_rope(const Rope& rope, DecodeProblem* p) {
  if (!(rope.theta > 0) || !std::isfinite(rope.theta)) {
    throw_argument("rope", "theta " + text(rope.theta), "a finite theta above 0");
  }
  if (!(rope.scale > 0) || !std::isfinite(rope.scale)) {
    throw_argument("rope", "scale " + text(rope.scale), "a finite scale above 0");
  }
  p->rope = {true, rope.interleaved, rope.theta, rope.scale};
}

void check_mask(const Tensor& t, DecodeProblem* p) {
  const char* name = "draft_mask";
  check_dtype(name, t, {DType::kBool, DType::kUInt32});
  const bool packed = t.dtype == DType::kUInt32;
  check_shape(name, t, {{"total_q", p->total_q}, {packed ? "words" : "width", kAny}});
  check_device(name, t, p->device);
  check_data(name, t);
  if (t.shape[1] > kMaxCount / 32) {
    throw_unsupported(name, "shape " + shape_text(t), "fewer than 2^31 columns");
  }
  p->draft_mask.kind = packed ? MaskKind::kPacked : MaskKind::kBool;
  p->draft_mask.data = t.data;
  p->draft_mask.row_stride = stride_of(t, 0);
  p->draft_mask.col_stride = stride_of(t, 1);
  p->draft_mask.width = packed ? t.shape[1] * 32 : t.shape[1];
}

}  // namespace

void check_mask_width(const DecodeArgs& a, std::int64_t largest_m) {
  if (!a.draft_mask) return;
  const Tensor& t = *a.draft_mask;
  const std::int64_t words = largest_m / 32 + (largest_m % 32 != 0);
  const std::int64_t columns = saturating_product(32, words);
  const bool right = t.dtype == DType::kUInt32 ? t.shape[1] == words
                                               : t.shape[1] == largest_m || t.shape[1] == columns;
  if (right) return;
  const std::string of = a.max_seqlen_q ? "max_seqlen_q = " : "the largest m = ";
  if (t.dtype == DType::kUInt32) {
    throw_argument("draft_mask", "shape " + shape_text(t),
                   "rows of " + std::to_string(words) +
                       (words == 1 ? " word for " : " words for ") + of +
                       std::to_string(largest_m));
  }
  throw_argument("draft_mask", "shape " + shape_text(t),
                 "a width of " + std::to_string(largest_m) + " or " + std::to_string(columns) +
                     " for " + of + std::to_string(largest_m));
}

ScaleView check_scale(const char* name, const Scale& scale, std::int64_t num_kv_heads,
                      Device device) {
  ScaleView view;
  if (scale.array) {
    const Tensor& t = *scale.array;
    const bool shared = t.ndim == 1 && t.shape[0] == 1;
    view.array =
        check_floats(name, t, shared ? Dim{"1", 1} : Dim{"1 or Hkv", num_kv_heads}, device);
    return view;
  }
  view.value = static_cast<float>(scale.value);
  if (!finite_as_float(scale.value) || !(view.value > 0)) {
    throw_argument(name, text(scale.value), "a finite float32 number above 0");
  }
  return view;
}

void check_options(const DecodeArgs& a, DecodeProblem* p) {
  check_numbers(a, p);
  p->causal = a.causal;
  check_lse_base(a.lse_base);
  p->lse_base2 = a.lse_base == LseBase::k2;
  if (a.draft_mask) check_mask(*a.draft_mask, p);
  if (p->uniform_q >= 0 || a.max_seqlen_q) {
    check_mask_width(a, a.max_seqlen_q.value_or(p->uniform_q));
  }
  if (a.positions) {
    p->positions = check_indices("positions", *a.positions, {"total_q", p->total_q}, p->device);
  }
  const Dim heads{"Hq", p->num_q_heads};
  if (a.alibi_slopes) {
    p->alibi_slopes = check_floats("alibi_slopes", *a.alibi_slopes, heads, p->device);
  }
  if (a.sinks) p->sinks = check_floats("sinks", *a.sinks, heads, p->device);
  if (a.rope) check_rope(*a.rope, p);
  p->k_scale = check_scale("k_scale", a.k_scale, p->num_kv_heads, p->device);
  p->v_scale = check_scale("v_scale", a.v_scale, p->num_kv_heads, p->device);
}

}  // namespace pagedecode
