#include "pool.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "cpu_limit.hpp"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookAgain = std::chrono::microseconds(50);
constexpr auto kStay = std::chrono::microseconds(100);  // at a job, without a look at earlier ones
constexpr auto kForever = Clock::time_point::max();
constexpr auto kOnePart = Clock::time_point::min();
constexpr int kRelaxes = 16;

thread_local const Pool* current_pool = nullptr;

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
        .count();
}

}  // namespace

Pool::Pool(const PoolOptions& options) : pin_(options.pin), spin_(options.spin) {
    resize(options.num_threads);
}

Pool::~Pool() { shrink(0); }

void Pool::resize(int num_threads) {
    if (num_threads < 0) throw std::invalid_argument("a pool needs at least one thread");
    if (current_pool == this) throw std::invalid_argument("a job cannot resize its own pool");
    if (num_threads == 0) num_threads = default_num_threads("/");
    const std::lock_guard lock(resizing_);
    if (num_threads < static_cast<int>(threads_.size()))
        shrink(num_threads);
    else
        grow(num_threads);
}

void Pool::grow(int num_threads) {
    const int before = static_cast<int>(threads_.size());
    const std::vector<int> cpus = pin_ ? allowed_cpus() : std::vector<int>();
    threads_.reserve(static_cast<std::size_t>(num_threads));
    {
        const std::lock_guard lock(mutex_);
        num_threads_ = num_threads;
    }
    try {
        for (int i = before; i < num_threads; ++i) {
            threads_.emplace_back([this, i] { work(i); });
            if (!cpus.empty()) pin_thread(threads_.back(), cpus[i % cpus.size()]);
        }
    } catch (const std::system_error& error) {
        shrink(before);
        throw std::system_error(error.code(),
                                "a pool cannot have " + std::to_string(num_threads) + " threads");
    } catch (...) {
        shrink(before);
        throw;
    }
}

void Pool::shrink(int num_threads) {
    {
        const std::lock_guard lock(mutex_);
        num_threads_ = num_threads;
        ++news_;
    }
    work_.notify_all();
    for (; static_cast<int>(threads_.size()) > num_threads; threads_.pop_back())
        threads_.back().join();
}

int Pool::num_threads() const {
    const std::lock_guard lock(mutex_);
    return num_threads_;
}

void Pool::submit(Job& job, const Conditions& after, SignalPoint then) {
    mark_submitted(job);
    const std::lock_guard lock(mutex_);
    job.after_ = after;
    job.then_ = then;
    enqueue(job);
}

void Pool::run(Job& job) {
    mark_submitted(job);
    if (job.num_parts_ == 1) {
        job.start_ns_.store(now_ns(), std::memory_order_release);
        job.error_ = run_parts(job, kForever);
        complete(job);
        if (job.error_) std::rethrow_exception(job.error_);
        return;
    }
    {
        std::unique_lock lock(mutex_);
        job.ready_ = true;
        job.most_workers_ = num_threads_ - 1;
        ++callers_;
        enqueue(job);
        take_parts(lock, job, Role::kCaller, kForever);
        --callers_;
    }
    const Clock::time_point spin_end = Clock::now() + spin_;
    while (!job.done() && Clock::now() < spin_end) relax();
    wait(job, kForever);
}

void Pool::mark_submitted(Job& job) {
    if (job.submitted_.exchange(true)) throw std::invalid_argument("a job can be submitted once");
}

void Pool::enqueue(Job& job) {
    (last_ ? last_->next_ : first_) = &job;
    last_ = &job;
    ++news_;
    wake();
}

// As many threads as there is work for: those that spin have seen the news, of those that sleep the
// rest.
void Pool::wake() {
    int wanted = 0;
    for (const Job* job = first_; job && wanted < num_threads_; job = job->next_) {
        if (job->ready_ || job->after_.are_reached())
            wanted += std::clamp(job->parts_left(), 0, std::max(job->workers_left(), 0));
        else if (!watched_)
            ++wanted;
    }
    for (int i = spinning_; i < std::min(wanted, num_threads_); ++i) work_.notify_one();
}

Job* Pool::find() {
    for (Job* job = first_; job; job = job->next_) {
        if (job->workers_left() <= 0 || job->parts_left() <= 0) continue;
        if (job->ready_) return job;
        if (!job->after_.are_reached()) continue;
        job->ready_ = true;
        if (job->num_parts_ > 1) {  // others may take parts, too
            ++news_;
            wake();
        }
        return job;
    }
    return nullptr;
}

