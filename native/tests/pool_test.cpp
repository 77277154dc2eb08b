// The pool's promises that Python cannot break: throwing jobs, jobs that wait for jobs, many
// threads.
#include "pool.hpp"

#include <cstdio>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "count_allocations.hpp"

namespace {

using tandem::Conditions;
using tandem::Counter;
using tandem::Job;
using tandem::Pool;
using tandem::SignalPoint;
using Clock = std::chrono::steady_clock;

constexpr auto kForever = Clock::time_point::max();

template <class Part>
class Task final : public Job {
  public:
    Task(int parts, Part part) : Job(parts), part_(std::move(part)) {}
    int finished = 0;

  private:
    void run_part(int part) override { part_(part); }
    void finish() override { ++finished; }
    Part part_;
};

void every_part_runs_once_before_the_end(Pool& pool) {
    for (int parts : {1, 2, 7, 100}) {
        std::vector<int> runs(parts);
        Task job(parts, [&](int part) { ++runs[part]; });
        pool.submit(job);
        CHECK(pool.wait(job, kForever));
        CHECK(job.finished == 1);
        CHECK(runs == std::vector<int>(parts, 1));
        CHECK(0 < job.start_ns() && job.start_ns() <= job.end_ns());
    }
}

void an_exception_reaches_the_waiter_and_leaves_the_pool_usable(Pool& pool) {
    Counter then{0};
    Task job(8, [](int part) {
        if (part % 3 == 1) throw std::runtime_error("part failed");
    });
    pool.submit(job, Conditions{}, {&then, 5});
    std::string message;
    try {
        pool.wait(job, kForever);
    } catch (const std::runtime_error& error) {
        message = error.what();
    }
    CHECK(message == "part failed");
    CHECK(job.finished == 0);
    CHECK(then == 5);
    every_part_runs_once_before_the_end(pool);
}

void a_job_starts_after_its_signal_and_overtakes_blocked_ones(Pool& pool) {
    Counter gate{0xFFFFFFFFu}, end{7};
    std::atomic<bool> opened{false};
    std::atomic<bool> early{false};
    Task blocked(2, [&](int) {
        if (!opened) early = true;
    });
    Task free(2, [](int) {});
    pool.submit(blocked, SignalPoint{&gate, 1}, {&end, 8});  // 1 lies two beyond 2^32 - 1
    pool.submit(free);
    CHECK(pool.wait(free, kForever));
    CHECK(tandem::raise(gate, 0));
    CHECK(!pool.wait(blocked, Clock::now() + std::chrono::milliseconds(5)));
    CHECK(blocked.start_ns() == 0);
    opened = true;
    CHECK(tandem::raise(gate, 1));
    CHECK(tandem::wait_for(end, 8, Clock::now() + std::chrono::seconds(20)));
    CHECK(blocked.end_ns() > 0);
    CHECK(pool.wait(blocked, kForever));
    CHECK(!early);
}

void a_chain_of_signals_runs_in_order(Pool& pool) {
    Counter counter{0};
    std::vector<int> order;
    const auto append = [&](int n) { return [&order, n](int) { order.push_back(n); }; };
    using Link = Task<decltype(append(0))>;
    std::vector<std::unique_ptr<Link>> chain;
    for (int i = 0; i < 20; ++i) chain.push_back(std::make_unique<Link>(1, append(i)));
    for (int i = 19; i >= 0; --i)
        pool.submit(*chain[i], SignalPoint{&counter, std::uint32_t(i)},
                    {&counter, std::uint32_t(i + 1)});
    for (auto& link : chain) CHECK(pool.wait(*link, kForever));
    for (int i = 0; i < 20; ++i) CHECK(order[i] == i);
}

void a_job_waits_for_all_its_signals(Pool& pool) {
    Counter first{0}, second{0};
    const SignalPoint both[] = {{&first, 1}, {&second, 1}};
    for (Counter* last : {&first, &second}) {
        first = second = 0;
        *(last == &first ? &second : &first) = 1;
        Task job(2, [&](int) { CHECK(first == 1 && second == 1); });
        pool.submit(job, Conditions(both));
        CHECK(!pool.wait(job, Clock::now() + std::chrono::milliseconds(2)));
        CHECK(tandem::raise(*last, 1));
        CHECK(pool.wait(job, kForever));
    }
    const std::vector<SignalPoint> many(Conditions::kMost + 1);
    bool threw = false;
    try {
        const Conditions refused(many);
    } catch (const std::invalid_argument&) {
        threw = true;
    }
    CHECK(threw);
}

void a_job_that_has_not_begun_can_be_taken_back(Pool& pool) {
    Counter gate{0}, then{0};
    std::vector<std::unique_ptr<Task<void (*)(int)>>> jobs;
    for (int i = 0; i < 3; ++i) {
        jobs.push_back(std::make_unique<Task<void (*)(int)>>(2, [](int) {}));
        pool.submit(*jobs[i], SignalPoint{&gate, 1}, {&then, std::uint32_t(i + 1)});
    }
    for (int i : {1, 2}) CHECK(pool.cancel(*jobs[i]));  // from the middle, and the last
    CHECK(!pool.cancel(*jobs[1]));
    bool threw = false;
    try {
        pool.wait(*jobs[1], kForever);
    } catch (const std::runtime_error&) {
        threw = true;
    }
    CHECK(threw && jobs[1]->start_ns() == 0);
    CHECK(tandem::raise(gate, 1));
    CHECK(pool.wait(*jobs[0], kForever));
    CHECK(then == 1);
    CHECK(!pool.cancel(*jobs[0]));
    every_part_runs_once_before_the_end(pool);
}

void a_job_may_wait_for_another(Pool& pool) {
    std::atomic<int> inner_runs{0};
    Task outer(8, [&](int) {
        Task inner(3, [&](int) { ++inner_runs; });
        pool.submit(inner);
        pool.wait(inner, kForever);
    });
    pool.submit(outer);
    CHECK(pool.wait(outer, kForever));
    CHECK(inner_runs == 24);
}

void many_threads_submit_while_another_resizes(Pool& pool) {
    std::atomic<int> runs{0};
    const auto submit = [&] {
        for (int i = 0; i < 200; ++i) {
            Task job(3, [&](int) { ++runs; });
            pool.submit(job);
            CHECK(pool.wait(job, kForever));
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(submit);
    for (int n : {1, 4, 2, 3}) pool.resize(n);
    for (std::thread& thread : threads) thread.join();
    CHECK(runs == 4 * 200 * 3);
    CHECK(pool.num_threads() == 3);
}

void a_caller_takes_part(Pool& pool) {
    std::vector<std::thread> callers;
    std::atomic<int> runs{0};
    for (int i = 0; i < 3; ++i)
        callers.emplace_back([&] {
            for (int n = 0; n < 100; ++n) {
                Task job(7, [&](int) { ++runs; });
                pool.run(job);
                CHECK(job.done() && job.finished == 1);
            }
        });
    for (std::thread& caller : callers) caller.join();
    CHECK(runs == 3 * 100 * 7);
    Task failing(5, [](int part) {
        if (part == 3) throw std::runtime_error("part failed");
    });
    bool thrown = false;
    try {
        pool.run(failing);
    } catch (const std::runtime_error&) {
        thrown = true;
    }
    CHECK(thrown);
}

// Each part ends only when all have begun: one thread too few awake, and the deadline passes.
void as_many_threads_wake_as_there_is_work(Pool& pool) {
    for (int round = 0; round < 50; ++round) {
        const int threads = pool.num_threads();
        std::atomic<int> begun{0};
        const auto meet = [&](int) {
            ++begun;
            while (begun < threads) std::this_thread::yield();
        };
        std::vector<std::unique_ptr<Task<decltype(meet)>>> jobs;
        for (int i = 0; i < threads; ++i)
            jobs.push_back(std::make_unique<Task<decltype(meet)>>(1, meet));
        if (round % 2) std::this_thread::sleep_for(std::chrono::microseconds(200));  // threads too
        for (auto& job : jobs) pool.submit(*job);
        const auto deadline = Clock::now() + std::chrono::seconds(20);
        for (auto& job : jobs) CHECK(pool.wait(*job, deadline));
        begun = 0;
        Task shared(threads, meet);
        pool.run(shared);
        CHECK(begun == threads);
    }
}

template <class Error, class Call>
bool throws(const Call& call) {
    try {
        call();
    } catch (const Error&) {
        return true;
    }
    return false;
}

void a_job_runs_once(Pool& pool) {
    for (int parts : {1, 5}) {
        std::atomic<int> runs{0};
        const auto part = [&](int) { ++runs; };
        Task submitted(parts, part), run(parts, part);
        pool.submit(submitted);
        CHECK(pool.wait(submitted, kForever));
        pool.run(run);
        Task failing(parts, [&](int part) {
            ++runs;
            if (part == 0) throw std::runtime_error("part failed");
        });
        CHECK(throws<std::runtime_error>([&] { pool.run(failing); }));
        CHECK(failing.done() && failing.finished == 0);
        CHECK(throws<std::runtime_error>([&] { pool.wait(failing, kForever); }));
        for (Job* job : {static_cast<Job*>(&submitted), static_cast<Job*>(&run),
                         static_cast<Job*>(&failing)}) {
            CHECK(throws<std::invalid_argument>([&] { pool.submit(*job); }));
            CHECK(throws<std::invalid_argument>([&] { pool.run(*job); }));
        }
        CHECK(runs == 3 * parts);
    }
}

void another_pools_job_cannot_be_taken_back(Pool& pool) {
    Pool other({1, false, std::chrono::microseconds(0)});
    Counter gate{0};
    const auto part = [](int) {};
    Task job(2, part), fresh(2, part);
    other.submit(job, SignalPoint{&gate, 1});
    CHECK(!pool.cancel(job) && !pool.cancel(fresh));
    CHECK(tandem::raise(gate, 1));
    CHECK(other.wait(job, kForever));
}

// Not even a job of the pool itself, which runs other work meanwhile.
void nobody_waits_for_what_was_taken_back(Pool& pool) {
    Counter gate{0}, waiting{0};
    Task inner(1, [](int) {});
    std::atomic<bool> threw{false};
    Task outer(1, [&](int) {
        pool.submit(inner, SignalPoint{&gate, 1});
        tandem::raise(waiting, 1);
        try {
            pool.wait(inner, kForever);
        } catch (const std::runtime_error&) {
            threw = true;
        }
    });
    pool.submit(outer);
    CHECK(tandem::wait_for(waiting, 1, kForever));
    CHECK(pool.cancel(inner));
    CHECK(pool.wait(outer, Clock::now() + std::chrono::seconds(20)));
    CHECK(threw);
}

double cpu_seconds() {
    timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// A thread of the pool that waits for a job and has no other work does not keep a processor busy.
void waiting_in_a_job_takes_no_time(Pool& pool) {
    constexpr double kWait_s = 0.2;
    Counter gate{0};
    Task outer(1, [&](int) {
        Task inner(1, [](int) {});
        pool.submit(inner, SignalPoint{&gate, 1});
        CHECK(!pool.wait(inner, Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(kWait_s))));
        CHECK(tandem::raise(gate, 1));
        CHECK(pool.wait(inner, kForever));
    });
    const double before_s = cpu_seconds();
    pool.submit(outer);
    CHECK(pool.wait(outer, kForever));
    CHECK(cpu_seconds() - before_s < kWait_s / 2);
}

// Nor does one that watched the signal of a job that was taken back.
void a_job_taken_back_takes_no_more_time(Pool& pool) {
    constexpr double kPause_s = 0.1;
    Counter gate{0};
    Task job(1, [](int) {});
    pool.submit(job, SignalPoint{&gate, 1});
    CHECK(!pool.wait(job, Clock::now() + std::chrono::milliseconds(2)));
    CHECK(pool.cancel(job));
    const double before_s = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(kPause_s));
    CHECK(cpu_seconds() - before_s < kPause_s / 50);
}

// Whatever pool and signals do for a job, they do without allocating.
void nothing_is_allocated(Pool& pool) {
    Counter gate{0}, end{0};
    std::atomic<int> runs{0};
    const auto part = [&](int) { ++runs; };
    const long before = tandem::test::allocations;
    for (std::uint32_t i = 1; i <= 200; ++i) {
        Task submitted(5, part), run(5, part), one(1, part);
        pool.submit(submitted, SignalPoint{&gate, i}, {&end, i});
        pool.run(run);
        pool.run(one);
        CHECK(tandem::raise(gate, i));
        CHECK(tandem::wait_for(end, i, kForever));
        CHECK(pool.wait(submitted, kForever));
    }
    CHECK(tandem::test::allocations == before);
    CHECK(runs == 200 * 11);
}

void signals_compare_on_the_circle() {
    CHECK(tandem::reached(5, 5) && tandem::reached(6, 5) && !tandem::reached(4, 5));
    CHECK(tandem::reached(2, 0xFFFFFFF0u) && !tandem::reached(0xFFFFFFF0u, 2));
    Counter counter{10};
    CHECK(!tandem::raise(counter, 9) && counter == 10);
    CHECK(!tandem::wait_for(counter, 11, Clock::now() + std::chrono::milliseconds(3)));
}

}  // namespace

int main() {
    signals_compare_on_the_circle();
    for (int threads : {1, 2, 4}) {
        for (auto spin : {std::chrono::microseconds(0), std::chrono::microseconds(50)}) {
            Pool pool({threads, false, spin});
            every_part_runs_once_before_the_end(pool);
            an_exception_reaches_the_waiter_and_leaves_the_pool_usable(pool);
            a_job_starts_after_its_signal_and_overtakes_blocked_ones(pool);
            a_chain_of_signals_runs_in_order(pool);
            a_job_waits_for_all_its_signals(pool);
            a_job_that_has_not_begun_can_be_taken_back(pool);
            a_job_may_wait_for_another(pool);
            a_caller_takes_part(pool);
            as_many_threads_wake_as_there_is_work(pool);
            a_job_runs_once(pool);
            another_pools_job_cannot_be_taken_back(pool);
            nobody_waits_for_what_was_taken_back(pool);
            nothing_is_allocated(pool);
            waiting_in_a_job_takes_no_time(pool);
            a_job_taken_back_takes_no_more_time(pool);
            many_threads_submit_while_another_resizes(pool);
        }
    }
    std::puts("ok");
}
