// Waiting for other threads that are at work on the same thing.
#pragma once

#include <thread>

#include "signal.hpp"

namespace tandem {

// Spins, and where that takes long lets others have the processor.
template <class Condition>
void spin_until(const Condition& holds) {
    constexpr int kSpins = 1000;
    for (int i = 0; !holds(); ++i) {
        if (i < kSpins)
            relax();
        else
            std::this_thread::yield();
    }
}

}  // namespace tandem
