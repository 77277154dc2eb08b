// A job of the pool as an object of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "host_signal.hpp"
#include "job.hpp"
#include "pool.hpp"

namespace tandem {

// Keeps everything that its job reads and writes alive until the job is done.
class Task {
  public:
    Task(std::shared_ptr<Pool> pool, std::vector<nb::object> memory, std::unique_ptr<Job> job);
    ~Task();  // waits: the job writes to memory that goes with this object
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;

    void submit(const Points& after, const Point& then);
    bool cancel();  // false if it has begun, or was never submitted
    void run();     // to its end, the calling thread taking part
    bool wait(std::optional<double> timeout_s);
    const Job& job() const { return *job_; }

  private:
    std::shared_ptr<Pool> pool_;
    std::vector<nb::object> memory_;
    Points after_;
    Point then_;
    std::unique_ptr<Job> job_;
    bool submitted_ = false;  // or run
};

}  // namespace tandem
