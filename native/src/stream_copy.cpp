#include "stream_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tandem {

#if defined(__x86_64__)

void stream_copy(void* target, const void* source, std::size_t bytes) {
    constexpr std::size_t kLine = 64, kAhead = 4096;
    auto* to = static_cast<char*>(target);
    const auto* from = static_cast<const char*>(source);
    const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(to) % kLine;
    if (bytes < skipped + kLine) {
        std::memcpy(to, from, bytes);
        return;
    }
    std::memcpy(to, from, skipped);
    std::size_t at = skipped;
    for (; at + kLine <= bytes; at += kLine) {
        __builtin_prefetch(from + at + kAhead, 0, 0);
        __m128i words[4];
        for (int i = 0; i < 4; ++i)
            words[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at) + i);
        for (int i = 0; i < 4; ++i)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, words[i]);
    }
    std::memcpy(to + at, from + at, bytes - at);
    _mm_sfence();
}

#else

void stream_copy(void* target, const void* source, std::size_t bytes) {
    std::memcpy(target, source, bytes);
}

#endif

}  // namespace tandem
