// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// DecodeArgs -> DecodeProblem. check_decode looks at shapes, types and options only, so that what
// depends on them alone (workspace_size) needs no contents; read_query_offsets then reads
// cu_seqlens_q where the host can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pagedecode/decode.h"
#include "problem.h"

namespace pagedecode {

// `out` may be left out (ndim == 0) by calls that run nothing.
DecodeProblem check_decode(const DecodeArgs& args, bool needs_out);
// CPU: checks cu_seqlens_q, sets max_q to the largest m, checks the mask's width against it.
void read_query_offsets(const DecodeArgs& args, DecodeProblem* p);
// args.workspace against the bytes that the backend asks for.
void check_workspace(const DecodeArgs& args, std::size_t needed, DecodeProblem* p);

// Pieces of check_decode.
// A table, or CSR; its num_pages is left to the caller.
PageTable check_page_table(const std::optional<Tensor>& table, const std::optional<Tensor>& indptr,
                           const std::optional<Tensor>& indices, std::int64_t batch, Device device);
void check_options(const DecodeArgs& args, DecodeProblem* p);  // numbers, masks, scales
// The mask's width: the largest m of the call, or that rounded up to a multiple of 32.
void check_mask_width(const DecodeArgs& args, std::int64_t largest_m);
void check_outputs(const DecodeArgs& args, bool needs_out, DecodeProblem* p);
ScaleView check_scale(const char* name, const Scale& scale, std::int64_t num_kv_heads,
                      Device device);

}  // namespace pagedecode
