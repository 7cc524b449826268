// Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438), with the float operations of
// Stable-Baselines3 in their order, so that every bit of the result is the same.
#pragma once

#include <cstddef>
#include <vector>

namespace relive {

struct Rollout {
    std::size_t steps;
    std::size_t envs;
    const float* rewards;  // (steps, envs), as all that follow unless said otherwise
    const float* values;
    const float* episode_starts;
    const float* last_values;  // (envs,): values after the last step
    const float* dones;        // (envs,): the last step ended its episode
    float* advantages;
    float* returns;
};

// `Delta` is the type in which the one-step errors are computed and `Sum` that of the recursion: NumPy computes in
// float64 where gamma or lambda came as a numpy.float64, and in float32 where they are Python floats.
template <class Delta, class Sum>
void gae(const Rollout& r, double gamma, double gae_lambda) {
    const auto discount = static_cast<Delta>(gamma);
    const auto trace = static_cast<Sum>(gamma * gae_lambda);
    std::vector<Sum> last(r.envs, Sum{0});
    for (std::size_t step = r.steps; step-- > 0;) {
        const bool newest = step + 1 == r.steps;
        const float* const next_values = newest ? r.last_values : r.values + (step + 1) * r.envs;
        const float* const starts = newest ? r.dones : r.episode_starts + (step + 1) * r.envs;
        const float* const rewards = r.rewards + step * r.envs;
        const float* const values = r.values + step * r.envs;
        float* const advantages = r.advantages + step * r.envs;
        float* const returns = r.returns + step * r.envs;
        Sum* const sums = last.data();
        for (std::size_t env = 0; env < r.envs; ++env) {
            const float goes_on = 1.0F - starts[env];
            const Delta delta =
                static_cast<Delta>(rewards[env]) +
                discount * static_cast<Delta>(next_values[env]) * static_cast<Delta>(goes_on) -
                static_cast<Delta>(values[env]);
            sums[env] = static_cast<Sum>(delta) + trace * static_cast<Sum>(goes_on) * sums[env];
            const auto advantage = static_cast<float>(sums[env]);
            advantages[env] = advantage;
            returns[env] = advantage + values[env];
        }
    }
}

}  // namespace relive
