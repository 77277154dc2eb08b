#include "cpu_limit.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr double kNoQuota = 0.0;
constexpr int kMostCpus = 1 << 20;

// Room for processors below `most`; empty.
class CpuSet {
  public:
    explicit CpuSet(int most) : bytes_(CPU_ALLOC_SIZE(most)), set_(CPU_ALLOC(most)) {
        if (!set_) throw std::bad_alloc();
        CPU_ZERO_S(bytes_, set_);
    }
    ~CpuSet() { CPU_FREE(set_); }
    CpuSet(const CpuSet&) = delete;
    CpuSet& operator=(const CpuSet&) = delete;

    std::size_t bytes() const { return bytes_; }
    cpu_set_t* get() const { return set_; }

  private:
    std::size_t bytes_;
    cpu_set_t* set_;
};

std::string read_word(std::istream& stream) {
    std::string word;
    stream >> word;
    return word;
}

// Version 2 says "QUOTA PERIOD" or "max PERIOD" in one file.
double read_v2(const fs::path& group) {
    std::ifstream file(group / "cpu.max");
    const double quota = std::atof(read_word(file).c_str());
    const double period = std::atof(read_word(file).c_str());
    return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

double read_v1(const fs::path& group) {
    std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
    const double quota = std::atof(read_word(quota_file).c_str());  // -1: none
    const double period = std::atof(read_word(period_file).c_str());
    return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

// The lowest quota of the group and of those above it, up to the mount.
double lowest_quota(const fs::path& mount, std::string group, double (*read)(const fs::path&)) {
    double lowest = kNoQuota;
    for (;;) {
        const double quota = read(mount / group);
        if (quota > 0) lowest = lowest > 0 ? std::min(lowest, quota) : quota;
        if (group.empty()) return lowest;
        const std::size_t slash = group.rfind('/');
        group.resize(slash == std::string::npos ? 0 : slash);
    }
}

int whole_cpus(double quota) { return quota > 0 ? std::max(1, static_cast<int>(quota)) : 0; }

bool names_controller(const std::string& list, const std::string& name) {
    return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
    for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
        const CpuSet set(most);
        if (sched_getaffinity(0, set.bytes(), set.get()) != 0) {
            if (errno == EINVAL) continue;  // the machine may have more
            break;
        }
        for (int cpu = 0; cpu < most; ++cpu)
            if (CPU_ISSET_S(cpu, set.bytes(), set.get())) cpus.push_back(cpu);
        break;
    }
    return cpus;
}

void pin_thread(std::thread& thread, int cpu) {
    const CpuSet set(cpu + 1);
    CPU_SET_S(cpu, set.bytes(), set.get());
    pthread_setaffinity_np(thread.native_handle(), set.bytes(), set.get());
}

int quota_cpus(const std::string& root) {
    const fs::path base(root);
    const fs::path mounts = base / "sys/fs/cgroup";
    std::ifstream groups(base / "proc/self/cgroup");
    double quota = kNoQuota;
    for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:/GROUP
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos || second + 1 >= line.size()) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 2);
        if (controllers.empty())
            quota = lowest_quota(mounts, group, read_v2);
        else if (names_controller(controllers, "cpu"))
            return whole_cpus(lowest_quota(mounts / "cpu", group, read_v1));
    }
    return whole_cpus(quota);
}

int default_num_threads(const std::string& root) {
    const int cpus = std::max<int>(1, static_cast<int>(allowed_cpus().size()));
    const int quota = quota_cpus(root);
    return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace tandem