// The last thread that leaves a job without parts ends it.
void Pool::take_parts(std::unique_lock<std::mutex>& lock, Job& job, Role role,
                      Clock::time_point until) {
    const int workers = role == Role::kWorker ? 1 : 0;
    ++job.threads_;
    job.workers_ += workers;
    if (!job.begun_) job.start_ns_.store(now_ns(), std::memory_order_release);
    job.begun_ = true;
    lock.unlock();
    std::exception_ptr error = run_parts(job, until);
    lock.lock();
    --job.threads_;
    job.workers_ -= workers;
    if (error && !job.error_) job.error_ = std::move(error);
    if (job.parts_left() > 0) return;
    unlink(job);
    if (job.threads_ > 0) return;
    lock.unlock();
    complete(job);
    lock.lock();
}

std::exception_ptr Pool::run_parts(Job& job, Clock::time_point until) {
    std::exception_ptr error;
    do {
        const int part = job.next_part_.fetch_add(1, std::memory_order_relaxed);
        if (part >= job.num_parts_) break;
        try {
            job.run_part(part);
        } catch (...) {
            if (!error) error = std::current_exception();
        }
    } while (Clock::now() < until);
    return error;
}

void Pool::complete(Job& job) {
    if (!job.error_) {
        try {
            job.finish();
        } catch (...) {
            job.error_ = std::current_exception();
        }
    }
    job.end_ns_.store(now_ns(), std::memory_order_release);
    if (job.then_.counter) raise(*job.then_.counter, job.then_.value);
    bool helped;
    {
        const std::lock_guard lock(mutex_);
        ++news_;  // a signal may have been waited for
        helped = helpers_ > 0;
        // The job's owner may destroy it, and the signal, from here on.
        job.done_.store(true, std::memory_order_release);
    }
    done_.notify_all();
    if (helped) work_.notify_all();
}

void Pool::unlink(Job& job) {
    Job* before = nullptr;
    for (Job* at = first_; at; before = at, at = at->next_) {
        if (at != &job) continue;
        (before ? before->next_ : first_) = job.next_;
        if (last_ == &job) last_ = before;
        return;
    }
}

bool Pool::cancel(Job& job) {
    bool helped;
    {
        const std::lock_guard lock(mutex_);
        const Job* found = first_;
        while (found && found != &job) found = found->next_;
        if (!found || job.begun_) return false;
        unlink(job);
        job.error_ = std::make_exception_ptr(std::runtime_error("cancelled before it began"));
        ++news_;  // who watched its signals need not
        helped = helpers_ > 0;
        job.done_.store(true, std::memory_order_release);
    }
    done_.notify_all();
    if (helped) work_.notify_all();
    return true;
}

bool Pool::any_unready() const {
    for (const Job* job = first_; job; job = job->next_)
        if (!job->ready_) return true;
    return false;
}

bool Pool::any_open() const {
    for (const Job* job = first_; job; job = job->next_)
        if (job->workers_left() > 0 && job->parts_left() > 0 &&
            (job->ready_ || job->after_.are_reached()))
            return true;
    return false;
}

void Pool::work(int index) {
    current_pool = this;
    std::unique_lock lock(mutex_);
    while (index < num_threads_) {
        if (Job* job = find())
            take_parts(lock, *job, Role::kWorker, Clock::now() + kStay);
        else
            idle(lock, kForever);
    }
}

// Spins, then sleeps, until there may be something to take or a job has ended. Where threads that
// call `run` leave no processor for it, it sleeps at once: spinning would take theirs.
void Pool::idle(std::unique_lock<std::mutex>& lock, Clock::time_point deadline) {
    const std::uint32_t seen = news_.load(std::memory_order_acquire);
    const bool crowded = callers_ > sleeping_;
    const Clock::time_point spin_end =
        std::min(deadline, Clock::now() + (crowded ? spin_.zero() : spin_));
    const auto changed = [&] { return news_.load(std::memory_order_acquire) != seen; };
    if (!watched_ && any_unready()) {
        watched_ = true;
        while (!changed() && !any_open() && Clock::now() < deadline) watch(lock, spin_end);
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
    if (deadline == kForever)
        work_.wait(lock, changed);
    else
        work_.wait_until(lock, deadline, changed);
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
        help(lock, job, deadline);
    } else {
        done_.wait_until(lock, deadline, [&] { return job.done(); });
    }
    if (!job.done()) return false;
    if (job.error_) std::rethrow_exception(job.error_);
    return true;
}

// Runs parts of any jobs on a thread of the pool that waits for one.
void Pool::help(std::unique_lock<std::mutex>& lock, const Job& awaited,
                Clock::time_point deadline) {
    ++helpers_;
    while (!awaited.done() && Clock::now() < deadline) {
        if (Job* job = find())
            take_parts(lock, *job, Role::kWorker, kOnePart);
        else
            idle(lock, deadline);
    }
    --helpers_;
}

}  // namespace tandem
