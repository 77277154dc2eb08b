// How many processors this process may use.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// Processors in the calling thread's affinity mask, ascending.
std::vector<int> allowed_cpus();

// Processors that the cgroup's quota is worth, rounded up; 0 without a quota.
// `root` is where `proc` and `sys` lie: "/" but in tests.
int quota_cpus(const std::string& root);

// The affinity mask's size, or the quota where it is smaller.
int default_num_threads(const std::string& root);

}  // namespace tandem
