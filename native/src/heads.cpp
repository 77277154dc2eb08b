#include "heads.hpp"

#include "divide.hpp"
#include "norm.hpp"

namespace tandem {
namespace {

void rotate(float* head, const float* cos, const float* sin, int head_dim) {
    const int half = head_dim / 2;
    for (int i = 0; i < half; ++i) {
        const float low = head[i], high = head[i + half];
        head[i] = low * cos[i] + high * sin[i];
        head[i + half] = high * cos[i + half] + low * sin[i + half];
    }
}

}  // namespace

HeadsJob::HeadsJob(const HeadShape& shape, const HeadTransform& transform, float* heads,
                   std::int64_t tokens, int num_threads)
    : Job(count_parts(tokens, shape.token_elements(), num_threads)),
      shape_(shape),
      transform_(transform),
      heads_(heads),
      tokens_(tokens) {}

void HeadsJob::run_part(int part) {
    const Run run = run_of(tokens_, part, num_parts());
    for (std::int64_t token = run.begin; token < run.end; ++token) transform_token(token);
}

void HeadsJob::transform_token(std::int64_t token) const {
    const int dim = shape_.head_dim;
    float* head = heads_ + token * shape_.token_elements();
    for (int i = 0; i < shape_.heads + shape_.kv_heads; ++i, head += dim) {
        const float* weight = i < shape_.heads ? transform_.query_norm : transform_.key_norm;
        if (weight) normalize({weight, nullptr, transform_.epsilon, dim}, head, head);
        if (transform_.cos)
            rotate(head, transform_.cos + token * dim, transform_.sin + token * dim, dim);
    }
}

}  // namespace tandem
