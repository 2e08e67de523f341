// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// Sharing a byte means that a bounded linear equation has a solution:
//   sum_k c_k x_k = C,  0 <= x_k <= u_k,
// with one term for each dimension of either view and one for the bytes of an element. Terms are
// joined where one continues another (a row of elements is one run of bytes), sorted by falling
// coefficient and searched depth first; with strides that nest, as those of real arrays do, a level
// has one or two candidates. The search is cut off after kMaxSteps.
#include "overlap.h"

#include <algorithm>
#include <cstdint>

namespace pagedecode {
namespace {

using Wide = __int128;  // products of the caller's strides and sizes must not wrap

constexpr int kMaxTerms = 2 * kMaxDims + 1;
constexpr int kMaxSteps = 20000;

struct Term {
  Wide coefficient;  // > 0
  Wide bound;        // > 0
};

struct Equation {
  Term terms[kMaxTerms];
  int count = 0;
  Wide target = 0;

  void add(Wide coefficient, Wide bound) {
    if (coefficient > 0 && bound > 0) terms[count++] = {coefficient, bound};
  }

  // Adds c * d with d in [lo, hi], c of any sign: shifts and flips it into a term.
  void add_range(Wide c, Wide lo, Wide hi) {
    target -= c * (c >= 0 ? lo : hi);
    add(c >= 0 ? c : -c, hi - lo);
  }
};

Wide gcd(Wide a, Wide b) {
  while (b != 0) {
    const Wide r = a % b;
    a = b;
    b = r;
  }
  return a;
}

class Search {
 public:
  explicit Search(Equation e) : equation_(e) {
    join_terms();
    reach_[equation_.count] = 0;
    gcd_[equation_.count] = 0;
    for (int k = equation_.count - 1; k >= 0; --k) {
      const Term& t = equation_.terms[k];
      reach_[k] = reach_[k + 1] + t.coefficient * t.bound;
      gcd_[k] = gcd(t.coefficient, gcd_[k + 1]);
    }
  }

  Overlap run() {
    steps_ = 0;
    if (solve(0, equation_.target)) return Overlap::kYes;
    return steps_ >= kMaxSteps ? Overlap::kMaybe : Overlap::kNo;
  }

 private:
  // {c, u} and {c (u + 1), w} together are {c, (u + 1)(w + 1) - 1}; equal coefficients add bounds.
  void join_terms() {
    Term* begin = equation_.terms;
    Term* end = begin + equation_.count;
    std::sort(begin, end,
              [](const Term& a, const Term& b) { return a.coefficient < b.coefficient; });
    int kept = 0;
    for (Term* t = begin; t != end; ++t) {
      Term* last = kept > 0 ? begin + kept - 1 : nullptr;
      if (last && last->coefficient == t->coefficient) {
        last->bound += t->bound;
      } else if (last && t->coefficient <= last->coefficient * (last->bound + 1) &&
                 t->coefficient % last->coefficient == 0) {
        last->bound += t->coefficient / last->coefficient * t->bound;
      } else {
        begin[kept++] = *t;
      }
    }
    equation_.count = kept;
    std::reverse(begin, begin + kept);
  }

  bool solve(int k, Wide target) {
    if (target < 0 || target > reach_[k]) return false;
    if (target == 0) return true;
    if (gcd_[k] != 0 && target % gcd_[k] != 0) return false;
    if (k == equation_.count) return false;
    const Term& t = equation_.terms[k];
    const Wide high = std::min(t.bound, target / t.coefficient);
    const Wide short_of = target - reach_[k + 1];
    const Wide low = short_of <= 0 ? 0 : (short_of + t.coefficient - 1) / t.coefficient;
    for (Wide x = high; x >= low; --x) {
      if (++steps_ >= kMaxSteps) return false;
      if (solve(k + 1, target - x * t.coefficient)) return true;
    }
    return false;
  }

  Equation equation_;
  Wide reach_[kMaxTerms + 1];
  Wide gcd_[kMaxTerms + 1];
  int steps_ = 0;
};

// Byte range [lo, hi) that a view spans.
struct Span {
  Wide lo;
  Wide hi;
};

Span span_of(const Tensor& t) {
  const Wide bytes = size_of(t.dtype);
  Span s{static_cast<Wide>(reinterpret_cast<std::uintptr_t>(t.data)), 0};
  s.hi = s.lo + bytes;
  for (int i = 0; i < t.ndim; ++i) {
    const Wide reach = static_cast<Wide>(t.strides[i]) * (t.shape[i] - 1) * bytes;
    (reach < 0 ? s.lo : s.hi) += reach;
  }
  return s;
}

bool empty(const Tensor& t) {
  return std::any_of(t.shape, t.shape + t.ndim, [](std::int64_t n) { return n == 0; });
}

}  // namespace

Overlap overlap(const Tensor& a, const Tensor& b) {
  if (a.device != b.device || empty(a) || empty(b)) return Overlap::kNo;
  const Span sa = span_of(a);
  const Span sb = span_of(b);
  if (sa.hi <= sb.lo || sb.hi <= sa.lo) return Overlap::kNo;

  // a.lo + (steps up in a) + byte of a == b.hi - 1 - (steps down in b) - byte of b
  Equation e;
  e.target = sb.hi - 1 - sa.lo;
  const Wide size_a = size_of(a.dtype);
  const Wide size_b = size_of(b.dtype);
  e.add(1, size_a + size_b - 2);
  for (const Tensor* t : {&a, &b}) {
    const Wide bytes = size_of(t->dtype);
    for (int i = 0; i < t->ndim; ++i) {
      const Wide stride = static_cast<Wide>(t->strides[i]) * bytes;
      e.add(stride < 0 ? -stride : stride, t->shape[i] - 1);
    }
  }
  return Search(e).run();
}

Overlap self_overlap(const Tensor& t) {
  if (empty(t)) return Overlap::kNo;
  // Two different elements whose bytes meet differ first in some dimension k: by 1 or more there,
  // by nothing before it, by anything after it. Elements meet where their distance is 0.
  Overlap worst = Overlap::kNo;
  for (int k = 0; k < t.ndim; ++k) {
    if (t.shape[k] <= 1) continue;
    if (t.strides[k] == 0) return Overlap::kYes;
    Equation e;
    e.add_range(t.strides[k], 1, t.shape[k] - 1);
    for (int i = k + 1; i < t.ndim; ++i) {
      if (t.shape[i] > 1) e.add_range(t.strides[i], -(t.shape[i] - 1), t.shape[i] - 1);
    }
    const Overlap found = Search(e).run();
    if (found == Overlap::kYes) return found;
    if (found == Overlap::kMaybe) worst = found;
  }
  return worst;
}

}  // namespace pagedecode
