// A machine with 2,048 processors, of which this process may use three: what the system calls for
// affinity say is made up here, and what they are told is noted.
#include "cpu_limit.hpp"

#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "check.hpp"
#include "pool.hpp"

namespace {

constexpr int kCpus = 2048;
std::mutex mutex;
std::vector<std::vector<int>> pinned;  // processors that each thread was bound to

// As the C library declares them: glibc's do not throw, musl's say nothing.
constexpr bool kGets = noexcept(sched_getaffinity(0, 0, std::declval<cpu_set_t*>()));
constexpr bool kSets = noexcept(pthread_setaffinity_np({}, 0, std::declval<cpu_set_t*>()));

}  // namespace

extern "C" int sched_getaffinity(pid_t, std::size_t bytes, cpu_set_t* set) noexcept(kGets) {
    if (bytes < kCpus / 8) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(bytes, set);
    for (int cpu : {3, 1030, 2047}) CPU_SET_S(cpu, bytes, set);
    return 0;
}

extern "C" int pthread_setaffinity_np(pthread_t, std::size_t bytes,
                                      const cpu_set_t* set) noexcept(kSets) {
    std::vector<int> cpus;
    for (int cpu = 0; cpu < kCpus; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    const std::lock_guard lock(mutex);
    pinned.push_back(cpus);
    return 0;
}

int main() {
    CHECK((tandem::allowed_cpus() == std::vector<int>{3, 1030, 2047}));
    CHECK(tandem::default_num_threads("/nothing") == 3);
    {
        tandem::Pool pool({.num_threads = 4, .pin = true});
        pool.resize(2);
        pool.resize(3);
    }
    const std::vector<std::vector<int>> expected{{3}, {1030}, {2047}, {3}, {2047}};
    CHECK(pinned == expected);
    std::puts("ok");
}
