// How many processors this process may use.
#pragma once

#include <string>
#include <thread>
#include <vector>

namespace tandem {

// Processors in the calling thread's affinity mask, ascending.
std::vector<int> allowed_cpus();

// Lets the thread run on that processor alone; where this is forbidden, it runs on all as before.
void pin_thread(std::thread& thread, int cpu);

// Processors that the cgroup's quota is worth: rounded down, since threads that spin would use up
// the quota of those that work, but at least 1; 0 without a quota.
// `root` is where `proc` and `sys` lie: "/" but in tests.
int quota_cpus(const std::string& root);

// The affinity mask's size, or the quota where it is smaller.
int default_num_threads(const std::string& root);

}  // namespace tandem
