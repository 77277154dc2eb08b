#include "pool.hpp"

#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "cpu_limit.hpp"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookAgain = std::chrono::microseconds(50);
constexpr int kRelaxes = 16;

thread_local const Pool* current_pool = nullptr;

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
        .count();
}

void pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);  // where it is forbidden the thread runs unpinned
}

}  // namespace

void Job::run_here() {
    start_ns_.store(now_ns(), std::memory_order_release);
    for (int part = 0; part < num_parts_; ++part) run_part(part);
    finish();
    end_ns_.store(now_ns(), std::memory_order_release);
    done_.store(true, std::memory_order_release);
}

Pool::Pool(const PoolOptions& options) : pin_(options.pin), spin_(options.spin) {
    start(options.num_threads);
}

Pool::~Pool() { stop(); }

void Pool::start(int num_threads) {
    if (num_threads < 0) throw std::invalid_argument("a pool needs at least one thread");
    if (num_threads == 0) num_threads = default_num_threads("/");
    const std::vector<int> cpus = allowed_cpus();
    {
        const std::lock_guard lock(mutex_);
        stopping_ = false;
    }
    try {
        for (int i = 0; i < num_threads; ++i) {
            const int cpu = pin_ && !cpus.empty() ? cpus[i % cpus.size()] : -1;
            threads_.emplace_back([this, cpu] { work(cpu); });
        }
    } catch (...) {
        stop();
        throw;
    }
    const std::lock_guard lock(mutex_);
    num_threads_ = num_threads;
}

void Pool::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        ++news_;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void Pool::resize(int num_threads) {
    if (num_threads < 0) throw std::invalid_argument("a pool needs at least one thread");
    if (current_pool == this) throw std::invalid_argument("a job cannot resize its own pool");
    const std::lock_guard lock(resizing_);
    stop();
    start(num_threads);
}

int Pool::num_threads() const {
    const std::lock_guard lock(mutex_);
    return num_threads_;
}

void Pool::submit(Job& job, const Conditions& after, SignalPoint then) {
    const std::lock_guard lock(mutex_);
    enqueue(job, after, then);
    wake();
}

void Pool::enqueue(Job& job, const Conditions& after, SignalPoint then) {
    if (job.submitted_) throw std::invalid_argument("a job can be submitted once");
    job.submitted_ = true;
    job.after_ = after;
    job.then_ = then;
    job.parts_left_ = job.num_parts_;
    (last_ ? last_->next_ : first_) = &job;
    last_ = &job;
    ++news_;
}

void Pool::run(Job& job) {
    if (job.num_parts_ == 1) return job.run_here();
    {
        std::unique_lock lock(mutex_);
        enqueue(job, {}, {});
        job.most_workers_ = num_threads_ - 1;
        ++callers_;
        wake();
        for (Claim next = claim(&job); next.job; next = claim(&job)) {
            lock.unlock();
            run_claimed(next);
            lock.lock();
        }
        --callers_;
    }
    const Clock::time_point spin_end = Clock::now() + spin_;
    while (!job.done() && Clock::now() < spin_end) relax();
    wait(job, Clock::time_point::max());
}

// As many threads as there is unclaimed work for: those that spin have seen the news, of those that
// sleep the rest.
void Pool::wake() {
    int wanted = 0;
    for (const Job* job = first_; job && wanted < num_threads_; job = job->next_) {
        if (job->ready_ || job->after_.are_reached())
            wanted += std::min(job->num_parts_ - job->next_part_,
                               std::max(job->most_workers_ - job->workers_, 0));
        else if (!watched_)
            ++wanted;
    }
    for (int i = spinning_; i < std::min(wanted, num_threads_); ++i) work_.notify_one();
}

Pool::Claim Pool::claim(Job* only) {
    Job* before = nullptr;
    for (Job* job = first_; job; before = job, job = job->next_) {
        if (only ? job != only : job->workers_ >= job->most_workers_) continue;
        if (!job->ready_) {
            if (!job->after_.are_reached()) continue;
            job->ready_ = true;
            if (job->num_parts_ > 1 && job->most_workers_ > 0) {  // others may take parts, too
                ++news_;
                wake();
            }
        }
        const int part = job->next_part_++;
        if (part == 0) job->start_ns_.store(now_ns(), std::memory_order_release);
        if (job->next_part_ == job->num_parts_) unlink(before, *job);
        if (!only) ++job->workers_;
        return {job, part, !only};
    }
    return {};
}

void Pool::unlink(Job* before, Job& job) {
    (before ? before->next_ : first_) = job.next_;
    if (last_ == &job) last_ = before;
}

