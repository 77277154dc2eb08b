// Several linear maps as one job: threads that have finished one go on with the next.
#pragma once

#include <memory>
#include <vector>

#include "job.hpp"
#include "linear.hpp"

namespace tandem {

class LinearGroupJob final : public Job {
  public:
    // Throws std::invalid_argument if there are none.
    explicit LinearGroupJob(std::vector<std::unique_ptr<LinearJob>> maps);

  private:
    void run_part(int part) override;

    std::vector<std::unique_ptr<LinearJob>> maps_;
    std::vector<int> ends_;  // of each map, one past its last part
};

}  // namespace tandem
