// A sweep as an object of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "host_signal.hpp"
#include "pool.hpp"
#include "sweep.hpp"

namespace tandem {

// Keeps everything that its sweep reads and writes alive until that is done.
class HostSweep {
  public:
    HostSweep(std::shared_ptr<Pool> pool, std::vector<nb::object> memory,
              std::vector<SweepLayer> layers);
    ~HostSweep();

    // base: what both counters are at before the step.
    void submit(const std::shared_ptr<HostSignal>& down, const std::shared_ptr<HostSignal>& up,
                std::uint32_t base, const Points& after, const Point& then);
    void cancel();
    bool wait(std::optional<double> timeout_s);
    std::vector<std::pair<std::int64_t, std::int64_t>> spans_ns() const {
        return sweep_->spans_ns();
    }

  private:
    std::shared_ptr<Pool> pool_;
    std::vector<nb::object> memory_;
    Points points_;
    std::unique_ptr<Sweep> sweep_;
    bool submitted_ = false;
};

}  // namespace tandem
