// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// decode and the three calls that share its arguments.
#include "pagedecode/decode.h"

#include <nanobind/nanobind.h>

#include <cstdlib>
#include <string>

#include "arrays.h"
#include "calls.h"
#include "gil.h"
#include "pagedecode/error.h"
#include "values.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

// Positional arguments of the calls below, in this order; python/pagedecode/_decode.py packs them.
enum Argument {
  kQ,
  kKCache,
  kVCache,
  kBlockTable,
  kPageIndptr,
  kPageIndices,
  kSeqLens,
  kCuSeqlensQ,
  kMaxSeqlenQ,
  kKvLayout,
  kKvDtype,
  kSoftmaxScale,
  kCausal,
  kDraftMask,
  kPositions,
  kWindowLeft,
  kSoftcap,
  kAlibiSlopes,
  kSinks,
  kRope,
  kKScale,
  kVScale,
  kOut,
  kLse,
  kLseBase,
  kNumSplits,
  kBatchInvariant,
  kWorkspace,
  kStream,
  kArguments,
};

// PAGEDECODE_CHECK=1 checks contents on every call. Read each time: a test may set it.
bool check_everything() {
  const char* value = std::getenv("PAGEDECODE_CHECK");
  if (value == nullptr || value[0] == '\0') return false;
  if (value[1] == '\0' && (value[0] == '0' || value[0] == '1')) return value[0] == '1';
  throw InvalidArgument("PAGEDECODE_CHECK: got '" + std::string(value) + "', want 0 or 1");
}

class Inputs {
 public:
  explicit Inputs(const nb::args& args) : tuple_(args) {
    if (args.size() != kArguments) throw nb::type_error("_core: wrong number of arguments");
  }
  nb::handle operator[](Argument i) const { return PyTuple_GetItem(tuple_.ptr(), i); }

 private:
  nb::handle tuple_;
};

struct DecodeCall {
  Arrays arrays;
  DecodeArgs args;

  explicit DecodeCall(const Inputs& in) : arrays(in[kStream]) {
    // q comes first: its library's current stream is the call's.
    args.q = arrays.read(in[kQ], "q");
    args.k_cache = arrays.read(in[kKCache], "k_cache");
    args.v_cache = arrays.read(in[kVCache], "v_cache");
    name_cache_types(in[kKvDtype], &args.k_cache, &args.v_cache);
    args.block_table = arrays.read_optional(in[kBlockTable], "block_table");
    args.page_indptr = arrays.read_optional(in[kPageIndptr], "block_table.indptr");
    args.page_indices = arrays.read_optional(in[kPageIndices], "block_table.indices");
    args.seq_lens = arrays.read(in[kSeqLens], "seq_lens");
    args.cu_seqlens_q = arrays.read_optional(in[kCuSeqlensQ], "cu_seqlens_q");
    args.max_seqlen_q = to_optional_int(in[kMaxSeqlenQ], "max_seqlen_q");
    args.kv_layout = to_layout(in[kKvLayout]);
    args.softmax_scale = to_optional_double(in[kSoftmaxScale], "softmax_scale");
    args.causal = to_bool(in[kCausal], "causal");
    args.draft_mask = arrays.read_optional(in[kDraftMask], "draft_mask");
    args.positions = arrays.read_optional(in[kPositions], "positions");
    args.window_left = to_int(in[kWindowLeft], "window_left");
    args.softcap = to_double(in[kSoftcap], "softcap");
    args.alibi_slopes = arrays.read_optional(in[kAlibiSlopes], "alibi_slopes");
    args.sinks = arrays.read_optional(in[kSinks], "sinks");
    args.rope = to_rope(in[kRope]);
    args.k_scale = to_scale(arrays, in[kKScale], "k_scale");
    args.v_scale = to_scale(arrays, in[kVScale], "v_scale");
    if (!in[kOut].is_none()) args.out = arrays.write(in[kOut], "out");
    args.lse = arrays.write_optional(in[kLse], "lse");
    args.lse_base = to_lse_base(in[kLseBase]);
    args.num_splits = to_optional_int(in[kNumSplits], "num_splits");
    args.batch_invariant = to_bool(in[kBatchInvariant], "batch_invariant");
    args.workspace = arrays.write_optional(in[kWorkspace], "workspace");
    args.stream = arrays.stream();
    args.check_contents = check_everything();
  }
};

}  // namespace

void bind_decode(nb::module_& m) {
  m.def("decode", [](const nb::args& in) {
    const DecodeCall call{Inputs(in)};
    const ReleasedGil released;
    decode(call.args);
  });
  m.def("check", [](const nb::args& in) {
    const DecodeCall call{Inputs(in)};
    const ReleasedGil released;
    check(call.args);
  });
  m.def("workspace_size", [](const nb::args& in) {
    const DecodeCall call{Inputs(in)};
    return workspace_size(call.args);
  });
  m.def("explain", [](const nb::args& in) {
    const DecodeCall call{Inputs(in)};
    const Explanation e = explain(call.args);
    return nb::make_tuple(e.backend.c_str(), e.kernel.c_str(), e.tile_rows, e.tile_keys, e.splits,
                          e.why.c_str());
  });
}

}  // namespace pagedecode::bindings
