// How fast one thread can tell another anything: the bound of what a pool's start can take.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Nanoseconds from a write to the moment when another thread has seen it, one per round: half of a
// round trip between two threads that do nothing but spin on an atomic.
//
// Throws std::invalid_argument for fewer than one round.
std::vector<std::int64_t> spin_round_trips(int rounds);

}  // namespace tandem
