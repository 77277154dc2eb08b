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
// A thread takes parts of a job one after another and looks for an earlier job every 100
// microseconds. One idle thread at a time watches the signals that jobs wait for; while it sleeps,
// it looks every 50 microseconds. A job whose signal is raised after a job behind it may run later
// than that one.
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

    // Takes back a job of this pool of which nothing has begun: it is done, `wait` throws, and
    // `then` is not raised. False, and nothing happens, for any other job.
    bool cancel(Job& job);

    // Runs the job to its end, the calling thread taking part in place of one of the pool's: where
    // those find no free processor, it does the work alone. A job of one part is not shown to them.
    // Throws what the job threw, std::invalid_argument for a job that was submitted or run before.
    void run(Job& job);

    // Blocks until the job is done and throws what it threw; false if `deadline` passed first.
    // In a job of this pool it runs other work meanwhile.
    bool wait(Job& job, std::chrono::steady_clock::time_point deadline);

    // Continues with another number of threads; those that go end the work that they are at.
    // Throws std::invalid_argument as the constructor does, or in a job of this pool; throws
    // std::system_error, and changes nothing, if the threads cannot be had.
    void resize(int num_threads);

    int num_threads() const;

    BufferStore& buffers() { return buffers_; }

  private:
    using Clock = std::chrono::steady_clock;

    enum class Role { kWorker, kCaller };  // of the pool, or a thread that called `run`

    void grow(int num_threads);    // under resizing_
    void shrink(int num_threads);  // under resizing_
    void work(int index);
    static void mark_submitted(Job& job);
    std::exception_ptr run_parts(Job& job, Clock::time_point until);  // at least one
    void complete(Job& job);
    // Below: under the mutex. What takes the lock gives it up for a while.
    void enqueue(Job& job);
    void unlink(Job& job);
    Job* find();  // the first job of which a thread of the pool may take parts; null: none
    void wake();
    bool any_open() const;     // `find` would find one
    bool any_unready() const;  // a job waits for signals
    void take_parts(std::unique_lock<std::mutex>& lock, Job& job, Role role,
                    Clock::time_point until);
    void idle(std::unique_lock<std::mutex>& lock, Clock::time_point deadline);
    void watch(std::unique_lock<std::mutex>& lock, Clock::time_point spin_end);
    void help(std::unique_lock<std::mutex>& lock, const Job& awaited, Clock::time_point deadline);

    const bool pin_;
    const std::chrono::microseconds spin_;
    BufferStore buffers_;
    std::mutex resizing_;
    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable done_;
    std::atomic<std::uint32_t> news_{0};  // changes when there may be something to take or to see
    std::vector<std::thread> threads_;    // under resizing_
    int num_threads_ = 0;                 // those with a higher index end
    bool watched_ = false;                // a thread watches signals
    int callers_ = 0;                     // threads that take part in `run`
    int helpers_ = 0;                     // the pool's threads that wait for a job
    int spinning_ = 0;                    // the pool's threads that will see news at once
    int sleeping_ = 0;
    Job* first_ = nullptr;  // jobs with parts to take
    Job* last_ = nullptr;
};

}  // namespace tandem
