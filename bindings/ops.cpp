// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "arrays.h"
#include "calls.h"
#include "gil.h"
#include "pagedecode/cache_ops.h"
#include "values.h"

namespace nb = nanobind;

namespace pagedecode::bindings {
namespace {

void bind_append(nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache,
                 nb::handle slots, nb::handle kv_layout, nb::handle k_scale, nb::handle v_scale,
                 nb::handle kv_dtype, nb::handle stream) {
  Arrays arrays(stream);
  AppendArgs args;
  args.k_cache = arrays.write(k_cache, "k_cache");
  args.v_cache = arrays.write(v_cache, "v_cache");
  name_cache_types(kv_dtype, &args.k_cache, &args.v_cache);
  args.k = arrays.read(k, "k");
  args.v = arrays.read(v, "v");
  args.slots = arrays.read(slots, "slots");
  args.kv_layout = to_layout(kv_layout);
  args.k_scale = to_scale(arrays, k_scale, "k_scale");
  args.v_scale = to_scale(arrays, v_scale, "v_scale");
  args.stream = arrays.stream();
  const ReleasedGil released;
  append(args);
}

void bind_slots(nb::handle block_table, nb::handle page_indptr, nb::handle page_indices,
                nb::handle seq_lens, nb::handle cu_seqlens_q, nb::handle page_size, nb::handle out,
                nb::handle stream) {
  Arrays arrays(stream);
  SlotsArgs args;
  args.block_table = arrays.read_optional(block_table, "block_table");
  args.page_indptr = arrays.read_optional(page_indptr, "block_table.indptr");
  args.page_indices = arrays.read_optional(page_indices, "block_table.indices");
  args.seq_lens = arrays.read(seq_lens, "seq_lens");
  args.cu_seqlens_q = arrays.read(cu_seqlens_q, "cu_seqlens_q");
  args.page_size = to_int(page_size, "page_size");
  args.out = arrays.write(out, "out");
  args.stream = arrays.stream();
  const ReleasedGil released;
  slots(args);
}

void bind_merge(nb::sequence outs, nb::sequence lses, nb::handle out, nb::handle lse,
                nb::handle lse_base, nb::handle stream) {
  Arrays arrays(stream);
  MergeArgs args;
  for (nb::handle item : outs) {
    args.outs.push_back(
        arrays.read(item, ("outs[" + std::to_string(args.outs.size()) + "]").c_str()));
  }
  for (nb::handle item : lses) {
    args.lses.push_back(
        arrays.read(item, ("lses[" + std::to_string(args.lses.size()) + "]").c_str()));
  }
  args.out = arrays.write(out, "out");
  args.lse = arrays.write(lse, "lse");
  args.lse_base = to_lse_base(lse_base);
  args.stream = arrays.stream();
  const ReleasedGil released;
  merge_states(args);
}

void bind_move(nb::handle k_cache, nb::handle v_cache, nb::handle src_slots, nb::handle dst_slots,
               nb::handle kv_layout, nb::handle stream) {
  Arrays arrays(stream);
  MoveArgs args;
  args.k_cache = arrays.write(k_cache, "k_cache");
  args.v_cache = arrays.write(v_cache, "v_cache");
  args.src_slots = arrays.read(src_slots, "src_slots");
  args.dst_slots = arrays.read(dst_slots, "dst_slots");
  args.kv_layout = to_layout(kv_layout);
  args.stream = arrays.stream();
  const ReleasedGil released;
  move(args);
}

// Any object, None too: what it is is for the checks to say.
auto any(const char* name) { return nb::arg(name).none(); }

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("append", &bind_append, any("k"), any("v"), any("k_cache"), any("v_cache"), any("slots"),
        any("kv_layout"), any("k_scale"), any("v_scale"), any("kv_dtype"), any("stream"));
  m.def("slots", &bind_slots, any("block_table"), any("page_indptr"), any("page_indices"),
        any("seq_lens"), any("cu_seqlens_q"), any("page_size"), any("out"), any("stream"));
  m.def("merge_states", &bind_merge, any("outs"), any("lses"), any("out"), any("lse"),
        any("lse_base"), any("stream"));
  m.def("move", &bind_move, any("k_cache"), any("v_cache"), any("src_slots"), any("dst_slots"),
        any("kv_layout"), any("stream"));
}

}  // namespace pagedecode::bindings
