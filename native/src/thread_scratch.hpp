// Memory of a thread for what it works on at the moment; kept, so that no layer allocates.
#pragma once

#include "buffer.hpp"

namespace tandem {

FloatBuffer& thread_scratch();

}  // namespace tandem
