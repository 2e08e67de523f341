// Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#include "pagedecode/backends.h"
#include "pagedecode/error.h"

namespace pagedecode {
namespace cpu {
namespace {

constexpr int kMaxThreads = 1024;

// One parallel_for. Lives on its caller's stack until every helper has left it.
struct Job {
  ItemFunction run;
  std::int64_t count;
  int helpers_wanted;
  int helpers = 0;  // inside now; guarded by Pool::mutex
  std::atomic<std::int64_t> next{0};
  std::exception_ptr error;  // guarded by Pool::mutex

  Job(ItemFunction f, std::int64_t n, int wanted) : run(f), count(n), helpers_wanted(wanted) {}
  bool has_items() const { return next.load(std::memory_order_relaxed) < count; }
};

struct Pool {
  std::mutex mutex;
  std::condition_variable work;  // workers wait for a job
  std::condition_variable left;  // callers wait for their helpers
  std::vector<Job*> jobs;        // oldest first
  int workers = 0;

  void work_on(Job& job) {
    for (;;) {
      const std::int64_t i = job.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= job.count) return;
      try {
        job.run(i);
      } catch (...) {
        job.next.store(job.count, std::memory_order_relaxed);
        const std::lock_guard<std::mutex> lock(mutex);
        if (!job.error) job.error = std::current_exception();
      }
    }
  }

  // The oldest job that still wants a helper.
  Job* find_job() {
    for (Job* job : jobs) {
      if (job->helpers_wanted > 0 && job->has_items()) return job;
    }
    return nullptr;
  }

  void worker() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      Job* job = find_job();
      if (job == nullptr) {
        work.wait(lock);
        continue;
      }
      --job->helpers_wanted;
      ++job->helpers;
      lock.unlock();
      work_on(*job);
      lock.lock();
      if (--job->helpers == 0) left.notify_all();
    }
  }

  void run(Job& job) {
    int wake = job.helpers_wanted;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      // NOTE: fewer workers than wanted is slower, not wrong: a thread that cannot be made is let
      // go.
      try {
        while (workers < wake) {
          std::thread([this] { worker(); }).detach();
          ++workers;
        }
      } catch (const std::system_error&) {
      }
      jobs.push_back(&job);
    }
    while (wake-- > 0) work.notify_one();
    work_on(job);
    std::unique_lock<std::mutex> lock(mutex);
    for (auto it = jobs.begin(); it != jobs.end(); ++it) {
      if (*it == &job) {
        jobs.erase(it);
        break;
      }
    }
    left.wait(lock, [&] { return job.helpers == 0; });
  }
};

// NOTE: never destroyed: workers may still wait in it when the process ends. A forked child drops
// it, for its threads are the parent's, and starts another.
std::atomic<Pool*> g_pool{nullptr};
std::atomic<int> g_threads{0};  // 0: not set

Pool& pool() {
  Pool* p = g_pool.load(std::memory_order_acquire);
  if (p != nullptr) return *p;
  static std::once_flag once;
  std::call_once(once, [] {
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork(nullptr, nullptr, [] { g_pool.store(nullptr, std::memory_order_release); });
#endif
  });
  Pool* made = new Pool;
  if (!g_pool.compare_exchange_strong(p, made, std::memory_order_acq_rel)) {
    delete made;
    return *p;
  }
  return *made;
}

int cpus_allowed() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

int default_threads() {
  const char* text = std::getenv("PAGEDECODE_NUM_THREADS");
  if (text == nullptr || *text == '\0')
    return cpus_allowed() < kMaxThreads ? cpus_allowed() : kMaxThreads;
  char* end = nullptr;
  const long n = std::strtol(text, &end, 10);
  if (*end != '\0' || n < 1 || n > kMaxThreads) {
    throw InvalidArgument("PAGEDECODE_NUM_THREADS: got '" + std::string(text) +
                          "', want a whole number from 1 to " + std::to_string(kMaxThreads));
  }
  return static_cast<int>(n);
}

}  // namespace

int max_threads() {
  const int set = g_threads.load(std::memory_order_relaxed);
  if (set > 0) return set;
  const int n = default_threads();
  int unset = 0;
  g_threads.compare_exchange_strong(unset, n);
  return unset > 0 ? unset : n;
}

void parallel_for(std::int64_t count, int threads, ItemFunction f) {
  const std::int64_t helpers = (count < threads ? count : threads) - 1;
  if (helpers < 1) {
    for (std::int64_t i = 0; i < count; ++i) f(i);
    return;
  }
  Job job(f, count, static_cast<int>(helpers));
  pool().run(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace cpu

void set_num_threads(int n) {
  if (n < 1 || n > cpu::kMaxThreads) {
    throw InvalidArgument("n: got " + std::to_string(n) + ", want a number of threads from 1 to " +
                          std::to_string(cpu::kMaxThreads));
  }
  cpu::g_threads.store(n);
}

int num_threads() { return cpu::max_threads(); }

}  // namespace pagedecode
