#include "task.hpp"

#include <chrono>
#include <utility>

#include "waiting.hpp"

namespace tandem {

Task::Task(std::shared_ptr<Pool> pool, std::vector<nb::object> memory, std::unique_ptr<Job> job)
    : pool_(std::move(pool)), memory_(std::move(memory)), job_(std::move(job)) {}

Task::~Task() {
    if (!submitted_ || job_->done()) return;
    nb::gil_scoped_release release;
    try {
        pool_->wait(*job_, std::chrono::steady_clock::time_point::max());
    } catch (...) {  // nobody asked
    }
}

void Task::submit(const Points& after, const Point& then) {
    require(!submitted_, "a task runs once");
    const Conditions conditions = to_conditions(after);
    const SignalPoint end = then ? to_point(*then) : SignalPoint{};
    after_ = after;
    then_ = then;
    submitted_ = true;
    nb::gil_scoped_release release;
    pool_->submit(*job_, conditions, end);
}

bool Task::cancel() {
    nb::gil_scoped_release release;
    return pool_->cancel(*job_);
}

void Task::run() {
    require(!submitted_, "a task runs once");
    submitted_ = true;
    nb::gil_scoped_release release;
    pool_->run(*job_);
}

bool Task::wait(std::optional<double> timeout_s) {
    require(submitted_, "a task that was not submitted never ends");
    return wait_in_slices(timeout_s, [&](auto until) { return pool_->wait(*job_, until); });
}

}  // namespace tandem
