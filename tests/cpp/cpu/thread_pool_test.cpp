// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__unix__)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "pagedecode/backends.h"
#include "pagedecode/error.h"

namespace pagedecode::cpu {
namespace {

// Whether every item of a call runs exactly once.
bool runs_each_once(std::int64_t count, int threads) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  for (auto& r : runs) r = 0;
  auto item = [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; };
  parallel_for(count, threads, item);
  for (auto& r : runs) {
    if (r != 1) return false;
  }
  return true;
}

TEST(ThreadPool, EachItemOnce) {
  for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
    for (const int threads : {1, 2, 5}) EXPECT_TRUE(runs_each_once(count, threads));
  }
}

TEST(ThreadPool, OneThreadIsTheCaller) {
  auto item = [id = std::this_thread::get_id()](std::int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), id);
  };
  parallel_for(100, 1, item);
}

TEST(ThreadPool, NoMoreThreadsThanAsked) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  auto item = [&](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const std::lock_guard<std::mutex> lock(mutex);
    ids.insert(std::this_thread::get_id());
  };
  parallel_for(200, 5, item);
  ids.clear();
  parallel_for(50, 2, item);
  EXPECT_LE(ids.size(), 2u);
}

TEST(ThreadPool, ManyCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int> failures{0};
  for (int c = 0; c < 6; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) failures += !runs_each_once(37, 3);
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(failures, 0);
}

TEST(ThreadPool, AnItemsExceptionReachesTheCaller) {
  auto item = [](std::int64_t i) {
    if (i == 13) throw std::runtime_error("thirteen");
  };
  for (const int threads : {1, 4}) {
    EXPECT_THROW(parallel_for(100, threads, item), std::runtime_error);
  }
  EXPECT_TRUE(runs_each_once(100, 4));
}

TEST(ThreadPool, NumberOfThreads) {
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  EXPECT_EQ(max_threads(), 3);
  EXPECT_THROW(set_num_threads(0), InvalidArgument);
  EXPECT_EQ(num_threads(), 3);
}

#if defined(__unix__)
TEST(ThreadPool, AForkedChildHasItsOwn) {
  ASSERT_TRUE(runs_each_once(100, 4));  // the parent's workers exist
  const pid_t child = fork();
  if (child == 0) _exit(runs_each_once(1000, 4) && runs_each_once(1000, 2) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(runs_each_once(100, 4));
}
#endif

}  // namespace
}  // namespace pagedecode::cpu
