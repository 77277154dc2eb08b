// Several linear maps as one job: threads that have finished one go on with the next.
#pragma once

#include <cstddef>

#include "job.hpp"
#include "linear.hpp"
#include "scratch.hpp"

namespace tandem {

// Up to `most` maps, in memory from a store.
class LinearMaps {
  public:
    LinearMaps(BufferStore& buffers, std::size_t most);
    ~LinearMaps();
    LinearMaps(const LinearMaps&) = delete;
    LinearMaps& operator=(const LinearMaps&) = delete;

    // Throws as LinearJob does.
    void add(const LinearWeight& weight, const LinearCall& call, Isa isa, int num_threads);

    int num_parts() const { return count_ ? ends_[count_ - 1] : 0; }
    void run_part(int part) const;

  private:
    LinearJob* at(std::size_t i) const {
        return reinterpret_cast<LinearJob*>(memory_.data() + i * sizeof(LinearJob));
    }

    BufferStore& buffers_;
    Borrowed<std::byte> memory_;
    Borrowed<int> ends_;  // of each map, one past its last part
    std::size_t count_ = 0;
};

class LinearGroupJob final : public Job {
  public:
    // Throws std::invalid_argument if there are no maps; they must outlive the job.
    explicit LinearGroupJob(const LinearMaps& maps);

  private:
    void run_part(int part) override { maps_.run_part(part); }

    const LinearMaps& maps_;
};

}  // namespace tandem
