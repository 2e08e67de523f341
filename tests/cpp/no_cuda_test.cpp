// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
//
// What CUDA arrays get from a build without CUDA: a typed error that says so, no crash.
#include "problems.h"

namespace pagedecode {
namespace {

using testing::Call;

TEST(NoCuda, CallsAreUnsupported) {
  if (backends().cuda.built) GTEST_SKIP() << "built with CUDA";
  Call c;
  c.move_to_cuda();
  EXPECT_REFUSED(Unsupported, "q: got an array on a CUDA device", decode(c.args));
  EXPECT_REFUSED(Unsupported, "q: got an array on a CUDA device", check(c.args));
  EXPECT_REFUSED(Unsupported, "q: got an array on a CUDA device", workspace_size(c.args));
  EXPECT_REFUSED(Unsupported, "q: got an array on a CUDA device", explain(c.args));
  for (float x : c.out) ASSERT_EQ(x, 123.0f);
}

TEST(NoCuda, BackendsSayWhy) {
  const Backends b = backends();
  EXPECT_TRUE(b.cpu.built);
  EXPECT_TRUE(b.cpu.runs);
  EXPECT_TRUE(b.cpu.why.empty());
  if (b.cuda.built) GTEST_SKIP() << "built with CUDA";
  EXPECT_FALSE(b.cuda.runs);
  EXPECT_EQ(b.cuda.why.substr(0, 18), "built without CUDA");
}

}  // namespace
}  // namespace pagedecode
