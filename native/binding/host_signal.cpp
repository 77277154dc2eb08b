#include "host_signal.hpp"

#include <string>

#include "arrays.hpp"

namespace tandem {

HostSignal::HostSignal(std::uint32_t value, std::optional<std::uintptr_t> address) {
    if (address) {
        require(*address != 0 && *address % sizeof(Counter) == 0,
                "a signal's address must be a multiple of 4 and not 0");
        counter_ = reinterpret_cast<Counter*>(*address);
    } else {
        own_ = std::make_unique<Counter>(value);
        counter_ = own_.get();
    }
}

SignalPoint to_point(const NamedPoint& point) {
    require(point.first != nullptr, "a point needs a signal");
    return {&point.first->counter(), point.second};
}

Conditions to_conditions(const Points& points) {
    std::vector<SignalPoint> reached;
    for (const NamedPoint& point : points) reached.push_back(to_point(point));
    return Conditions(reached);
}

void HostSignal::set(std::uint32_t value) {
    require(raise(*counter_, value), "a signal cannot go back from " +
                                         std::to_string(this->value()) + " to " +
                                         std::to_string(value));
}

}  // namespace tandem