bool Pool::cancel(Job& job) {
    {
        const std::lock_guard lock(mutex_);
        if (!job.submitted_ || job.done() || job.next_part_ > 0) return false;
        Job* before = nullptr;
        for (Job* other = first_; other != &job; other = other->next_) before = other;
        unlink(before, job);
        job.error_ = std::make_exception_ptr(std::runtime_error("cancelled before it began"));
        job.done_.store(true, std::memory_order_release);
    }
    done_.notify_all();
    return true;
}

bool Pool::any_unready() const {
    for (const Job* job = first_; job; job = job->next_)
        if (!job->ready_) return true;
    return false;
}

bool Pool::any_ready() const {
    for (const Job* job = first_; job; job = job->next_)
        if (job->workers_ < job->most_workers_ && (job->ready_ || job->after_.are_reached()))
            return true;
    return false;
}

void Pool::run_claimed(Claim claim) {
    std::exception_ptr error;
    try {
        claim.job->run_part(claim.part);
    } catch (...) {
        error = std::current_exception();
    }
    complete(claim, std::move(error));
}

void Pool::complete(Claim claim, std::exception_ptr error) {
    Job& job = *claim.job;
    {
        const std::lock_guard lock(mutex_);
        if (claim.by_worker) --job.workers_;
        if (error && !job.error_) job.error_ = std::move(error);
        if (--job.parts_left_ > 0) return;
    }
    // This thread alone holds the job now.
    if (!job.error_) {
        try {
            job.finish();
        } catch (...) {
            job.error_ = std::current_exception();
        }
    }
    job.end_ns_.store(now_ns(), std::memory_order_release);
    if (job.then_.counter) raise(*job.then_.counter, job.then_.value);
    {
        const std::lock_guard lock(mutex_);
        ++news_;  // a signal may have been waited for
        // The job's owner may destroy it, and the signal, from here on.
        job.done_.store(true, std::memory_order_release);
    }
    done_.notify_all();
}

void Pool::work(int cpu) {
    if (cpu >= 0) pin_to(cpu);
    current_pool = this;
    std::unique_lock lock(mutex_);
    for (;;) {
        // Running parts are finished before a stop; other work is left to the next threads, if any.
        if (stopping_) return;
        const Claim next = claim();
        if (!next.job) {
            idle(lock);
            continue;
        }
        lock.unlock();
        run_claimed(next);
        lock.lock();
    }
}

// Spins, then sleeps, until there may be something to claim. Where threads that call `run` leave no
// processor for it, it sleeps at once: spinning would take theirs.
void Pool::idle(std::unique_lock<std::mutex>& lock) {
    const std::uint32_t seen = news_.load(std::memory_order_acquire);
    const bool crowded = callers_ + num_threads_ - sleeping_ > num_threads_;
    const Clock::time_point spin_end = Clock::now() + (crowded ? spin_.zero() : spin_);
    const auto changed = [&] { return news_.load(std::memory_order_acquire) != seen; };
    if (!watched_ && any_unready()) {
        watched_ = true;
        while (!changed() && !any_ready()) watch(lock, spin_end);
        watched_ = false;
        ++news_;  // another thread may have to watch while this one works
        work_.notify_one();
        return;
    }
    ++spinning_;
    lock.unlock();
    while (!changed() && Clock::now() < spin_end) relax();
    lock.lock();
    --spinning_;
    ++sleeping_;
    work_.wait(lock, changed);
    --sleeping_;
}

// Lets a little time pass, the mutex free.
void Pool::watch(std::unique_lock<std::mutex>& lock, Clock::time_point spin_end) {
    if (Clock::now() >= spin_end) {
        ++sleeping_;
        work_.wait_for(lock, kLookAgain);
        --sleeping_;
        return;
    }
    ++spinning_;
    lock.unlock();
    for (int i = 0; i < kRelaxes; ++i) relax();
    lock.lock();
    --spinning_;
}

bool Pool::wait(Job& job, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (current_pool == this) {
        while (!job.done() && Clock::now() < deadline) help(lock);
    } else {
        done_.wait_until(lock, deadline, [&] { return job.done(); });
    }
    if (!job.done()) return false;
    if (job.error_) std::rethrow_exception(job.error_);
    return true;
}

// Runs one part of any job on a thread of the pool that waits for a job.
void Pool::help(std::unique_lock<std::mutex>& lock) {
    const Claim next = claim();
    lock.unlock();
    if (next.job)
        run_claimed(next);
    else
        std::this_thread::yield();
    lock.lock();
}

}  // namespace tandem
