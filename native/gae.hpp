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
    float* advantages;         // outputs share no memory with anything else
    float* returns;
};

// The operations of one step. `Delta` is the type in which the one-step errors are computed and `Sum` that of the
// recursion: NumPy computes in float64 where gamma or lambda came as a numpy.float64, and in float32 where they are
// Python floats.
template <class Delta, class Sum>
inline Sum gae_step(float reward, float value, float next_value, float ended, Delta discount, Sum trace,
                    Sum later) noexcept {
    const float goes_on = 1.0F - ended;
    const Delta delta = static_cast<Delta>(reward) +
                        discount * static_cast<Delta>(next_value) * static_cast<Delta>(goes_on) -
                        static_cast<Delta>(value);
    return static_cast<Sum>(delta) + trace * static_cast<Sum>(goes_on) * later;
}

// One step of all environments. A function of its own, since GCC 12 heeds __restrict on parameters only, and else does
// not vectorise the loop; not inlined, since that would undo it.
template <class Delta, class Sum>
#if defined(__GNUC__) || defined(__clang__)
[[gnu::noinline]]
#endif
void gae_row(const float* rewards, const float* values, const float* next_values, const float* ended, Delta discount,
             Sum trace, std::size_t envs, Sum* __restrict later, float* __restrict advantages,
             float* __restrict returns) {
    for (std::size_t env = 0; env < envs; ++env) {
        later[env] =
            gae_step<Delta, Sum>(rewards[env], values[env], next_values[env], ended[env], discount, trace, later[env]);
        advantages[env] = static_cast<float>(later[env]);
        returns[env] = advantages[env] + values[env];
    }
}

template <class Delta, class Sum>
void gae(const Rollout& r, double gamma, double gamma_lambda) {
    const auto discount = static_cast<Delta>(gamma);
    const auto trace = static_cast<Sum>(gamma_lambda);
    const auto values_after = [&](std::size_t step) {
        return step + 1 == r.steps ? r.last_values : r.values + (step + 1) * r.envs;
    };
    const auto ends_of = [&](std::size_t step) {
        return step + 1 == r.steps ? r.dones : r.episode_starts + (step + 1) * r.envs;
    };
    if (r.envs < 4) {  // too few to work on side by side: the running sum stays in a register
        for (std::size_t env = 0; env < r.envs; ++env) {
            Sum later{0};
            for (std::size_t step = r.steps; step-- > 0;) {
                const std::size_t at = step * r.envs + env;
                later = gae_step<Delta, Sum>(r.rewards[at], r.values[at], values_after(step)[env], ends_of(step)[env],
                                             discount, trace, later);
                r.advantages[at] = static_cast<float>(later);
                r.returns[at] = r.advantages[at] + r.values[at];
            }
        }
        return;
    }
    std::vector<Sum> later(r.envs, Sum{0});
    for (std::size_t step = r.steps; step-- > 0;) {
        const std::size_t at = step * r.envs;
        gae_row<Delta, Sum>(r.rewards + at, r.values + at, values_after(step), ends_of(step), discount, trace, r.envs,
                            later.data(), r.advantages + at, r.returns + at);
    }
}

}  // namespace relive
