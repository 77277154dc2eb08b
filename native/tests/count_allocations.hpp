// Counts what a test program allocates, and lets allocations fail. To be included by one source.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace tandem::test {

inline std::atomic<long> allocations{0};
inline constexpr long kNever = std::numeric_limits<long>::max();
inline std::atomic<long> failing{kNever};  // fails when as many have been made

inline void* allocate(std::size_t size, std::size_t alignment) {
    if (allocations++ == failing.load()) throw std::bad_alloc();
    void* memory = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
    if (!memory) throw std::bad_alloc();
    return memory;
}

}  // namespace tandem::test

__attribute__((noinline)) void* operator new(std::size_t size) {
    return tandem::test::allocate(size, alignof(std::max_align_t));
}
__attribute__((noinline)) void* operator new(std::size_t size, std::align_val_t alignment) {
    return tandem::test::allocate(size, static_cast<std::size_t>(alignment));
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t,
                                               std::align_val_t) noexcept {
    std::free(memory);
}
