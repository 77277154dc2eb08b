// Work that does nothing: for what only has to wait and to signal.
#pragma once

#include "job.hpp"

namespace tandem {

class Nothing final : public Job {
  public:
    Nothing() : Job(1) {}

  private:
    void run_part(int) override {}
};

}  // namespace tandem
