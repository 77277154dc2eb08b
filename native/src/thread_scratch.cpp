#include "thread_scratch.hpp"

namespace tandem {

FloatBuffer& thread_scratch() {
    thread_local FloatBuffer buffer;
    return buffer;
}

}  // namespace tandem
