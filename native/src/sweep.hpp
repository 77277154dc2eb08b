// The host's part of a step that a device computes at the same time, as one piece of work.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "job.hpp"
#include "nothing.hpp"
#include "pool.hpp"
#include "signal.hpp"

namespace tandem {

struct SweepLayer {
    std::unique_ptr<Job> append;  // null: no keys come to the layer's pages
    std::unique_ptr<Job> attend;
};

// Counters by which both hand rows to each other: at `base + layer + 1`, a layer's are there.
struct SweepLink {
    Counter& down;  // raised by the device
    Counter& up;    // by the sweep
    std::uint32_t base;
};

// Layers one after another, each of which begins when its rows have come down, and raises `up` when
// its results may go there. Nobody but the pool's threads is needed between them.
class Sweep {
  public:
    // At least one layer. The pool outlives the sweep.
    Sweep(Pool& pool, std::vector<SweepLayer> layers);
    ~Sweep();  // waits: its jobs write to memory of others
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;

    // Once. Begins no earlier than `after` is reached, and raises `then` behind all layers;
    // counters are raised also if work failed, as by `Pool::submit`. Throws std::invalid_argument,
    // and submits nothing, for as many of `after` as `Conditions` takes, since `down` is one more.
    void submit(const SweepLink& link, std::span<const SignalPoint> after, SignalPoint then);

    // Takes back what has not begun; `wait` then throws.
    void cancel();

    // Blocks until all is done; throws what the first layer that failed threw as soon as that one
    // has ended. False if `deadline` passed first.
    bool wait(std::chrono::steady_clock::time_point deadline);

    // When each append and attention began and ended, in their order, as `Job` says.
    std::vector<std::pair<std::int64_t, std::int64_t>> spans_ns() const;

  private:
    Pool& pool_;
    const std::vector<SweepLayer> layers_;
    Nothing end_;
    std::vector<Job*> work_;  // in order, the end behind it
    Counter put_{0};          // layers whose keys lie in their pages
    bool submitted_ = false;
};

}  // namespace tandem
