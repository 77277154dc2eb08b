// Copies memory that is not read again soon.
#pragma once

#include <cstddef>

namespace tandem {

// Like std::memcpy, past the caches where the processor can: the target is not read first, which
// would cost half as much traffic again. Done when it returns, also for other threads.
void stream_copy(void* target, const void* source, std::size_t bytes);

}  // namespace tandem
