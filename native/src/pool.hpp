// Persistent threads that run jobs, in the order of submission among those that may start.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "buffer.hpp"
#include "job.hpp"

namespace tandem {

struct PoolOptions {
    int num_threads = 0;  // 0: as many as `default_num_threads`
    bool pin = false;     // thread i to the i-th processor of the creating thread's affinity mask
    std::chrono::microseconds spin{50};  // how long an idle thread spins before it sleeps
};

// Safe to use from several threads, and from jobs.
//
// One idle thread at a time watches the signals that jobs wait for; while it sleeps, it looks every
// 50 microseconds. A job whose signal is raised after a job behind it may run later than that one.
class Pool {
  public:
    // Throws std::invalid_argument for fewer than 0 threads, std::system_error if none can be had.
    explicit Pool(const PoolOptions& options);
    ~Pool();  // every submitted job must be done
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // Runs the job once `after` is reached; then raises `then`, also if the job failed: whoever
    // waits for it shall not wait for ever, and finds the error in the job.
    // Throws std::invalid_argument for a job that was submitted before.
    void submit(Job& job, const Conditions& after = {}, SignalPoint then = {});

    // Takes back a job of which nothing has begun: it is done, `wait` throws, and `then` is not
    // raised. False, and nothing happens, for any other job.
    bool cancel(Job& job);

    // Runs the job to its end, the calling thread taking part in place of one of the pool's: where
    // those find no free processor, it does the work alone. A job of one part is not shown to them.
    // Throws what the job threw.
    void run(Job& job);

    // Blocks until the job is done and throws what it threw; false if `deadline` passed first.
    // In a job of this pool it runs other work meanwhile.
    bool wait(Job& job, std::chrono::steady_clock::time_point deadline);

    // Waits for running parts, then continues with another number of threads.
    void resize(int num_threads);

    int num_threads() const;

    BufferStore& buffers() { return buffers_; }

  private:
    struct Claim {
        Job* job = nullptr;
        int part = 0;
        bool by_worker = true;
    };

    void start(int num_threads);
    void stop();
    void work(int cpu);
    void idle(std::unique_lock<std::mutex>& lock);
    void enqueue(Job& job, const Conditions& after, SignalPoint then);  // under the mutex
    void unlink(Job* before, Job& job);                                 // under the mutex
    Claim claim(Job* only = nullptr);  // under the mutex; of one job: by a thread outside the pool
    void wake();                       // under the mutex
    bool any_ready() const;            // under the mutex
    bool any_unready() const;          // under the mutex: a job waits for signals
    void watch(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point spin_end);
    void help(std::unique_lock<std::mutex>& lock);
    void run_claimed(Claim claim);
    void complete(Claim claim, std::exception_ptr error);

    const bool pin_;
    const std::chrono::microseconds spin_;
    BufferStore buffers_;
    std::mutex resizing_;
    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable done_;
    std::atomic<std::uint32_t> news_{0};  // changes when there may be something to claim
    std::vector<std::thread> threads_;    // under resizing_
    int num_threads_ = 0;
    bool stopping_ = false;
    bool watched_ = false;  // a thread watches signals
    int callers_ = 0;       // threads that take part in `run`
    int spinning_ = 0;      // the pool's threads that will see news at once
    int sleeping_ = 0;
    Job* first_ = nullptr;  // jobs with unclaimed parts
    Job* last_ = nullptr;
};

}  // namespace tandem
