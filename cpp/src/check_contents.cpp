// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "check_contents.h"

#include <cstddef>
#include <string>

#include "backend.h"
#include "check_decode.h"
#include "check_util.h"
#include "sequence.h"

namespace pagedecode {
namespace {

std::string element(const char* name, std::int64_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

[[noreturn]] void throw_element(const char* name, std::int64_t i, std::int64_t got,
                                const std::string& want) {
  throw_argument(element(name, i).c_str(), std::to_string(got), want);
}

// Whether all of `count` ids lie in 0 .. limit - 1. Negative ids are huge as unsigned, so that one
// maximum answers; the plain loop over contiguous ids is vectorised.
template <class Int, class Unsigned>
bool ids_below(const Int* ids, std::int64_t count, std::int64_t stride, std::int64_t limit) {
  Unsigned largest = 0;
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto id = static_cast<Unsigned>(ids[i]);
      largest = id > largest ? id : largest;
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto id = static_cast<Unsigned>(ids[i * stride]);
      largest = id > largest ? id : largest;
    }
  }
  return count <= 0 || static_cast<std::uint64_t>(largest) < static_cast<std::uint64_t>(limit);
}

// NOTE: in a pool of 2^32 pages or more an int32 id of -1 (2^32 - 1 as unsigned) would pass
// ids_below: int32 ids are held to 2^31.
bool ids_in_pool(const PageTable& t, std::int64_t first, std::int64_t count) {
  const std::int64_t stride = t.entries.stride;
  if (t.entries.wide) {
    const auto* ids = static_cast<const std::int64_t*>(t.entries.data) + first;
    return ids_below<std::int64_t, std::uint64_t>(ids, count, stride, t.num_pages);
  }
  const auto* ids = static_cast<const std::int32_t*>(t.entries.data) + first;
  return ids_below<std::int32_t, std::uint32_t>(ids, count, stride,
                                                min64(t.num_pages, INT64_C(1) << 31));
}

[[noreturn]] void throw_page(const PageTable& t, std::int64_t b, std::int64_t first,
                             std::int64_t count, std::int64_t n) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = page_id(t, first, i);
    if (id >= 0 && id < t.num_pages) continue;
    throw_argument("block_table",
                   "page id " + std::to_string(id) + " as page " + std::to_string(i) +
                       " of sequence " + std::to_string(b) + ", which has " + std::to_string(n) +
                       " keys",
                   t.num_pages > 0 ? "ids from 0 to " + std::to_string(t.num_pages - 1)
                                   : "no keys, as the pool has no pages");
  }
  throw_argument("block_table", "page ids out of range", "ids of the pool");
}

}  // namespace

void check_offsets(const char* name, const IndexArray& offsets, std::int64_t batch,
                   std::int64_t limit, const char* limit_name) {
  if (offsets[0] != 0) throw_element(name, 0, offsets[0], "0");
  std::int64_t before = 0;
  for (std::int64_t b = 1; b <= batch; ++b) {
    const std::int64_t at = offsets[b];
    if (at < before) throw_element(name, b, at, std::to_string(before) + " or more");
    before = at;
  }
  if (before > limit) {
    throw_element(name, batch, before, "at most " + std::to_string(limit) + ", " + limit_name);
  }
}

std::int64_t check_query_offsets(const DecodeProblem& p) {
  if (!p.cu_seqlens_q) return p.uniform_q;
  check_offsets("cu_seqlens_q", p.cu_seqlens_q, p.batch, p.total_q, "the rows of q");
  std::int64_t largest = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    largest = max64(largest, p.cu_seqlens_q[b + 1] - p.cu_seqlens_q[b]);
  }
  if (largest > p.max_q) {
    throw_argument("max_seqlen_q", std::to_string(p.max_q),
                   "at least " + std::to_string(largest) + ", the largest of cu_seqlens_q");
  }
  return largest;
}

void check_lengths_and_pages(const DecodeProblem& p) {
  const PageTable& t = p.pages;
  if (t.indptr) {
    check_offsets("block_table.indptr", t.indptr, p.batch, t.width, "the length of indices");
  }
  for (std::int64_t b = 0; b < p.batch; ++b) {
    std::int64_t first = 0;
    const std::int64_t entries = page_entries(t, b, &first);
    const std::int64_t n = p.seq_lens[b];
    if (n < 0 || n > entries * p.page_size) {
      throw_element("seq_lens", b, n,
                    "0 to " + std::to_string(entries * p.page_size) + ", what " +
                        std::to_string(entries) + " pages of " + std::to_string(p.page_size) +
                        " hold");
    }
    const std::int64_t live = ceil_div64(n, p.page_size);
    if (!ids_in_pool(t, first, live)) throw_page(t, b, first, live, n);
  }
}

void check_host_contents(const DecodeProblem& p) {
  check_query_offsets(p);
  check_lengths_and_pages(p);
}

void read_query_offsets(const DecodeArgs& args, DecodeProblem* p) {
  if (!p->cu_seqlens_q) return;
  p->max_q = check_query_offsets(*p);
  p->max_q_known = true;
  if (!args.max_seqlen_q) check_mask_width(args, p->max_q);
}

namespace cpu {

void check_contents(const DecodeProblem& p) { check_lengths_and_pages(p); }

}  // namespace cpu

}  // namespace pagedecode
