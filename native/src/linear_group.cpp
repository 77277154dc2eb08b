#include "linear_group.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tandem {
namespace {

int count_parts(const std::vector<std::unique_ptr<LinearJob>>& maps) {
    if (maps.empty()) throw std::invalid_argument("a group needs linear maps");
    int parts = 0;
    for (const auto& map : maps) parts += map->num_parts();
    return parts;
}

}  // namespace

LinearGroupJob::LinearGroupJob(std::vector<std::unique_ptr<LinearJob>> maps)
    : Job(count_parts(maps)), maps_(std::move(maps)) {
    int end = 0;
    for (const auto& map : maps_) ends_.push_back(end += map->num_parts());
}

void LinearGroupJob::run_part(int part) {
    const auto map = std::ranges::upper_bound(ends_, part) - ends_.begin();
    const int first = map > 0 ? ends_[map - 1] : 0;
    maps_[map]->run_part(part - first);
}

}  // namespace tandem
