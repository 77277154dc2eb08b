#include "host_sweep.hpp"

#include "waiting.hpp"

namespace tandem {

HostSweep::HostSweep(std::shared_ptr<Pool> pool, std::vector<nb::object> memory,
                     std::vector<SweepLayer> layers)
    : pool_(std::move(pool)),
      memory_(std::move(memory)),
      sweep_(std::make_unique<Sweep>(*pool_, std::move(layers))) {}

HostSweep::~HostSweep() {
    nb::gil_scoped_release release;
    sweep_.reset();
}

void HostSweep::submit(const std::shared_ptr<HostSignal>& down,
                       const std::shared_ptr<HostSignal>& up, std::uint32_t base,
                       const Points& after, const Point& then) {
    require(!submitted_, "a sweep runs once");
    require(down != nullptr && up != nullptr, "a sweep needs its signals");
    const SignalPoint end = then ? to_point(*then) : SignalPoint{};
    std::vector<SignalPoint> first;
    for (const NamedPoint& point : after) first.push_back(to_point(point));
    points_ = after;
    points_.emplace_back(down, 0);
    points_.emplace_back(up, 0);
    if (then) points_.push_back(*then);
    nb::gil_scoped_release release;
    sweep_->submit({down->counter(), up->counter(), base}, first, end);
    submitted_ = true;
}

void HostSweep::cancel() {
    nb::gil_scoped_release release;
    sweep_->cancel();
}

bool HostSweep::wait(std::optional<double> timeout_s) {
    require(submitted_, "a sweep that was not submitted never ends");
    return wait_in_slices(timeout_s, [&](auto until) { return sweep_->wait(until); });
}

}  // namespace tandem
