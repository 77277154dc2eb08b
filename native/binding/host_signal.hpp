// A signal that Python owns or points at.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "signal.hpp"

namespace tandem {

class HostSignal {
  public:
    // A counter of its own, or the one that lies at `address` in someone else's memory.
    HostSignal(std::uint32_t value, std::optional<std::uintptr_t> address);

    Counter& counter() { return *counter_; }
    std::uint32_t value() const { return counter_->load(std::memory_order_acquire); }
    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(counter_); }
    void set(std::uint32_t value);  // throws std::invalid_argument if it would go back

  private:
    std::unique_ptr<Counter> own_;
    Counter* counter_;
};

using NamedPoint = std::pair<std::shared_ptr<HostSignal>, std::uint32_t>;
using Point = std::optional<NamedPoint>;
using Points = std::vector<NamedPoint>;

// Both throw std::invalid_argument for None in a signal's place, the latter for too many, too.
SignalPoint to_point(const NamedPoint& point);
Conditions to_conditions(const Points& points);

}  // namespace tandem
