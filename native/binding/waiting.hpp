// Waiting without the interpreter, and yet open to interrupts.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace tandem {

// Lets the interpreter handle its signals; throws what their handlers raise. Takes the interpreter.
inline void check_interrupts() {
    const nanobind::gil_scoped_acquire interpreter;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Calls `wait(until)` without the interpreter until it returns true or the timeout is over; between
// slices of a tenth of a second the interpreter handles its signals.
template <class Wait>
bool wait_in_slices(std::optional<double> timeout_s, const Wait& wait) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kSlice = std::chrono::milliseconds(100);
    constexpr double kLongest_s = 1e8;
    std::optional<Clock::time_point> deadline;
    if (timeout_s) {
        const std::chrono::duration<double> timeout(std::clamp(*timeout_s, 0.0, kLongest_s));
        deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
    }
    for (;;) {
        Clock::time_point until = Clock::now() + kSlice;
        const bool last = deadline && *deadline <= until;
        if (last) until = *deadline;
        bool done;
        {
            nanobind::gil_scoped_release release;
            done = wait(until);
        }
        if (done || last) return done;
        check_interrupts();
    }
}

}  // namespace tandem
