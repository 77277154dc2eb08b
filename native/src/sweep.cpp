#include "sweep.hpp"

#include <stdexcept>

namespace tandem {
namespace {

Conditions joined(SignalPoint first, std::span<const SignalPoint> others) {
    std::vector<SignalPoint> all{first};
    all.insert(all.end(), others.begin(), others.end());
    return Conditions(all);
}

}  // namespace

Sweep::Sweep(Pool& pool, std::vector<SweepLayer> layers) : pool_(pool), layers_(std::move(layers)) {
    if (layers_.empty()) throw std::invalid_argument("a sweep needs layers");
    for (const SweepLayer& layer : layers_) {
        if (layer.append) work_.push_back(layer.append.get());
        work_.push_back(layer.attend.get());
    }
    work_.push_back(&end_);
}

Sweep::~Sweep() {
    if (!submitted_) return;
    for (Job* job : work_) {
        try {
            pool_.wait(*job, std::chrono::steady_clock::time_point::max());
        } catch (...) {  // nobody asked
        }
    }
}

void Sweep::submit(const SweepLink& link, std::span<const SignalPoint> after, SignalPoint then) {
    if (submitted_) throw std::invalid_argument("a sweep runs once");
    const auto last = static_cast<std::uint32_t>(layers_.size());
    const Conditions end = joined({&link.up, link.base + last}, after);
    submitted_ = true;
    for (std::uint32_t layer = 0; layer < last; ++layer) {
        const auto& [append, attend] = layers_[layer];
        const SignalPoint here{&link.down, link.base + layer + 1};
        const SignalPoint before[] = {{&link.up, link.base + layer}};
        Conditions ready = joined(here, layer == 0 ? after : before);
        if (append) {
            const SignalPoint put{&put_, layer + 1};
            pool_.submit(*append, ready, put);
            ready = put;
        }
        pool_.submit(*attend, ready, {&link.up, link.base + layer + 1});
    }
    pool_.submit(end_, end, then);
}

void Sweep::cancel() {
    for (Job* job : work_) pool_.cancel(*job);
}

bool Sweep::wait(std::chrono::steady_clock::time_point deadline) {
    for (Job* job : work_)
        if (!pool_.wait(*job, deadline)) return false;
    return true;
}

std::vector<std::pair<std::int64_t, std::int64_t>> Sweep::spans_ns() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (const SweepLayer& layer : layers_) {
        if (layer.append) spans.emplace_back(layer.append->start_ns(), layer.append->end_ns());
        spans.emplace_back(layer.attend->start_ns(), layer.attend->end_ns());
    }
    return spans;
}

}  // namespace tandem
