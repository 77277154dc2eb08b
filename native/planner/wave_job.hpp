// The loop of `tandem/planner/wave_job.py`: every sum in its order, so that results are its to the
// bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "wave.hpp"

namespace tandem::planner {

class WaveJob {
  public:
    // Throws std::invalid_argument where a job would never end.
    WaveJob(const Wave& wave, const std::vector<RequestShape>& shapes, const SweepS& sweep_s);

    // Seconds until the last request has ended.
    double run();
    // When each request has begun for the first time.
    const std::vector<double>& begun_s() const { return begun_s_; }
    // From each request's first token to its last, and the home in which it has ended.
    const std::vector<double>& decoding_s() const { return decoding_s_; }
    const std::vector<int>& homes() const { return home_of_; }

  private:
    struct Waiting {
        std::int64_t number;
        double tokens, end;
    };
    // A request that runs.
    struct Row {
        std::int64_t number;
        double tokens, end;
        int home;
        double pace, begins;
        std::int64_t blocks;
        double gain;

        double gained(double sweep, double sweeps) const;
    };
    // Until when prompts are read, and tokens of them per sweep.
    struct Reading {
        double until, per_sweep;
    };

    void admit();
    std::optional<int> home_for(std::int64_t need, std::int64_t longest) const;
    double begins(double tokens, const Home& there);
    std::int64_t blocks(double tokens) const;
    double sweeps_until_event() const;
    void grow(double sweeps);
    bool preempted(int home, std::size_t behind);
    void preempt(std::size_t place);
    void leave(const Row& row);
    double advance(double sweeps);
    double given(const Row& row) const;
    void note_first(double sweeps, double sweep_s, const std::array<double, 2>& attended,
                    double read);
    void note_last(double sweeps, double sweep_s);
    double read_tokens(double then);
    double sweep_with_prompts_s(const std::array<double, 2>& attended, double read,
                                double prompts) const;

    const Wave& wave_;
    const SweepS& sweep_s_;
    std::vector<Waiting> waiting_;  // the next one last
    std::vector<Row> rows_;         // by number
    std::array<std::int64_t, 2> there_{}, free_{};
    std::int64_t most_blocks_ = 0;
    double prompt_tokens_ = 0.0;
    double sweep_ = 0.0, read_until_ = 0.0, time_s_ = 0.0;
    std::deque<Reading> reading_;
    std::vector<double> begun_s_, first_s_, decoding_s_;
    std::vector<int> home_of_;
    std::vector<bool> has_begun_;
    std::vector<Row> first_, last_;  // of a step: those whose first token is given, or last
};

}  // namespace tandem::planner
