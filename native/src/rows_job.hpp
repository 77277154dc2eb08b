// The same for every row of a matrix, divided among threads.
#pragma once

#include <cstdint>
#include <utility>

#include "divide.hpp"
#include "job.hpp"

namespace tandem {

// Calls `body(row)`, at once for different rows.
template <class Body>
class RowsJob final : public Job {
  public:
    // row_elements: about how many numbers a call handles.
    RowsJob(std::int64_t rows, std::int64_t row_elements, int num_threads, Body body)
        : Job(count_parts(rows, row_elements, num_threads)), rows_(rows), body_(std::move(body)) {}

  private:
    void run_part(int part) override {
        const Run run = run_of(rows_, part, num_parts());
        for (std::int64_t row = run.begin; row < run.end; ++row) body_(row);
    }

    std::int64_t rows_;
    Body body_;
};

}  // namespace tandem
